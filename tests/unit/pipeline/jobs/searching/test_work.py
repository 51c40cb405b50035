"""What a worker does for a search: matches, how many, the first of them, and what it skipped."""

import dataclasses
import importlib
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline.jobs.archiving.catalog import Catalog
from rockhopper.pipeline.jobs.archiving.files import files_at
from rockhopper.pipeline.jobs.searching.condition import Condition
from rockhopper.pipeline.jobs.searching.result import document
from rockhopper.pipeline.jobs.searching.work import (
    ArchiveTask,
    NetworkTask,
    SearchMatches,
    StoreTask,
    network_bytes,
    search_archive,
    search_network,
    search_store,
)
from rockhopper.pipeline.jobs.tasks import SMALL_BYTES
from rockhopper.pipeline.network.discovery import Discovery
from rockhopper.pipeline.schema import COLUMNS
from rockhopper.pipeline.store_source.rules import read_rules
from tests.support.written_archives import archive_of
from tests.support.written_logs import WrittenLog, store_reader


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    return WrittenLog(tmp_path / "store", file_size_bytes=8192).add(120)


def store_task(log: WrittenLog, limit: int = 100, **condition: Any) -> StoreTask:
    reader = store_reader(log.root)
    pieces = tuple(piece for each in reader.partitions() for piece in each.pieces)
    rules = read_rules({"path": str(log.root), "columns": ",".join(COLUMNS)})
    return StoreTask(pieces, rules, {}, Condition(**condition), limit)


def archive_tasks(directory: Path, limit: int = 100, **condition: Any) -> list[ArchiveTask]:
    files = Catalog(files_at(str(directory))).archived_files()
    return [ArchiveTask(f"{directory}/", each, Condition(**condition), limit) for each in files]


def offsets(found: SearchMatches) -> list[int]:
    return [row["physOffset"] for row in found.rows]


def row(number: int, **fields: Any) -> dict[str, Any]:
    at = datetime.fromtimestamp(number, UTC)
    return {"storeTimestamp": at, "topic": "t", "queueId": 0, "queueOffset": 0, **fields}


def test_the_first_by_time_are_kept_and_all_are_counted() -> None:
    found = SearchMatches()
    for number in reversed(range(50)):
        found.append_rows([row(number)], 3)
        assert len(found.rows) <= 12
    found.cut(3)
    assert [each["storeTimestamp"].timestamp() for each in found.rows] == [0, 1, 2]
    assert found.match_count == 50


def test_of_one_time_topic_queue_and_offset_decide() -> None:
    found = SearchMatches()
    rows = [row(1, topic="u"), row(1, queueId=1), row(1, queueOffset=5), row(1), row(0, topic="z")]
    found.append_rows(rows, 10)
    found.cut(10)
    assert found.rows == [rows[4], rows[3], rows[2], rows[1], rows[0]]


def test_a_store_is_looked_through(log: WrittenLog) -> None:
    found = search_store(store_task(log, key="k50"))
    assert offsets(found) == [log.offsets[50]]
    assert (found.match_count, found.looked_at_count, found.skipped) == (1, 120, [])
    (place,) = (each["place"] for each in found.rows)
    assert place == f"{log.file_of(log.offsets[50])} at byte {log.offsets[50] % 8192}"


def test_damage_and_files_that_are_gone_are_named(log: WrittenLog) -> None:
    task = store_task(log, tag="red")
    log.write(log.offsets[3], b"\xff" * 20)
    last = log.file_of(log.offsets[-1])
    last.unlink()
    found = search_store(task)
    assert found.skipped[-1] == f"{last}: expired"
    assert f"at {log.offsets[3]}" in found.skipped[0]
    assert found.match_count == sum(log.file_of(at) != last for at in log.offsets) - 1


def test_a_limit_keeps_the_first(log: WrittenLog) -> None:
    found = search_store(store_task(log, limit=4, tag="red"))
    assert offsets(found) == log.offsets[:4]
    assert found.match_count == 120


def test_an_archive_is_looked_through(log: WrittenLog, tmp_path: Path) -> None:
    archive = archive_of(log, tmp_path / "archive")
    found = [search_archive(task) for task in archive_tasks(archive, key="k50")]
    (match,) = (each for one in found for each in one.rows)
    assert match["physOffset"] == log.offsets[50]
    assert match["topic"] == "topic-2"
    assert match["place"].startswith(f"{archive}/")
    assert "//" not in match["place"]
    assert sum(one.looked_at_count for one in found) == 120


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ({"tag": "red"}, 120),
        ({"contains": b"body 11"}, 11),
        ({"sql92": "KEYS = 'k7'"}, 1),
        ({"where": "queueOffset >= 118 AND topic = 'topic-1'"}, 1),
        ({"where": "queueId = 1", "key": "k3"}, 1),
        ({"tag": "blue"}, 0),
    ],
)
def test_each_kind_of_condition_finds_the_same_in_store_and_archive(
    log: WrittenLog, tmp_path: Path, condition: dict[str, Any], count: int
) -> None:
    archive = archive_of(log, tmp_path / "archive")
    found = [search_archive(task) for task in archive_tasks(archive, **condition)]
    assert sum(one.match_count for one in found) == count
    assert search_store(store_task(log, **condition)).match_count == count


