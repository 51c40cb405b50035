"""Counting messages, without Spark."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rockhopper.pipeline.jobs.reporting import tallies
from rockhopper.pipeline.jobs.reporting.inputs import Chosen, store_work
from rockhopper.pipeline.jobs.reporting.tables import prepare_for_files
from rockhopper.pipeline.jobs.reporting.tallies import (
    HOUR_MS,
    MINUTE_MS,
    Tally,
    combine_tallies,
    merge_tables,
    tally,
)
from rockhopper.pipeline.sink.staging import part_ids
from tests.support.written_logs import T0_MS, WrittenLog


def counted(root: Path, **chosen: Any) -> dict[str, list[dict[str, Any]]]:
    tasks = store_work(str(root), Chosen(**chosen)).tasks
    tables = combine_tallies(map(tally, tasks))
    return {name: table.to_pylist() for name, table in tables.items()}


def by(rows: list[dict[str, Any]], *keys: str) -> dict[Any, int]:
    counts: Counter[Any] = Counter()
    for row in rows:
        counts[tuple(row[key] for key in keys)] += row["messages"]
    return counts


def test_messages_are_counted_by_topic_minute_tag_size_and_queue(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path).add(30)
    log.add(5, topic="late", properties={}, body=b"", store_time_ms=T0_MS + 5 * MINUTE_MS)

    found = counted(tmp_path)

    minute = T0_MS // MINUTE_MS * MINUTE_MS
    assert by(found["times"], "topic", "timeMs")["late", minute + 5 * MINUTE_MS] == 5
    assert by(found["tags"], "topic", "tag") == {
        ("topic-0", "red"): 10,
        ("topic-1", "red"): 10,
        ("topic-2", "red"): 10,
        ("late", None): 5,
    }
    assert by(found["sizes"], "topic", "size")["late", 0] == 5
    assert sum(row["messages"] for row in found["queues"]) == 35
    first = next(row for row in found["queues"] if (row["topic"], row["queueId"]) == ("topic-1", 1))
    assert (first["firstOffset"], first["lastOffset"]) == (1, 25)
    assert first["lastMs"] == T0_MS + 25


def test_producers_are_told_apart_by_host_and_process(tmp_path: Path) -> None:
    host = bytes([10, 0, 0, 7])
    known = {"UNIQ_KEY": (host + b"\x12\x34" + bytes(4) + b"\x01" * 6).hex().upper()}
    log = WrittenLog(tmp_path)
    log.add(3, born_host=host + (4001).to_bytes(4, "big"), properties=known, topic="t")
    log.add(2, born_host=host + (4002).to_bytes(4, "big"), properties=known, topic="t")
    log.add(4, born_host=host + (4003).to_bytes(4, "big"), properties={}, topic="t")
    v5 = {"UNIQ_KEY": "01" + "AA" * 6 + "BEEF" + "00" * 8}
    log.add(1, born_host=bytes(15) + b"\x01" + bytes(4), properties=v5, topic="t")

    found = by(counted(tmp_path)["producers"], "host", "pid")

    assert dict(found) == {
        ("10.0.0.7", "1234"): 5,
        ("10.0.0.7", None): 4,
        ("::1", "BEEF"): 1,
    }


def test_parts_of_an_exactly_once_sink_are_one_producer(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path)
    for partition in range(3):
        (unique,) = part_ids("sink", 7, partition)(1)
        log.add(2, born_host=bytes([10, 0, 0, 7, 0, 0, 1, 1]), properties={"UNIQ_KEY": unique})

    assert set(by(counted(tmp_path)["producers"], "host", "pid")) == {("10.0.0.7", None)}


def test_topics_of_the_system_do_not_count(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path).add(3, topic="orders")
    log.add(2, topic="SCHEDULE_TOPIC_XXXX").add(2, topic="rmq_sys_wheel_timer")

    assert by(counted(tmp_path)["queues"], "topic") == {("orders",): 3}


def test_topics_and_times_can_be_chosen(tmp_path: Path) -> None:
    WrittenLog(tmp_path).add(30)

    assert by(counted(tmp_path, topics=("topic-1",))["tags"], "topic") == {("topic-1",): 10}
    found = counted(tmp_path, start_ms=T0_MS + 3, end_ms=T0_MS + 9)
    assert sum(row["messages"] for row in found["queues"]) == 6


def test_an_empty_store_has_empty_tables(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()

    assert all(rows == [] for rows in counted(tmp_path).values())
    assert combine_tallies([])["queues"].schema.names[-1] == "lastMs"


def test_sizes_keep_three_digits(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path)
    for size in (0, 7, 999, 1_234, 1_235, 12_345):
        log.add(1, topic="t", body=bytes(size))

    sizes = [row["size"] for row in counted(tmp_path)["sizes"]]

    assert sorted(sizes) == [0, 7, 999, 1_230, 1_240, 12_300]


def test_many_minutes_become_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tallies, "TIMES_MAX", 10)
    rows = [
        {"topic": "t", "timeMs": minute * MINUTE_MS, "messages": 1, "bytes": 2}
        for minute in range(120)
    ]

    found = merge_tables("times", [pa.Table.from_pylist(rows)]).sort_by("timeMs").to_pylist()

    assert [(row["timeMs"], row["messages"], row["bytes"]) for row in found] == [
        (0, 60, 120),
        (HOUR_MS, 60, 120),
    ]


def test_batches_beyond_one_count_are_added_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tallies, "_ROWS_AT_ONCE", 8)
    WrittenLog(tmp_path).add(30)
    counts = Tally()
    for task in store_work(str(tmp_path), Chosen()).tasks:
        for batch in task.batches():
            for start in range(0, batch.num_rows, 4):
                counts.count_batch(batch.slice(start, 4))

    assert by(counts.tables()["queues"].to_pylist(), "topic", "queueId")["topic-0", 0] == 5


def test_tables_for_files_have_times_and_the_most_first(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path).add(2, topic="few").add(9, topic="many")
    log.add(1, topic="few", store_time_ms=T0_MS + 2 * HOUR_MS)

    tables = prepare_for_files(
        combine_tallies(map(tally, store_work(str(tmp_path), Chosen()).tasks))
    )

    assert tables["topics"]["topic"].to_pylist() == ["many", "few"]
    hours = tables["hours"].to_pylist()
    assert [(row["topic"], row["messages"]) for row in hours] == [
        ("few", 2),
        ("many", 9),
        ("few", 1),
    ]
    assert (hours[2]["hour"] - hours[0]["hour"]).total_seconds() == 7200
    assert pa.types.is_timestamp(tables["queues"].schema.field("lastStored").type)
