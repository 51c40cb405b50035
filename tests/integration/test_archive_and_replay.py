"""Topics go into an archive over the network and back again, each message once."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline import jobs
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.progress import JobProgress
from rockhopper.pipeline.jobs.replaying import job as replaying
from rockhopper.pipeline.jobs.replaying.work import ReplayWork
from rockhopper.pipeline.jobs.tasks import run_in_this_process
from rockhopper.pipeline.sink import publishing
from rockhopper.protocol.codes import RequestCode
from tests.support.pipeline_broker import PipelineBroker
from tests.support.remade_topics import remake, without_ids


@pytest.fixture(scope="module")
def broker() -> Iterator[PipelineBroker]:
    with PipelineBroker() as started:
        started.create("orders", 2)
        started.create("others", 1)
        for queue_id in range(2):
            queue = MessageQueue("orders", started.broker.config.broker_name, queue_id)
            started.send("orders", [f"o{queue_id}-{n:03}" for n in range(60)], queue, tags="red")
        started.send("others", [f"x{n}" for n in range(10)])
        yield started


@pytest.fixture(scope="module")
def archived(broker: PipelineBroker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("archived") / "history"
    jobs.archive(root, nameserver=broker.nameserver, topics=["orders", "others"])
    return root


def replay(archived: Path, served: PipelineBroker, state: Path, **arguments: Any) -> Any:
    return jobs.replay(archived, nameserver=served.nameserver, state=state, **arguments)


def test_archiving_goes_on_where_it_ended(broker: PipelineBroker, tmp_path: Path) -> None:
    broker.create("growing", 2)
    broker.send("growing", ["a", "b", "c"])
    arguments: dict[str, Any] = {"nameserver": broker.nameserver, "pattern": "grow.*"}

    first = jobs.archive(tmp_path / "a", **arguments)
    broker.send("growing", ["d", "e"])
    foretold = jobs.archive(tmp_path / "a", dry_run=True, **arguments)
    second = jobs.archive(tmp_path / "a", **arguments)
    third = jobs.archive(tmp_path / "a", **arguments)

    assert [each.rows for each in (first, foretold, second, third)] == [3, 2, 2, 0]
    table = pq.read_table(sorted((tmp_path / "a").rglob("part*.parquet"))[0], partitioning=None)
    assert table["brokerName"].unique().to_pylist() == [broker.broker.config.broker_name]


@pytest.mark.parametrize("has_ids", [True, False])
@pytest.mark.parametrize("bodies", [["c"], ["c", "d", "e", "f"]])
def test_a_topic_that_was_made_anew_is_not_mixed_in(
    broker: PipelineBroker,
    tmp_path: Path,
    bodies: list[str],
    has_ids: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not has_ids:
        without_ids(monkeypatch)
    name = f"short-{len(bodies)}-{has_ids}"
    broker.create(name, 1)
    broker.send(name, ["a", "b"], 0)
    arguments: dict[str, Any] = {"nameserver": broker.nameserver, "topics": [name]}
    assert jobs.archive(tmp_path / "a", **arguments).rows == 2
    assert jobs.archive(tmp_path / "a", **arguments).rows == 0
    remake(broker, name, bodies, queues=1)

    for allow_gaps in (False, True):
        with pytest.raises(PipelineError, match=r"recreated.* archive it into another directory"):
            jobs.archive(tmp_path / "a", allow_gaps=allow_gaps, **arguments)
    assert jobs.archive(tmp_path / "b", **arguments).rows == len(bodies)


def test_a_topic_that_is_gone_on_one_of_two_brokers_is_named(
    broker: PipelineBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(JobProgress, "say", lambda _, text: said.append(text))
    arguments: dict[str, Any] = {"nameserver": broker.nameserver, "topics": ["split"]}
    with broker.beside() as other:
        broker.create("split", 1)
        for at in ("broker-a", "broker-b"):
            broker.send("split", [at], MessageQueue("split", at, 0))
        assert jobs.archive(tmp_path / "a", **arguments).rows == 2
        address = other.broker.address
        delete = RequestCode.DELETE_TOPIC_IN_BROKER
        broker.run(broker.admin.request(address, delete, {"topic": "split"}))
        broker.send("split", ["more"], MessageQueue("split", "broker-a", 0))
        assert jobs.archive(tmp_path / "a", **arguments).rows == 1
    assert any("'split' was deleted on broker-b" in line for line in said)


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_replay_into_a_topic_that_was_made_anew_is_not_finished(
    broker: PipelineBroker,
    archived: Path,
    tmp_path: Path,
    delivery: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replaying, "batch_rows_for", lambda *_: 50)
    target = f"again-{delivery}"
    broker.create(target, 2)
    arguments: dict[str, Any] = {"to": {"orders": target}, "delivery": delivery}
    with monkeypatch.context() as patched:
        patched.setattr(replaying, "_keep_to_rate", lambda *_: remake(broker, target, ["x"]))
        with pytest.raises(PipelineError, match=rf"'{target}' on broker-a was deleted since t"):
            replay(archived, broker, tmp_path, **arguments)
    with pytest.raises(PipelineError, match=r"recreated, so what was replayed .* another --id"):
        replay(archived, broker, tmp_path, **arguments)
    assert broker.bodies(target) == ["x"]
    assert replay(archived, broker, tmp_path, job_id=f"new-{delivery}", **arguments).sent == 120


def test_replayed_messages_are_those_that_were_archived(
    broker: PipelineBroker, archived: Path, tmp_path: Path
) -> None:
    broker.create("copy", 2)

    result = replay(archived, broker, tmp_path, to={"orders": "copy"})

    assert (result.rows, result.sent, result.delivery) == (120, 120, "exactly-once")
    originals, copies = broker.stored("orders"), broker.stored("copy")
    assert [each.body for each in copies] == [each.body for each in originals]
    assert [each.queue_id for each in copies] == [each.queue_id for each in originals]
    for copy, original in zip(copies, originals, strict=True):
        assert copy.properties["RH_ORIGIN_QUEUE_OFFSET"] == str(original.queue_offset)
        assert copy.properties["RH_ORIGIN_STORE_TIME"] == str(original.store_time_ms)
        assert copy.properties["TAGS"] == "red"
        assert copy.born_time_ms == original.born_time_ms


def test_a_replay_that_is_killed_in_any_batch_goes_on_there(
    broker: PipelineBroker, archived: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    broker.create("resumed", 2)
    steps = 0
    dies_at = 0

    def mortal(action: Any) -> Any:
        def take(*args: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps == dies_at:
                raise Killed
            result = action(*args)
            if steps == -dies_at:
                raise Killed
            return result

        return take

    monkeypatch.setattr(replaying, "publish", mortal(publishing.publish))
    monkeypatch.setattr(ReplayWork, "__call__", mortal(ReplayWork.__call__))
    monkeypatch.setattr(replaying, "batch_rows_for", lambda *_: 25)
    sent = 0
    for dies_at in (1, 2, -1, -2, 4, -2, 1000):
        steps = 0
        try:
            sent = replay(archived, broker, tmp_path, to={"orders": "resumed"}).sent
        except Killed:
            assert dies_at != 1000

    assert sent == 45  # the last two of five batches
    assert broker.bodies("resumed") == broker.bodies("orders")
    again = replay(archived, broker, tmp_path, to={"orders": "resumed"})
    assert again.sent == 0
    assert "were replayed before" in "\n".join(again.lines())
    assert len(broker.stored("resumed")) == 120


def test_at_least_once_goes_on_behind_the_last_batch(
    broker: PipelineBroker, archived: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create("at-least", 2)
    monkeypatch.setattr(replaying, "batch_rows_for", lambda *_: 50)
    arguments: dict[str, Any] = {"to": {"orders": "at-least"}, "delivery": "at-least-once"}

    result = replay(archived, broker, tmp_path, **arguments)

    assert (result.sent, result.batches, result.broker) == (120, 3, "")
    assert broker.bodies("at-least") == broker.bodies("orders")
    assert "may be there twice" in "\n".join(result.lines())
    assert replay(archived, broker, tmp_path, **arguments).sent == 0


def test_any_parquet_with_a_body_can_be_replayed(broker: PipelineBroker, tmp_path: Path) -> None:
    broker.create("loaded", 3)
    table = pa.table({"body": ["a", "b"], "keys": ["k1", None], "queueId": [2, 2]})
    pq.write_table(table, tmp_path / "some.parquet")

    replay(tmp_path / "some.parquet", broker, tmp_path, to="loaded")

    assert [(m.body, m.queue_id, m.keys) for m in broker.stored("loaded")] == [
        (b"a", 2, ["k1"]),
        (b"b", 2, []),
    ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"to": "nowhere"}, "there is no topic 'nowhere'.*rockhopper topic create"),
        ({"broker": "broker-x"}, "there is no broker 'broker-x'"),
    ],
)
def test_what_is_not_there_to_replay_into(
    arguments: dict[str, Any], says: str, broker: PipelineBroker, archived: Path, tmp_path: Path
) -> None:
    with pytest.raises(PipelineError, match=says):
        replay(archived, broker, tmp_path, **arguments)


def test_every_column_that_came_over_the_network_is_that_of_the_log(
    broker: PipelineBroker, tmp_path: Path
) -> None:
    broker.create("columns")
    broker.send("columns", map(str, range(60)), tags="a", keys="k", properties={"region": "eu"})
    jobs.archive(tmp_path / "archive", nameserver=broker.nameserver, topics=["columns"])

    # A copy, whose log counts to its end: the broker's own may not be on disk yet.
    log = tmp_path / "commitlog"
    shutil.copytree(broker.broker.config.store.root / "commitlog", log)
    result = jobs.audit(str(log), archive=str(tmp_path / "archive"), run=run_in_this_process)

    assert (result.counts, result.unchecked) == ({}, {})
    assert result.archived_and_in_log_count == 60
