"""Archiving a store's files: what is in them comes once, wherever a run ends and begins."""

import json
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
from rockhopper.pipeline.jobs.archiving.manifest import ArchivedFile, merged
from rockhopper.pipeline.jobs.archiving.writing import FILE_COLUMNS, file_schema
from rockhopper.pipeline.jobs.results import UsageProblem, as_document
from rockhopper.protocol.store.store_paths import CONSUME_QUEUE_DIRECTORY
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


def test_a_topic_that_the_store_does_not_have_is_refused_unless_it_is_archived_already(
    tmp_path: Path,
) -> None:
    log = WrittenLog(tmp_path / "store").add(30)
    queues = log.root / CONSUME_QUEUE_DIRECTORY
    for name in ("topic-0", "topic-1"):
        (queues / name).mkdir(parents=True)
    root = tmp_path / "archive"

    with pytest.raises(PipelineError, match=r"has no topic 'topc-1' \(did you mean 'topic-1'"):
        jobs.archive(root, path=log.root, topics=["topic-0", "topc-1"])
    assert files(root) == []
    assert jobs.archive(root, path=log.root, topics=["topic-0", "topic-1"]).rows == 20
    (queues / "topic-1").rmdir()
    log.add(30)
    assert jobs.archive(root, path=log.root, topics=["topic-0", "topic-1"]).rows == 20


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


def test_messages_that_expired_before_they_were_archived_are_missed(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "store", file_size_bytes=4096).add(10)
    root = tmp_path / "archive"
    jobs.archive(root, path=log.root)
    log.add(60)
    for path in sorted(log.commit_log.iterdir())[:2]:
        path.unlink()

    with pytest.raises(PipelineError, match="messages in between have expired; add --allow-gaps"):
        jobs.archive(root, path=log.root)
    assert 0 < jobs.archive(root, path=log.root, allow_gaps=True).rows < 60


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


def test_the_manifest_adds_up(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "store").add(100)
    jobs.archive(tmp_path / "archive", path=log.root)

    (manifest,) = Catalog(LocalFiles(tmp_path / "archive")).manifests()

    assert manifest.rows == 100 == sum(each.rows for each in manifest.queues)
    assert manifest.queues == merged([queue for each in manifest.files for queue in each.queues])
    assert sum(each.body_bytes for each in manifest.queues) == sum(
        len(f"body {n}") for n in range(100)
    )
    assert {(each.topic, each.queue_id) for each in manifest.queues} == {
        (f"topic-{n % 3}", n % 2) for n in range(100)
    }
    assert min(each.min_store_ms for each in manifest.files) == T0_MS
    assert max(each.max_store_ms for each in manifest.files) == T0_MS + 99
    for each in manifest.files:
        assert each.bytes == (tmp_path / "archive" / each.path).stat().st_size
    assert manifest.columns == FILE_COLUMNS
    assert manifest.source["end"] == log.end


def test_bodies_become_values_and_stay_bodies(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "store").add(2, topic="t", body=b'{"id": 7}')
    log.add(1, topic="t", body=b"no JSON")
    root = tmp_path / "archive"
    schema = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}})

    result = jobs.archive(root, path=log.root, decode="json", schema=schema)
    log.add(1, topic="t", body=b'{"id": 8}')
    again = jobs.archive(root, path=log.root)  # decodes as the archive always did

    assert (result.undecoded, again.rows) == (1, 1)
    assert [row["value"] for row in rows(root)] == [{"id": 7}, {"id": 7}, None, {"id": 8}]
    assert [row["body"] for row in rows(root)][2] == b"no JSON"
    other = schema.replace("integer", "string")
    with pytest.raises(PipelineError, match="leave --decode out, or archive into another"):
        jobs.archive(root, path=log.root, decode="json", schema=other)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "give one"),
        ({"path": "s", "nameserver": "n:1"}, "give one"),
        ({"nameserver": "n:1", "broker_name": "a"}, r"--broker-name \(broker_name\) .*add --path"),
        ({"nameserver": "n:1", "split_size_bytes": 9999}, "--split-size .*add --path"),
        ({"nameserver": "n:1", "corrupt": "skip"}, "--corrupt .*add --path"),
        ({"path": "s", "decode": "json"}, "give it with --schema FILE"),
        ({"path": "s", "schema": "{}"}, "add --decode json"),
        ({"path": "s", "topics": ["a"], "pattern": "b"}, "leave one out"),
        ({"path": "s", "pattern": "("}, "is no regular expression"),
        ({"path": "s", "topics": ["no such/name"]}, "there can be no topic"),
    ],
)
def test_arguments_that_make_no_sense(arguments: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match=says):
        jobs.archive(tmp_path / "archive", **arguments)
    assert not (tmp_path / "archive").exists()


def test_a_path_without_a_store_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="there is no directory"):
        jobs.archive(tmp_path / "archive", path=tmp_path / "nothing")
    assert not (tmp_path / "archive").exists()


def test_the_result_as_json(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "store").add(3)
    document = as_document(jobs.archive(tmp_path / "archive", path=log.root))

    assert document["rows"] == 3
    assert document["topics"][0] == {"topic": "topic-0", "messages": 1}
    assert document["deletableSegments"] == []
    json.dumps(document)
