"""The job ``archive``: what it refuses, decodes, writes down and hands back."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rockhopper.pipeline import jobs
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving import from_files, from_network, job
from rockhopper.pipeline.jobs.archiving.catalog import Catalog
from rockhopper.pipeline.jobs.archiving.files import LocalFiles
from rockhopper.pipeline.jobs.archiving.manifest import merge_summaries
from rockhopper.pipeline.jobs.archiving.writing import FILE_COLUMNS, WrittenSplit
from rockhopper.pipeline.jobs.progress import JobProgress
from rockhopper.pipeline.jobs.results import UsageProblem, as_document
from rockhopper.pipeline.network.planning import Range
from tests.support.told_brokers import ToldBrokers, queues_of, told
from tests.support.written_logs import T0_MS, WrittenLog


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    return WrittenLog(tmp_path / "store").add(40)


def rows(root: Path) -> list[dict[str, Any]]:
    """Every archived message, in the order of the log."""
    found: list[dict[str, Any]] = []
    for each in Catalog(LocalFiles(root)).archived_files():
        found += pq.ParquetFile(root / each.path).read().to_pylist()
    return sorted(found, key=lambda row: row["physOffset"])


def test_the_manifest_adds_up(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "store").add(100)
    jobs.archive(tmp_path / "archive", path=log.root)

    (manifest,) = Catalog(LocalFiles(tmp_path / "archive")).manifests()

    assert manifest.rows == 100 == sum(each.rows for each in manifest.queues)
    assert manifest.queues == merge_summaries(
        [queue for each in manifest.files for queue in each.queues]
    )
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


def test_bodies_with_the_id_of_their_schema(tmp_path: Path) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
    schemas, root = tmp_path / "schemas", tmp_path / "archive"
    schemas.mkdir()
    (schemas / "7.avsc").write_text(json.dumps(schema))
    log = WrittenLog(tmp_path / "store").add(1, topic="t", body=b"\0\0\0\0\x07\x0e")
    given: dict[str, Any] = {"decode": "confluent-avro", "registry": str(schemas)}
    jobs.archive(root, path=log.root, **given)

    log.add(1, topic="t", body=b"\0\0\0\0\x08\x10")
    with pytest.raises(PipelineError, match="say again where the registry"):
        jobs.archive(root, path=log.root)
    fields = [*schema["fields"], {"name": "more", "type": "string", "default": ""}]
    (schemas / "8.avsc").write_text(json.dumps(schema | {"fields": fields}))
    log.add(1, topic="t", body=b"\0\0\0\0\x07\x12")
    result = jobs.archive(root, path=log.root, **given)  # by the schema that it began with

    assert result.undecoded == 1  # of the field that a record of version 8 has to have
    assert [row["value"] for row in rows(root)] == [{"id": 7}, None, {"id": 9}]
    assert str(schemas) not in "".join(each.read_text() for each in root.rglob("*.json"))


def test_a_body_that_does_not_decode_ends_the_run_if_it_is_to(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "store").add(2, topic="t", body=b'{"id": 7}')
    root = tmp_path / "archive"
    schema = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}})
    strict: dict[str, Any] = {"path": log.root, "bad_values": "fail"}
    with pytest.raises(UsageProblem, match=r"--bad-values .* add --decode"):
        jobs.archive(root, **strict)

    assert jobs.archive(root, **strict, decode="json", schema=schema).rows == 2
    log.add(1, topic="t", body=b"no JSON")
    with pytest.raises(PipelineError, match=r"at offset \d of queue \d of 't' does not decode as"):
        jobs.archive(root, **strict)
    assert len(rows(root)) == 2
    assert jobs.archive(root, path=log.root).undecoded == 1


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
        ({"path": "s", "pattern": "("}, "is not a valid regular expression"),
        ({"path": "s", "topics": ["no such/name"]}, "invalid topic"),
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


def test_a_dry_run_writes_nothing_and_waits_for_nobody(log: WrittenLog, tmp_path: Path) -> None:
    root = tmp_path / "archive"

    result = job.archive(root, path=log.root, dry_run=True)

    assert not root.exists()
    assert result.dry_run
    assert result.log_bytes > 0
    assert "run 1 would read" in "\n".join(result.lines())


class World:
    """Brokers whose messages nobody reads: what a run plans, commits and hands back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self.brokers = told(
            monkeypatch,
            ToldBrokers(queues_of("T", "broker-a", 2, high=3)),
            *("network.discovery", "jobs.archiving.planning"),
        )
        self.tasks: list[tuple[Range, ...]] = []
        monkeypatch.setattr(from_network.NetworkWork, "__call__", self._note)
        self.root = root

    def _note(self, task: tuple[int, tuple[Range, ...]]) -> WrittenSplit:
        assert task[0] == 0
        self.tasks.append(task[1])
        return WrittenSplit()

    def archive(self, **asked: Any) -> Any:
        return jobs.archive(self.root, nameserver="h:1", **asked)

    @property
    def runs(self) -> list[int]:
        return [each.run for each in Catalog(LocalFiles(self.root)).manifests()]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    return World(monkeypatch, tmp_path / "archive")


