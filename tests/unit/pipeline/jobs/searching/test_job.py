"""Messages are found by key, tag, body and condition, in stores and archives, each once."""

import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.results import UsageProblem
from rockhopper.pipeline.jobs.searching.job import search
from rockhopper.pipeline.jobs.searching.result import SearchResult
from rockhopper.pipeline.jobs.tasks import run_in_this_process
from tests.support import apache_golden
from tests.support.written_archives import archive_of
from tests.support.written_logs import T0_MS, WrittenLog


def searched(path: Path | None, **options: Any) -> SearchResult:
    return search(None if path is None else str(path), run=run_in_this_process, **options)


def places(result: SearchResult) -> list[int]:
    return [message["physOffset"] for message in result.messages]


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    return WrittenLog(tmp_path / "store", file_size_bytes=8192).add(120)


def test_by_key_and_by_unique_key(log: WrittenLog) -> None:
    log.add(properties={"KEYS": "a order-7 b", "UNIQ_KEY": "ABC"})
    log.add(properties={"KEYS": "order-70", "UNIQ_KEY": "ABCD"})

    assert places(searched(log.root, key="order-7")) == [log.offsets[120]]
    assert places(searched(log.root, key="ABC")) == [log.offsets[120]]
    assert places(searched(log.root, key="k7")) == [log.offsets[7]]
    assert places(searched(log.root, key="nothing")) == []


def test_by_tag_topic_and_time(log: WrittenLog) -> None:
    log.add(topic="topic-1", properties={"TAGS": "blue"})
    log.add(topic="topic-2", properties={"TAGS": "blue", "KEYS": "red"})

    assert places(searched(log.root, tag="blue")) == log.offsets[120:]
    assert places(searched(log.root, tag="blue", topics=["topic-2"])) == [log.offsets[121]]
    found = searched(log.root, start_ms=T0_MS + 10, end_ms=T0_MS + 12)
    assert places(found) == log.offsets[10:12]


def test_a_topic_that_is_nowhere(log: WrittenLog, tmp_path: Path) -> None:
    archive = str(archive_of(log, tmp_path / "archive"))
    (log.root / "consumequeue" / "topic-1").mkdir(parents=True)

    with pytest.raises(PipelineError, match=r"has no topic 'topic-7' \(did you mean 'topic-1'"):
        searched(log.root, topics=["topic-1", "topic-7"])
    with pytest.raises(PipelineError, match="has no topic 'topic-7'"):
        searched(log.root, archive=archive, topics=["topic-7"], dry_run=True)
    with pytest.raises(PipelineError, match=r"the archive .* has no topic 'topic-7' \(did you"):
        searched(None, archive=archive, topics=["topic-7"])


def test_a_topic_that_only_the_archive_has(log: WrittenLog, tmp_path: Path) -> None:
    archive = str(archive_of(log, tmp_path / "archive"))
    (log.root / "consumequeue" / "topic-1").mkdir(parents=True)

    for topics in (["topic-2"], ["topic-1", "topic-2"]):
        found = searched(log.root, archive=archive, topics=topics, limit=1000)
        assert {one["topic"] for one in found.messages} == set(topics)


def test_by_a_piece_of_the_body(log: WrittenLog) -> None:
    log.add(body=b"\xff\x00needle\xff")
    log.add(body=zlib.compress(b"hay needle hay" * 20), sys_flag=0x1)
    log.add(body=b"hay", properties={"KEYS": "needle"})

    found = searched(log.root, contains="needle")

    assert places(found) == log.offsets[120:122]
    assert "bodyBase64" in found.messages[0]
    assert found.messages[1]["body"].startswith("hay needle hay")


def test_inside_inner_batches(tmp_path: Path) -> None:
    store = apache_golden.unpack("batch", tmp_path).path
    everything = searched(store, topics=["Batches"], limit=1000)
    wanted = next(one for one in everything.messages if one["queueOffset"] == 5)

    found = searched(store, key=wanted["msgId"])

    assert len(everything.messages) == 75
    assert [one["queueOffset"] for one in found.messages] == [5]


