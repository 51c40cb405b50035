"""A replay from end to end, but for what tasks and brokers do: batches, resuming, refusals."""

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rockhopper.pipeline import jobs
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.replaying import job
from rockhopper.pipeline.jobs.replaying.plan import PlannedFile, Slice
from rockhopper.pipeline.jobs.replaying.work import ReplayWork, find_selected_rows
from rockhopper.pipeline.jobs.results import UsageProblem
from rockhopper.pipeline.sink.choice import SinkState
from tests.support.told_brokers import ToldBrokers, queues_of, told
from tests.support.written_logs import WrittenLog

LEAST: dict[str, Any] = {"delivery": "at-least-once"}


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 messages of ``orders``, and 10 of ``others``."""
    root = tmp_path_factory.mktemp("archived")
    log = WrittenLog(root / "store").add(120, topic="orders").add(10, topic="others")
    jobs.archive(root / "history", path=log.root)
    return root / "history"


class World:
    """A broker that publishes what tasks say they have staged, and the job's view of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, archived: Path, state: Path) -> None:
        held = queues_of("orders", "broker-a", 2) | queues_of("copy", "broker-a", 2)
        self.brokers = ToldBrokers(held, sinks={"broker-a": SinkState()})
        told(monkeypatch, self.brokers, "jobs.replaying.targets", "sink.choice")
        monkeypatch.setattr(job, "batch_rows_for", lambda *_: 50)
        monkeypatch.setattr(ReplayWork, "__call__", lambda *given: self._replay(*given))
        monkeypatch.setattr(job, "publish", self._publish)
        self.tasks: list[tuple[ReplayWork, Sequence[Slice]]] = []
        self.published: list[tuple[int, int]] = []
        self.fails: Callable[[], object] = lambda: None
        self._archived, self._state = archived, state

    def _replay(self, work: ReplayWork, task: tuple[int, Sequence[Slice]]) -> Any:
        self.fails()
        _, slices = task
        self.tasks.append((work, slices))
        rows = sum(each.end - each.first for each in slices)
        return (work.batch_id, rows) if work.rules.is_exactly_once else rows

    def _publish(self, _rules: object, parts: list[tuple[int, int]]) -> None:
        self.published += parts
        self.brokers.sinks["broker-a"] = SinkState(parts[0][0], self.tasks[-1][0].owner)

    def replay(self, source: Path | None = None, **asked: Any) -> Any:
        asked = {"to": {"orders": "copy"}, "state": self._state, **asked}
        return jobs.replay(source or self._archived, nameserver="h:1", **asked)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, archived: Path, tmp_path: Path) -> World:
    return World(monkeypatch, archived, tmp_path / "state")


def test_batches_are_published_one_by_one(world: World) -> None:
    result = world.replay()

    assert (result.rows, result.sent, result.batches, result.files) == (120, 120, 3, 1)
    assert (result.delivery, result.broker, result.topics) == ("exactly-once", "broker-a", ["copy"])
    assert world.published == [(0, 50), (1, 50), (2, 20)]
    assert world.replay().sent == 0


def test_a_replay_goes_on_behind_the_last_batch_that_the_broker_has(world: World) -> None:
    world.replay(dry_run=True)
    with pytest.raises(ZeroDivisionError):
        world.replay(rate=1000, sleep=lambda _: 1 / 0, now=lambda: 0.0)

    result = world.replay(rate=1000)

    assert (result.sent, result.resumed_at_batch) == (70, 1)
    assert world.published == [(0, 50), (1, 50), (2, 20)]


def test_a_dry_run_tells_what_is_left_and_writes_nothing(world: World, tmp_path: Path) -> None:
    before = world.replay(dry_run=True, **LEAST)
    assert not (tmp_path / "state").exists()
    with pytest.raises(ZeroDivisionError):
        world.replay(rate=1000, sleep=lambda _: 1 / 0, now=lambda: 0.0, **LEAST)
    midway = world.replay(dry_run=True, **LEAST)
    world.replay(**LEAST)
    after = world.replay(dry_run=True, **LEAST)

    foretold = (before, midway, after)
    assert [each.sent for each in foretold] == [120, 70, 0]
    assert [each.resumed_at_batch for each in foretold] == [0, 1, 0]
    assert [each.batches for each in foretold] == [3, 3, 3]
    assert all(each.dry_run for each in foretold)
    assert [work.batch_id for work, _ in world.tasks] == [0, 1, 2]


def test_a_batch_that_fails_is_sent_again(world: World, tmp_path: Path) -> None:
    world.fails = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        world.replay(job_id="a", **LEAST)
    progress = tmp_path / "state" / "a" / "progress.json"
    assert not progress.exists()

    world.fails = lambda: None
    assert world.replay(job_id="a", **LEAST).sent == 120
    assert json.loads(progress.read_text()) == {"batches": 3}
    assert world.published == []

    progress.write_text("{")
    with pytest.raises(PipelineError, match=r"progress\.json is damaged .*write \{\"batches\": N"):
        world.replay(job_id="a", **LEAST)


def test_another_id_sends_again_and_one_id_is_one_replay(world: World) -> None:
    for name in ("one", "two", "two"):
        world.replay(job_id=name, **LEAST)

    assert sum(each.end - each.first for _, slices in world.tasks for each in slices) == 240
    for other in ({"to": "copy"}, {"key": "k"}, {"start_ms": 1}):
        with pytest.raises(UsageProblem, match="'two' was begun with other files, filters or"):
            world.replay(job_id="two", **LEAST, **other)


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_topic_that_is_made_anew_meanwhile_ends_it(delivery: str, world: World) -> None:
    world.brokers.ids["copy", "broker-a"] = "A1"

    def remake(_seconds: float) -> None:
        world.brokers.ids["copy", "broker-a"] = "A2"

    with pytest.raises(PipelineError, match=r"'copy' on broker-a was deleted since .*recreated"):
        world.replay(delivery=delivery, rate=50, now=lambda: 0.0, sleep=remake)
    # What is staged goes with its topic; what is sent at once is not sent into the other one.
    assert len(world.tasks) == (2 if delivery == "exactly-once" else 1)
    assert len(world.published) == (1 if delivery == "exactly-once" else 0)


