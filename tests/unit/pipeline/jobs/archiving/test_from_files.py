"""Archiving a store's files: what is in them comes once, wherever a run ends and begins."""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rockhopper.pipeline import jobs
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.catalog import Catalog
from rockhopper.pipeline.jobs.archiving.files import LocalFiles
from rockhopper.pipeline.jobs.archiving.manifest import ArchivedFile
from rockhopper.pipeline.jobs.archiving.writing import file_schema
from tests.support import apache_golden
from tests.support.written_logs import T0_MS, WrittenLog, read_rows

DAY_MS = 86_400_000


def files(root: Path) -> list[ArchivedFile]:
    return Catalog(LocalFiles(root)).archived_files()


def rows(root: Path) -> list[dict[str, Any]]:
    """Every archived message, with what its directory says."""
    found = []
    for each in files(root):
        table = pq.ParquetFile(root / each.path).read()
        found += [
            {**row, "topic": each.topic, "date": each.date}
            for row in table.to_pylist(maps_as_pydicts="strict")
        ]
    return sorted(found, key=lambda row: (row["physOffset"], row["queueOffset"]))


def test_what_is_archived_is_what_the_source_reads(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "store").add(300)
    log.add(1, topic="wide", body=b"", properties={}, born_host=bytes(15) + b"\x01" + bytes(4))

    result = jobs.archive(tmp_path / "archive", path=log.root, broker_name="broker-a")

    expected = read_rows(log.root, {"brokerName": "broker-a"})
    assert result.rows == len(expected) == 301
    found = rows(tmp_path / "archive")
    assert [{name: row[name] for name in expected[0]} for row in found] == expected
    for each in files(tmp_path / "archive"):
        assert pq.ParquetFile(tmp_path / "archive" / each.path).schema_arrow.equals(
            file_schema(None)
        )


def test_directories_say_topic_and_day_of_storing(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "store")
    log.add(2, topic="%RETRY%g", store_time_ms=T0_MS).add(1, topic="a", store_time_ms=T0_MS)
    log.add(3, topic="a", store_time_ms=T0_MS + DAY_MS)
    log.add(1, topic="a", store_time_ms=T0_MS + 5)

    jobs.archive(tmp_path / "archive", path=log.root, topics=("a", "%RETRY%g"))

    day, next_day = (datetime.fromtimestamp((T0_MS + ms) / 1000, UTC).date() for ms in (0, DAY_MS))
    assert Counter(
        (each.path.rpartition("/")[0], each.rows) for each in files(tmp_path / "archive")
    ) == {
        (f"topic=%25RETRY%25g/date={day}", 2): 1,
        (f"topic=a/date={day}", 2): 1,
        (f"topic=a/date={next_day}", 3): 1,
    }


def test_a_run_adds_what_is_new(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "store").add(50)
    root = tmp_path / "archive"

    assert jobs.archive(root, path=log.root).rows == 50
    assert jobs.archive(root, path=log.root).rows == 0
    log.add(400)  # into further files of the log
    assert jobs.archive(root, path=log.root).rows == 400
    assert [row["physOffset"] for row in rows(root)] == log.offsets
    assert [each.run for each in Catalog(LocalFiles(root)).manifests()] == [1, 2]


def test_topics_that_are_chosen_later_come_from_the_beginning(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "store").add(30)
    root = tmp_path / "archive"

    first = jobs.archive(root, path=log.root, topics=["topic-1"])
    log.add(30)
    second = jobs.archive(root, path=log.root, pattern="topic-[12]")
    third = jobs.archive(root, path=log.root)
    last = jobs.archive(root, path=log.root, topics=["topic-2", "topic-0"])

    assert [each.rows for each in (first, second, third, last)] == [10, 30, 20, 0]
    assert {each.topic: each.messages for each in first.left_out} == {"topic-0": 10, "topic-2": 10}
    assert [row["physOffset"] for row in rows(root)] == log.offsets


def test_what_is_the_brokers_own_has_to_be_named(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "store").add(3, topic="orders")
    log.add(2, topic="RMQ_SYS_TRANS_HALF_TOPIC").add(1, topic="%DLQ%g")

    result = jobs.archive(tmp_path / "archive", path=log.root)

    assert result.rows == 3
    assert {each.topic: each.messages for each in result.left_out} == {
        "%DLQ%g": 1,
        "RMQ_SYS_TRANS_HALF_TOPIC": 2,
    }
    assert "not archived, since these topics were not chosen:" in "\n".join(result.lines())
    assert jobs.archive(tmp_path / "archive", path=log.root, topics=["%DLQ%g"]).rows == 1


def test_whole_files_of_the_log_can_go_then(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "store", file_size_bytes=4096).add(120)
    root = tmp_path / "archive"

    result = jobs.archive(root, path=log.root)
    for path in result.deletable_segments:
        Path(path).unlink()
    log.add(5)

    assert len(result.deletable_segments) > 1
    assert jobs.archive(root, path=log.root).rows == 5
    assert [row["physOffset"] for row in rows(root)] == log.offsets
    assert (
        jobs.archive(tmp_path / "some", path=log.root, topics=["topic-1"]).deletable_segments == []
    )


def test_another_store_under_the_same_name_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "archive"
    one = WrittenLog(tmp_path / "one").add(20)
    other = WrittenLog(tmp_path / "other").add(40, topic="else", body=b"x" * 30)
    jobs.archive(root, path=one.root)

    with pytest.raises(PipelineError, match="name the broker with --broker-name"):
        jobs.archive(root, path=other.root)
    assert jobs.archive(root, path=other.root, broker_name="broker-b").rows == 40
    assert {row["brokerName"] for row in rows(root)} == {None, "broker-b"}


def test_damage_stops_a_run_or_is_counted(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "store").add(60)
    log.write(log.offsets[10], bytes(30))
    root = tmp_path / "archive"

    with pytest.raises(PipelineError, match=r"the commit log is damaged .*--corrupt skip$"):
        jobs.archive(root, path=log.root)
    result = jobs.archive(root, path=log.root, corrupt="skip")

    assert (result.rows, result.damaged) == (59, 1)
    assert "1 damaged place of the log skipped" in "\n".join(result.lines())
    assert jobs.archive(root, path=log.root).rows == 0


def test_a_torn_record_is_looked_at_again(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "store").add(10)
    root = tmp_path / "archive"
    torn = log.end
    log.add(1)
    whole = log.file_of(torn).read_bytes()
    log.write(torn + 40, bytes(60))

    assert jobs.archive(root, path=log.root, corrupt="skip").rows == 10
    log.file_of(torn).write_bytes(whole)
    assert jobs.archive(root, path=log.root).rows == 1


@pytest.mark.parametrize("name", ["plain", "batch", "extended", "killed"])
def test_stores_of_apache(name: str, tmp_path: Path) -> None:
    store = apache_golden.unpack(name, tmp_path)
    root = tmp_path / "archive"
    own = [row for row in read_rows(store.path) if row["topic"] in store.topics]

    # A killed broker's log may end in a torn record.
    jobs.archive(root, path=store.path, topics=sorted(store.topics), corrupt="skip")

    found = rows(root)
    assert Counter(row["topic"] for row in found) == Counter(row["topic"] for row in own)
    assert [row["body"] for row in found] == [row["body"] for row in own]
