"""What a search says: messages for people, for programs, and what was left out."""

import base64
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from rockhopper.pipeline.jobs.searching.result import SearchResult, document

ROW: dict[str, Any] = {
    "topic": "orders",
    "brokerName": "broker-a",
    "queueId": 3,
    "queueOffset": 17,
    "msgId": "7F00",
    "offsetMsgId": "0A00",
    "tags": "blue",
    "keys": "o-1 o-2",
    "body": "grün".encode(),
    "storeTimestamp": datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC),
    "bornTimestamp": None,
    "properties": [("KEYS", "o-1 o-2"), ("colour", "green")],
    "physOffset": 4096,
    "place": "/store/0000 at byte 96",
}


def result(*rows: dict[str, Any], **fields: Any) -> SearchResult:
    given: dict[str, Any] = {"sources": ["/store"], "is_dry_run": False}
    found = SearchResult(**{**given, **fields})
    found.messages = [document(row) for row in rows]
    found.match_count = found.match_count or len(rows)
    return found


def lines(found: SearchResult) -> list[str]:
    return list(found.lines())


def test_a_message_as_a_document() -> None:
    found = document(ROW)
    assert found["body"] == "grün"
    assert "bodyBase64" not in found
    assert found["properties"] == {"KEYS": "o-1 o-2", "colour": "green"}
    assert found["storeTimestamp"] == "2026-01-02T03:04:05.678+00:00"
    assert found["bornTimestamp"] is None
    assert (found["physOffset"], found["place"]) == (4096, "/store/0000 at byte 96")
    json.dumps(found)


def test_times_are_said_in_utc() -> None:
    local = ROW["storeTimestamp"].astimezone(timezone(timedelta(hours=8)))
    assert document(ROW | {"storeTimestamp": local}) == document(ROW)


def test_a_body_that_is_no_text_and_one_that_is_missing() -> None:
    found = document(ROW | {"body": b"\xff\x00"})
    assert base64.b64decode(found["bodyBase64"]) == b"\xff\x00"
    assert "body" not in found
    assert document(ROW | {"body": None})["body"] == ""


def test_a_message_for_people() -> None:
    assert lines(result(ROW, seconds=1.25)) == [
        "2026-01-02T03:04:05.678  orders queue 3 of broker-a, offset 17 [blue] keys o-1 o-2",
        "    grün",
        "    /store/0000 at byte 96, commit log offset 4096, 7F00",
        "1 message in 1.2 s",
    ]


def test_what_a_message_does_not_have_is_not_said() -> None:
    bare = ROW | {"brokerName": "", "tags": None, "keys": ""}
    assert lines(result(bare))[0] == "2026-01-02T03:04:05.678  orders queue 3, offset 17"


def test_terminals_are_told_nothing_by_messages() -> None:
    said = lines(result(ROW | {"body": b"\x1b[2J", "tags": "\x1b[2J", "keys": "\x07"}))
    assert not any(char in "".join(said) for char in "\x1b\x07")


@pytest.mark.parametrize(("size", "shown"), [(60, "x" * 60), (61, "x" * 58 + " …")])
def test_long_bodies_are_cut(size: int, shown: str) -> None:
    assert lines(result(ROW | {"body": b"x" * size}))[1] == f"    {shown}"


def test_bodies_that_are_no_text_are_shown_somehow() -> None:
    (_, shown, *_) = lines(result(ROW | {"body": b"\xff\xfe"}))
    assert "ff" in shown


def test_more_matches_than_were_wanted() -> None:
    last = lines(result(ROW, match_count=1234, looked_at_count=98_765, seconds=2.0))[-1]
    assert last == (
        "1 message (of 1,234 matches, repeated ones included); looked at 98,765 in 2.0 s"
    )


def test_what_was_left_out_is_named_up_to_five_places() -> None:
    some = lines(result(skipped=["a", "b", "c", "d", "e"]))
    assert some[1:] == [f"  left out: {name}" for name in "abcde"]
    more = lines(result(skipped=list("abcdefg")))
    assert more[1:] == [*some[1:], "  and 2 more places"]


def test_a_dry_run_names_the_sources() -> None:
    found = result(is_dry_run=True, sources=["/store", "/archive"], task_count=3)
    assert lines(found) == ["Would search /store and /archive, in 3 tasks"]
    found._as_json_lines = True
    assert lines(found) == ["Would search /store and /archive, in 3 tasks"]


def test_messages_as_lines_of_json() -> None:
    found = result(ROW, ROW | {"topic": "others"}, _as_json_lines=True)
    texts = lines(found)
    assert [json.loads(text) for text in texts] == found.messages
    assert "grün" in texts[0]
    assert ", " not in texts[0].replace("o-1 o-2", "").replace("at byte", "")