@pytest.mark.parametrize("born_ms", [0, -1, 1_795_899_578_414_000, 2**63 - 1, -(2**63)])
def test_messages_of_producers_without_a_clock_are_found(tmp_path: Path, born_ms: int) -> None:
    log = WrittenLog(tmp_path / "store").add(born_time_ms=born_ms)
    archive = archive_of(log, tmp_path / "archive")
    (of_archive,) = [search_archive(task) for task in archive_tasks(archive, key="k0")]
    of_store = search_store(store_task(log, key="k0"))
    for found in (of_archive, of_store):
        (message,) = found.rows
        shown = document({**message, "place": ""})["bornTimestamp"]
        assert shown.startswith(("19", "9999"))


def test_times_that_old_archives_have_are_found_too(
    log: WrittenLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoding = importlib.import_module("rockhopper.pipeline.decoder.decode")
    monkeypatch.setattr(decoding, "CALENDAR_MS_MAX", 1 << 53)
    log.add(born_time_ms=2**63 - 1)
    archive = archive_of(log, tmp_path / "archive")
    found = [search_archive(task) for task in archive_tasks(archive, key="k120")]
    (match,) = (each for one in found for each in one.rows)
    assert match["bornTimestamp"].year == 9999


def test_a_file_of_an_archive_that_cannot_be_read_is_named(log: WrittenLog, tmp_path: Path) -> None:
    archive = archive_of(log, tmp_path / "archive")
    first, second, _ = archive_tasks(archive, tag="red")
    (archive / first.file.path).write_bytes(b"no parquet at all")
    (archive / second.file.path).unlink()
    for task in (first, second):
        found = search_archive(task)
        (said,) = found.skipped
        assert said.startswith(f"{archive}/{task.file.path}: ")
        assert found.rows == []


def test_what_a_partition_brings_is_looked_at(log: WrittenLog) -> None:
    options = {"columns": ",".join(COLUMNS), "brokerName": "b"}
    reader = store_reader(log.root, options)
    (partition,) = reader.partitions()
    found = search_network(NetworkTask(reader, partition, Condition(key="k50"), 10))
    (match,) = found.rows
    assert (match["physOffset"], match["place"]) == (log.offsets[50], "broker b")
    assert (found.looked_at_count, found.match_count) == (120, 1)


@dataclasses.dataclass
class Range:
    queue: MessageQueue
    begin: int
    count: int


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> list[dict[MessageQueue, int]]:
    """What was asked for; records have 500 bytes in queues of even number, 1,500 in others."""
    asked: list[dict[MessageQueue, int]] = []

    def record_bytes(_: Discovery, starts: dict[MessageQueue, int]) -> dict[MessageQueue, float]:
        asked.append(starts)
        return {queue: 500.0 + 1000.0 * (queue.queue_id % 2) for queue in starts}

    monkeypatch.setattr(Discovery, "__init__", lambda *_: None)
    monkeypatch.setattr(Discovery, "record_bytes", record_bytes)
    return asked


def partition(*counts: int) -> Any:
    ranges = [Range(MessageQueue("t", "b", n), 10 * n, count) for n, count in enumerate(counts)]
    return SimpleNamespace(ranges=ranges)


def test_the_size_is_guessed_from_the_longest_queues(
    sampled: list[dict[MessageQueue, int]],
) -> None:
    counts = [1, 9, 0, *(5 for _ in range(9))]
    size = network_bytes(None, [partition(*counts)])
    (starts,) = sampled
    assert [queue.queue_id for queue in starts] == [1, 3, 4, 5, 6, 7, 8, 9]
    assert starts[MessageQueue("t", "b", 3)] == 30
    odd = sum(queue.queue_id % 2 for queue in starts)
    assert size == int(sum(counts) * (500 + 1000 * odd / 8))


def test_nothing_is_sampled_where_the_count_says_enough(
    sampled: list[dict[MessageQueue, int]],
) -> None:
    assert network_bytes(None, [partition(0, 0)]) == 0
    assert network_bytes(None, [partition(SMALL_BYTES)]) == SMALL_BYTES * 91
    assert sampled == []