def test_a_rate_is_kept(world: World) -> None:
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    world.replay(rate=40, now=lambda: now, sleep=sleep)

    assert now == pytest.approx(3.0)


def test_rows_that_are_chosen_are_written_down(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Rows:
        """The frame of the rows that pass, as Spark would make it."""

        def __init__(self, _session: object, _source: object, files: Any, _request: object) -> None:
            paths = [f"file://{each.path}" for each in files]
            self.table = pa.table({"path": paths * 3, "row": [7, 119, 3]})
            self.write = self

        def parquet(self, place: str) -> None:
            Path(place).mkdir(parents=True)
            pq.write_table(self.table, f"{place}/part.parquet")

    monkeypatch.setattr(job, "choose_rows", Rows)
    monkeypatch.setattr(job, "job_session", lambda *_: None)
    described: list[str] = []

    def describe(_: object, text: str) -> AbstractContextManager[None]:
        described.append(text)
        return nullcontext()

    monkeypatch.setattr(job, "describe_jobs", describe)

    with monkeypatch.context() as patched:
        patched.setattr(job, "queue_counts", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            world.replay(key="k", topics=["orders"])  # its selection is there, and no plan
    result = world.replay(key="k", topics=["orders"])

    assert (result.rows, result.sent) == (3, 3)
    ((work, (only,)),) = world.tasks
    assert find_selected_rows(work.selection, only).tolist() == [3, 7, 119]
    assert described[-1].endswith(": choosing messages")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"rate": 0}, "the rate is 0 messages per second: give more than 0"),
        ({"rate": -0.5}, "is -0.5 messages"),
        ({"job_id": "a b"}, "the id 'a b' cannot be used"),
        ({"job_id": "a" * 121}, "at most 120"),
        ({"job_id": ""}, "the id '' cannot be used"),
        ({"start_ms": 5, "end_ms": 5}, "ends before it starts"),
        ({"to": {"x": "y"}, "topics": ["orders"]}, "'x' is given a new name and is not among"),
        ({"topics": ["order"], "to": "copy"}, r"'order' \(did you mean 'orders'\?\).*orders, oth"),
        ({"to": {"nothing": "copy"}}, "has no messages of the topic 'nothing'"),
        ({"delivery": "twice"}, "delivery is 'twice': choose one of auto"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anybody_is_asked(
    asked: dict[str, Any], says: str, world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("rockhopper.pipeline.jobs.replaying.targets.connect", None)
    with pytest.raises(UsageProblem, match=says):
        world.replay(**asked)
    assert not (tmp_path / "state").exists()


def test_a_replay_that_is_under_way_is_not_joined(world: World) -> None:
    def again() -> None:
        with pytest.raises(PipelineError, match="is at work on"):
            world.replay()
        joined.append(True)

    joined: list[bool] = []
    world.fails = again
    world.replay()
    assert joined == [True] * 3


def test_files_that_do_not_say_topics(world: World, tmp_path: Path) -> None:
    pq.write_table(pa.table({"body": ["a", "b"]}), tmp_path / "f.parquet")

    with pytest.raises(UsageProblem, match="name it with --to TOPIC"):
        world.replay(tmp_path / "f.parquet", to=None)
    with pytest.raises(UsageProblem, match="do not say topics: leave --topic out"):
        world.replay(tmp_path / "f.parquet", to="copy", topics=["orders"])
    assert world.replay(tmp_path / "f.parquet", to="copy").topics == ["copy"]


@pytest.mark.parametrize(
    ("to", "topics"),
    [
        (None, ["copy", "orders"]),
        ("copy", ["copy"]),
        ({"*": "copy", "orders": "orders"}, ["copy", "orders"]),
    ],
)
def test_files_with_a_column_of_topics_say_them_row_by_row(
    to: Any, topics: list[str], world: World, tmp_path: Path
) -> None:
    table = pa.table({"body": ["a", "b", "c"], "topic": ["orders", "copy", None]})
    pq.write_table(table, tmp_path / "f.parquet")

    assert world.replay(tmp_path / "f.parquet", to=to).topics == topics


def test_a_plan_names_files_of_its_source_only(world: World, tmp_path: Path) -> None:
    world.replay(job_id="again")
    plan = tmp_path / "state" / "again" / "plan.json"
    document = json.loads(plan.read_bytes())
    document["files"][0]["path"] = str(Path(document["files"][0]["path"]).parents[2] / "../x")
    plan.write_text(json.dumps(document))

    with pytest.raises(PipelineError, match=r"plan.json names .*, which is not in"):
        world.replay(job_id="again")


def test_a_selection_is_read_although_no_pattern_for_parquet_finds_it(tmp_path: Path) -> None:
    rows = pa.table({"path": ["a", "b", "a"], "row": pa.array([2, 0, 1], pa.int64())})
    pq.write_table(rows, tmp_path / "part-0.snappy.parquet")
    job.hide_rows(tmp_path)

    assert not list(tmp_path.rglob("*.parquet"))
    chosen = PlannedFile("/x/a", "orders", 2, "a")
    assert find_selected_rows(str(tmp_path), Slice(chosen, 0, 2)).tolist() == [1, 2]
