"""What a run is going to do: where it begins, what it refuses, and whether that is much."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline import jobs
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.catalog import Catalog
from rockhopper.pipeline.jobs.archiving.files import LocalFiles
from rockhopper.pipeline.jobs.archiving.manifest import ArchivedFile, LogPosition, Manifest, Reached
from rockhopper.pipeline.jobs.archiving.options import ArchiveOptions
from rockhopper.pipeline.jobs.archiving.planning import ArchivePlan, plan_run, spell_options
from rockhopper.pipeline.network.planning import Range
from rockhopper.protocol.store.store_paths import CONSUME_QUEUE_DIRECTORY
from tests.support.told_brokers import ToldBrokers, queues_of, told
from tests.support.written_logs import WrittenLog


def files(root: Path) -> list[ArchivedFile]:
    return Catalog(LocalFiles(root)).archived_files()


def archived(
    logs: dict[str, LogPosition] | None = None, queues: Any = None, **more: Any
) -> Manifest:
    given: dict[str, Any] = {"log_positions": logs or {}, "reached": Reached(queues or {}), **more}
    return Manifest(1, 0, {}, (), None, **given)


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


def plan_of(log: WrittenLog, current: Manifest | None = None, **asked: Any) -> ArchivePlan:
    return plan_run(ArchiveOptions("a", path=log.root, **asked), current)


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    return WrittenLog(tmp_path / "store").add(10)


def test_a_run_begins_where_the_log_is_archived_up_to(log: WrittenLog) -> None:
    head = log.file_of(0).read_bytes()[:88].hex()
    position = LogPosition({"*": log.offsets[4], "topic-1": log.offsets[7]}, 0, head)

    plan = plan_of(log, archived({"": position}))

    assert (plan.start, plan.archived) == (log.offsets[4], position.offsets)
    assert plan.source == {
        "kind": "store",
        "path": str(log.root),
        "broker": "",
        "keys": ["*"],
        "start": log.offsets[4],
    }
    assert plan.pieces[0][0].start == log.offsets[4]
    assert plan_of(log, archived({"": position}), topics=["topic-1"]).start == log.offsets[7]
    assert plan_of(log, archived({"": position}), broker_name="other").start == 0
    assert plan_of(log).start == 0


def test_damage_and_gaps_are_what_the_options_say(log: WrittenLog) -> None:
    rules = [
        plan_of(log, **asked).rules for asked in ({}, {"corrupt": "skip"}, {"allow_gaps": True})
    ]

    assert [each.corrupt_records for each in rules] == ["fail", "skip", "fail"]
    assert [each.fail_on_data_loss for each in rules] == [True, True, False]
    assert [each.start_offset for each in rules] == [None] * 3


def test_a_small_log_is_done_right_here(log: WrittenLog) -> None:
    plan = plan_of(log)
    assert (plan.is_small, plan.waiting, plan.shares) == (True, {}, [])


@pytest.mark.parametrize(("count", "is_small"), [(20_000, True), (20_001, False)])
def test_few_messages_are_done_right_here(count: int, is_small: bool) -> None:
    queues = [MessageQueue("b", "x", 0), MessageQueue("a", "x", 0), MessageQueue("a", "x", 1)]
    ranges = [Range(queues[0], 5, 5), Range(queues[1], 0, count - 1), Range(queues[2], 7, 8)]
    plan = ArchivePlan({}, ranges=ranges)

    assert plan.waiting == {"a": count}
    assert plan.is_small == is_small
    assert sum(each.count for share in plan.shares for each in share) == count


@pytest.mark.parametrize(
    ("given", "over_network", "is_refused"),
    [
        ("", ["broker-a"], True),
        ("broker-a", ["broker-a", "broker-b"], True),
        ("broker-c", ["broker-a"], False),
        ("", [], False),
    ],
)
def test_what_was_read_over_the_network_is_not_read_from_files(
    given: str, over_network: list[str], is_refused: bool, log: WrittenLog
) -> None:
    current = archived(queues={"T": {name: {"0": 5} for name in over_network}})
    if not is_refused:
        assert plan_of(log, current, broker_name=given).store is not None
        return
    with pytest.raises(PipelineError, match=r"messages of broker-a .*over the network, .*twice"):
        plan_of(log, current, broker_name=given)


def over_network(current: Manifest | None = None, **asked: Any) -> ArchivePlan:
    return plan_run(ArchiveOptions("a", nameserver="h:1", **asked), current)


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> ToldBrokers:
    """Four messages of ``T`` on broker-a, whose name server knew broker-b."""
    found = ToldBrokers(queues_of("T", "broker-a", 2, high=2), departed=["broker-b"])
    return told(monkeypatch, found, "network.discovery", "jobs.archiving.planning")


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["broker-a", ""], "messages of broker-a that were read from files, .*twice"),
        ([""], "messages of a store without a name that were read from files"),
    ],
)
def test_what_was_read_from_files_is_not_read_over_the_network(
    names: list[str], says: str, brokers: ToldBrokers
) -> None:
    with pytest.raises(PipelineError, match=says):
        over_network(archived({name: LogPosition({}) for name in names}))
    plan = over_network(archived({"broker-c": LogPosition({})}))
    assert (plan.waiting, plan.store, plan.is_small) == ({"T": 4}, None, True)


def test_brokers_that_may_have_more_are_noted(brokers: ToldBrokers) -> None:
    known = archived(queues={"T": {"broker-a": {}, "broker-c": {}}, "other": {"broker-d": {}}})

    assert over_network(topics=["T"]).away == ["broker-b"]
    assert over_network(known, topics=["T"]).away == ["broker-b", "broker-c"]
    plan = over_network(known, topics=["T"], without=["broker-b"])
    assert plan.away == ["broker-c"]
    assert plan.source == {
        "kind": "network",
        "nameserver": "h:1",
        "keys": ["T"],
        "away": ["broker-c"],
    }


def test_a_broker_that_went_before_its_queues_were_asked_for_is_noted(
    brokers: ToldBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([[], ["broker-a"]])
    remote = SimpleNamespace(away=lambda _: next(answers))
    monkeypatch.setattr("rockhopper.pipeline.jobs.archiving.planning.connect", lambda _: remote)
    assert over_network(topics=["T"]).away == ["broker-a"]


def test_refusals_speak_of_our_options() -> None:
    said = (
        "set corruptRecords=skip, or with corruptRecords=column to see each such place as a row, "
        "or failOnDataLoss=false"
    )

    def refuse() -> None:
        raise PipelineError(said)

    with pytest.raises(PipelineError, match=r"^set --corrupt skip, or --allow-gaps$"):
        spell_options(refuse)
    assert spell_options(lambda: 7) == 7