def test_by_a_condition_over_properties(log: WrittenLog) -> None:
    log.add(properties={"region": "eu", "amount": "120"})
    log.add(properties={"region": "us", "amount": "99"})

    found = searched(log.root, sql92="region IS NOT NULL AND amount > 100")

    assert places(found) == [log.offsets[120]]
    assert found.messages[0]["properties"] == {"region": "eu", "amount": "120"}
    with pytest.raises(PipelineError, match="an example is"):
        searched(log.root, sql92="region = ")


def test_what_a_match_says_of_its_place(log: WrittenLog) -> None:
    found = searched(log.root, key="k100")

    message = found.messages[0]
    path = log.file_of(log.offsets[100])
    assert message["place"] == f"{path} at byte {log.offsets[100] % 8192}"
    assert message["body"] == "body 100"
    lines = list(found.lines())
    assert "topic-1 queue 0" in lines[0]
    assert str(path) in lines[2]
    assert "1 message; looked at 120" in lines[-1]
    as_lines = searched(log.root, key="k100", as_json_lines=True)
    assert [json.loads(line)["keys"] for line in as_lines.lines()] == ["k100"]


def test_the_oldest_matches_up_to_the_limit(log: WrittenLog) -> None:
    found = searched(log.root, tag="red", limit=3)

    assert places(found) == log.offsets[:3]
    assert found.match_count == 120
    assert "of 120 matches" in list(found.lines())[-1]


def test_store_and_archive_together_tell_each_message_once(log: WrittenLog, tmp_path: Path) -> None:
    archive = archive_of(log, tmp_path / "archive", end=log.offsets[80])
    log.file_of(0).unlink()
    left = [offset for offset in log.offsets if offset >= 8192]

    both = searched(log.root, archive=str(archive), tag="red", limit=1000)
    archived = searched(None, archive=str(archive), tag="red", limit=1000)

    assert places(both) == log.offsets
    assert places(archived) == log.offsets[:80]
    assert [one["place"].startswith(str(archive)) for one in both.messages] == [
        offset not in left for offset in log.offsets
    ]
    assert {one["brokerName"] for one in both.messages} == {"broker-a"}


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({"key": "k33"}, [33]),
        ({"contains": "body 44"}, [44]),
        ({"sql92": "KEYS = 'k55'"}, [55]),
        ({"start_ms": T0_MS + 60, "end_ms": T0_MS + 62}, [60, 61]),
        ({"topics": ["topic-2"], "tag": "red"}, list(range(2, 120, 3))),
    ],
)
def test_every_condition_works_on_archives(
    options: dict[str, Any], rows: list[int], log: WrittenLog, tmp_path: Path
) -> None:
    archive = archive_of(log, tmp_path / "archive")

    found = searched(None, archive=str(archive), **options)

    assert places(found) == [log.offsets[row] for row in rows]
    assert found.messages[0]["body"] == f"body {rows[0]}"


def test_damaged_places_are_left_out_and_told(log: WrittenLog) -> None:
    log.write(log.offsets[50], bytes(60))

    found = searched(log.root, tag="red", limit=1000)

    assert len(found.messages) < 120
    assert str(log.file_of(log.offsets[50])) in found.skipped[0]


def test_what_makes_no_sense_is_said(log: WrittenLog, tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="nothing to search"):
        searched(None, key="x")
    with pytest.raises(UsageProblem, match="nothing to look for"):
        searched(log.root)
    with pytest.raises(UsageProblem, match="swap them"):
        searched(log.root, start_ms=5, end_ms=5)
    with pytest.raises(UsageProblem, match="at least 1"):
        searched(log.root, key="x", limit=0)
    with pytest.raises(UsageProblem, match="is empty"):
        searched(log.root, contains="")
    with pytest.raises(UsageProblem, match="choose one"):
        searched(log.root, nameserver="localhost:9876", key="x")
    with pytest.raises(PipelineError, match="no archive"):
        searched(None, archive=str(tmp_path), key="x")
    with pytest.raises(PipelineError, match="no directory"):
        searched(tmp_path / "nowhere", key="x")