def test_a_run_over_the_network_goes_on_where_it_ended(world: World) -> None:
    foretold = world.archive(dry_run=True)
    assert not world.root.exists()
    world.archive()
    again = world.archive()
    world.brokers.held = queues_of("T", "broker-a", 2, high=5)
    world.archive()

    assert (foretold.rows, foretold.run, foretold.tasks) == (6, 1, 1)
    assert [(each.topic, each.messages) for each in foretold.topics] == [("T", 6)]
    assert (again.run, again.tasks, again.rows) == (2, 0, 0)
    reads = [[(each.begin, each.end) for each in ranges] for ranges in world.tasks]
    assert reads == [[(0, 3), (0, 3)], [(3, 5), (3, 5)]]
    # A run that found nothing new is no run.
    assert world.runs == [1, 2]


def test_who_is_away_is_news_too(world: World) -> None:
    world.archive()
    world.brokers.departed = ["broker-b"]

    results = [world.archive(), world.archive(), world.archive(without=["broker-b"])]

    assert [each.away for each in results] == [["broker-b"], ["broker-b"], []]
    assert world.runs == [1, 2, 3]


def test_a_run_that_had_been_killed_is_said_to_be_finished(
    log: WrittenLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(JobProgress, "say", lambda _, text: said.append(text))
    root = tmp_path / "archive"
    with monkeypatch.context() as patched:
        patched.setattr(LocalFiles, "move", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            jobs.archive(root, path=log.root)

    foretold = jobs.archive(root, path=log.root, dry_run=True)
    result = jobs.archive(root, path=log.root)

    assert (foretold.unfinished_run, result.unfinished_run, result.rows) == (1, 1, 0)
    assert said == ["finished run 1, which had been killed"]
    assert len(rows(root)) == 40


def test_a_session_or_a_master_does_the_tasks(
    log: WrittenLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def run(session: Any, tasks: list[Any], work: Any, **_more: Any) -> list[Any]:
        asked.append((session, len(tasks)))
        return [work(task) for task in tasks]

    monkeypatch.setattr(job, "job_session", lambda name, spark, master: (name, spark, master))
    monkeypatch.setattr(job, "run_tasks", run)

    assert jobs.archive(tmp_path / "a", path=log.root, master="local[1]").rows == 40
    assert jobs.archive(tmp_path / "b", path=log.root).rows == 40
    assert asked == [(("archive", None, "local[1]"), 1)]


def test_what_is_behind_a_hole_in_a_live_log_is_left_to_a_later_run(
    log: WrittenLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.add(2000)  # over several files of the log, and so over several pieces
    follows = from_files.follows

    def with_hole(start: int, end: int, piece: Any) -> bool:
        return follows(start, end, piece) and not (end > 0 and start >= 65_536)

    with monkeypatch.context() as patched:
        patched.setattr(from_files, "follows", with_hole)
        first = jobs.archive(tmp_path / "a", path=log.root, split_size_bytes=65_536)
    second = jobs.archive(tmp_path / "a", path=log.root)

    assert 0 < first.rows < 2040
    assert first.rows + second.rows == 2040
    assert [row["physOffset"] for row in rows(tmp_path / "a")] == log.offsets


def test_a_store_without_a_name_is_remembered_by_its_last_record(
    log: WrittenLog, tmp_path: Path
) -> None:
    root = tmp_path / "archive"
    jobs.archive(root, path=log.root)
    jobs.archive(root, path=log.root, topics=["%DLQ%g"])

    current = Catalog(LocalFiles(root)).current()

    assert current is not None
    assert current.log_positions[""].last_offset == log.offsets[-1]
    assert current.log_positions[""].offsets == {"*": log.end, "%DLQ%g": log.end}


def test_an_archive_that_has_lost_what_it_says_of_itself_is_not_added_to(
    log: WrittenLog, tmp_path: Path
) -> None:
    root = tmp_path / "archive"
    for _ in range(3):
        log.add(10)
        jobs.archive(root, path=log.root)
    own = root / "_rockhopper"
    before = {path: path.read_bytes() for path in own.glob("*.json")}
    log.add(10)

    (own / "current.json").unlink()
    with pytest.raises(PipelineError, match=r"current.json is missing, and manifest-00000003"):
        jobs.archive(root, path=log.root)
    with pytest.raises(PipelineError, match=r"current.json is missing"):
        jobs.search(archive=str(root), key="k")
    (own / "current.json").write_bytes(before[own / "current.json"])

    (own / "manifest-00000001.json").unlink()
    with pytest.raises(PipelineError, match=r"manifest-00000001.json is missing"):
        jobs.archive(root, path=log.root)
    (own / "manifest-00000001.json").write_bytes(before[own / "manifest-00000001.json"])
    assert {path: path.read_bytes() for path in own.glob("*.json")} == before
    assert jobs.archive(root, path=log.root).rows == 10
