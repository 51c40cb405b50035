"""Manifests: what is written is read again, whichever release wrote it, and sums add up."""

import json
from dataclasses import replace
from typing import Any

import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.manifest import (
    COMPACTED,
    EXPIRED,
    ArchivedFile,
    LogPosition,
    Manifest,
    QueueSummary,
    Reached,
    list_expired,
    list_left,
    make_removing_manifest,
    make_stored_key,
    merge_summaries,
)

ONE = QueueSummary("orders", "broker-a", 0, 5, 9, 5, 50, (1 << 64) - 1, 100, 200)
FILE = ArchivedFile(
    "topic=orders/p.parquet",
    "orders",
    "2026-11-20",
    5,
    99,
    100,
    200,
    (ONE,),
    "ab",
    "topic=orders/q.parquet",
)
WHOLE = Manifest(
    run=3,
    created_ms=1,
    source={"kind": "network", "away": ["broker-b"]},
    columns=("body", "value"),
    value={"format": "json", "schema": "{}"},
    files=(FILE,),
    queues=(ONE,),
    undecoded=2,
    log_positions={"broker-a": LogPosition({"*": 7}, 5, "00ff")},
    reached=Reached(
        {"orders": {"broker-a": {"0": 10}}},
        {"orders": {"broker-a": "A1"}},
        {"orders": {"broker-a": {"0": 200}}},
    ),
    removed=("topic=orders/q.parquet",),
)


def test_what_is_written_is_read() -> None:
    assert Manifest.from_json(WHOLE.to_json(), "m") == WHOLE
    bare = Manifest(1, 0, {}, (), None)
    assert Manifest.from_json(bare.to_json(), "m") == bare
    assert (WHOLE.rows, WHOLE.away, bare.rows, bare.away) == (5, ["broker-b"], 0, [])


def test_files_count_until_a_later_run_removes_them() -> None:
    one, two, three = (replace(FILE, path=f"{name}.parquet") for name in "abc")
    runs = [
        replace(WHOLE, run=1, files=(one, two), removed=()),
        make_removing_manifest(WHOLE, EXPIRED, [one], 60_000, 5),
        replace(make_removing_manifest(WHOLE, COMPACTED, [two], 60_000, 5), files=(three,)),
    ]
    assert list_left(runs) == [three]
    assert list_expired(runs) == [one]
    assert (runs[1].run, runs[1].kind, runs[1].removed) == (4, EXPIRED, (one.path,))
    # Where the archive goes on, and who was away, is as it was.
    assert (runs[1].reached, runs[1].log_positions) == (WHOLE.reached, WHOLE.log_positions)
    assert (runs[1].away, runs[1].value) == (WHOLE.away, WHOLE.value)


def test_a_merged_file_comes_in_the_place_of_its_first() -> None:
    name = "topic=orders/date=d/part-{:05d}-00000-0.parquet"
    first, second, third = (replace(FILE, path=name.format(n), place=None) for n in (1, 2, 3))
    whole = replace(FILE, path=name.format(9), place=first.path)
    assert sorted([third, whole, second], key=make_stored_key) == [whole, second, third]


def test_the_document_has_the_names_that_readers_know() -> None:
    document = json.loads(WHOLE.to_json())

    assert list(document) == [
        *("format", "run", "createdMs", "source", "columns", "value", "files", "queues"),
        *("undecoded", "removed", "expired", "positions"),
    ]
    assert document["positions"]["log"] == {
        "broker-a": {"offsets": {"*": 7}, "lastOffset": 5, "lastHead": "00ff"}
    }
    (queue,) = document["queues"]
    assert (queue["bodyHash"], queue["minStoreMs"], queue["crcBits"]) == ("f" * 16, 100, 31)
    (file,) = document["files"]
    assert (file["sha256"], file["queues"]) == ("ab", [queue])


def older(**changes: Any) -> bytes:
    document = json.loads(WHOLE.to_json())
    document.update(changes)
    return json.dumps(document).encode()


def test_manifests_of_former_days() -> None:
    document = json.loads(WHOLE.to_json())
    (queue,) = document["queues"]
    del document["positions"]["ids"], document["positions"]["times"], document["files"][0]["sha256"]
    third = {**queue, "columnsHash": "00000000000000ff"}
    first = {name: value for name, value in queue.items() if name not in ("crcBits", "columnsHash")}

    found = [
        Manifest.from_json(json.dumps({**document, "format": number, "queues": [was]}).encode(), "")
        for number, was in ((1, first), (2, queue), (3, third))
    ]

    assert [each.queues for each in found] == [
        (replace(ONE, crc_bits=32),),
        (ONE,),
        (replace(ONE, columns_hash=255),),
    ]
    assert {each.files[0].sha256 for each in found} == {None}
    assert [each.reached for each in found] == [Reached(WHOLE.reached.positions)] * 3
    again = Manifest.from_json(found[2].to_json(), "m")
    assert again.queues == found[2].queues


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "m is damaged .*restore it from a copy of the archive"),
        (b"[]", "m is damaged"),
        (b"{}", r"m is damaged \(KeyError\('format'\)"),
        (older(files=[{}]), "m is damaged"),
        (older(positions=None), "m is damaged"),
        (older(queues=7), "m is damaged"),
        (older(format=6), "m has the format 6, .* knows format 5: use a newer one"),
        (older(format="4"), "m has the format 4, "),
    ],
)
def test_what_cannot_be_read_is_named(data: bytes, says: str) -> None:
    with pytest.raises(PipelineError, match=says):
        Manifest.from_json(data, "m")


def test_parts_of_a_queue_are_one_and_queues_come_in_order() -> None:
    later = replace(ONE, first_offset=2, last_offset=3, rows=2, body_bytes=3, body_hash=2)
    later = replace(later, min_store_ms=150, max_store_ms=300)
    others = [replace(ONE, queue_id=1), replace(ONE, broker="broker-b"), replace(ONE, topic="a")]

    found = merge_summaries([*others, ONE, later])

    assert [each.queue for each in found] == [
        ("a", "broker-a", 0),
        ("orders", "broker-a", 0),
        ("orders", "broker-a", 1),
        ("orders", "broker-b", 0),
    ]
    assert found[1] == QueueSummary("orders", "broker-a", 0, 2, 9, 7, 53, 1, 100, 300)
    assert merge_summaries([later, ONE]) == (found[1],)
    assert merge_summaries([]) == ()
