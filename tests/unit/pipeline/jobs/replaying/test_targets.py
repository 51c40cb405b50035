"""Where a replay sends to: on which broker, into which queues, and whether it goes on there."""

from types import SimpleNamespace
from typing import Any

import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.replaying.plan import PlannedFile, ReplayPlan, ReplayRequest
from rockhopper.pipeline.jobs.replaying.targets import (
    check_targets,
    choose_target,
    last_batch,
    queue_counts,
    sink_rules,
    target_ids,
)
from rockhopper.pipeline.sink.choice import SinkState
from tests.support.told_brokers import ToldBrokers, queues_of, told


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> ToldBrokers:
    """Rockhopper's broker-a and Apache's broker-b; both have the topic ``both``."""
    held = queues_of("both", "broker-a", 4) | queues_of("both", "broker-b", 2)
    held |= queues_of("ours", "broker-a", 3)
    found = ToldBrokers(held, sinks={"broker-a": SinkState(), "broker-b": None})
    return told(monkeypatch, found, "jobs.replaying.targets", "sink.choice")


def plan(broker: str = "broker-a", **ids: Any) -> ReplayPlan:
    files = (PlannedFile("f", "t", 10),)
    return ReplayPlan("id7", ReplayRequest("archive"), files, 5, broker, {"both": 4}, ids)


def choose(delivery: str, broker: str = "", topics: tuple[str, ...] = ()) -> str:
    return choose_target("h:1", "id7", delivery, broker, topics)


def test_whoever_asks_for_less_gets_it(brokers: ToldBrokers) -> None:
    assert choose("at-least-once") == ""


def test_auto_takes_a_broker_that_publishes_and_sends_where_there_is_none(
    brokers: ToldBrokers,
) -> None:
    assert choose("auto") == "broker-a"
    brokers.sinks["broker-a"] = None
    assert choose("auto") == ""
    with pytest.raises(PipelineError, match="needs Rockhopper"):
        choose("exactly-once")
    with pytest.raises(PipelineError, match="needs Rockhopper"):
        choose("auto", broker="broker-b")


def test_where_there_is_no_broker_that_is_said(
    brokers: ToldBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr("rockhopper.pipeline.retrying.time", SimpleNamespace(sleep=waited.append))
    brokers.held, brokers.sinks = {}, {}
    with pytest.raises(PipelineError, match=r"found no broker .*h:1 knows no broker: start one"):
        choose("auto")
    assert len(waited) == 3


def test_the_topics_say_which_broker_it_is(brokers: ToldBrokers) -> None:
    assert choose("exactly-once", topics=("ours",)) == "broker-a"
    with pytest.raises(PipelineError, match="'both' is on the brokers broker-a, broker-b"):
        choose("exactly-once", topics=("both",))
    assert choose("exactly-once", "broker-a", ("both",)) == "broker-a"


def test_messages_are_written_as_the_plan_says() -> None:
    exactly, least = sink_rules("h:1", plan()), sink_rules("h:1", plan(broker=""))

    assert (exactly.is_exactly_once, exactly.sink_id, exactly.broker) == (
        True,
        "replay-id7",
        "broker-a",
    )
    assert (least.is_exactly_once, least.nameserver) == (False, "h:1")


def test_the_broker_says_how_far_it_is(brokers: ToldBrokers) -> None:
    assert last_batch("h:1", plan()) == -1
    brokers.sinks["broker-a"] = SinkState(3, plan().owner)
    assert last_batch("h:1", plan()) == 3
    brokers.sinks["broker-a"] = SinkState(3, "")  # one that does not remember whose they are
    assert last_batch("h:1", plan()) == 3


def test_another_replay_of_the_same_id_is_not_gone_on_with(brokers: ToldBrokers) -> None:
    brokers.sinks["broker-a"] = SinkState(3, "the replay of somebody else")
    with pytest.raises(PipelineError, match="has batches of another replay with the id 'id7'"):
        last_batch("h:1", plan())


def test_a_broker_that_cannot_publish_any_more(brokers: ToldBrokers) -> None:
    with pytest.raises(PipelineError, match="'broker-b', on which this replay was begun, cannot"):
        last_batch("h:1", plan("broker-b"))


def test_queues_are_counted_where_they_are_written_to(brokers: ToldBrokers) -> None:
    assert queue_counts("h:1", ["both", "ours"], "") == {"both": 4, "ours": 3}
    assert queue_counts("h:1", ["both"], "broker-b") == {"both": 2}
    assert queue_counts("h:1", [], "") == {}


@pytest.mark.parametrize(
    ("topic", "broker", "says"),
    [
        ("nowhere", "", r"^there is no topic 'nowhere' to replay into: create it \(rockhopper"),
        ("nowhere", "broker-b", "^there is no topic 'nowhere' to replay into"),
        ("ours", "broker-b", "^there is no topic 'ours' on the broker 'broker-b' to replay into"),
    ],
)
def test_a_topic_that_is_not_there(
    topic: str, broker: str, says: str, brokers: ToldBrokers
) -> None:
    with pytest.raises(PipelineError, match=says):
        queue_counts("h:1", ["both", topic], broker)


def test_what_tells_the_topics_from_others_of_their_names(brokers: ToldBrokers) -> None:
    brokers.ids = {("both", "broker-a"): "A1", ("ours", "broker-a"): "A2"}

    assert target_ids("h:1", ["both", "ours", "nowhere"], "") == {
        "both": {"broker-a": "A1"},
        "ours": {"broker-a": "A2"},
    }
    assert target_ids("h:1", ["both"], "broker-b") == {}


@pytest.mark.parametrize(
    ("now", "says"),
    [
        ("A1", ""),
        ("", ""),
        ("A9", "was deleted since this replay was begun and recreated, so what"),
        (None, "was deleted since this replay was begun, so what"),
    ],
)
def test_a_topic_that_is_another_by_now(now: str | None, says: str, brokers: ToldBrokers) -> None:
    brokers.ids = {("both", "broker-a"): now}
    begun = plan(both={"broker-a": "A1"})
    if not says:
        check_targets("h:1", begun)
        return
    with pytest.raises(PipelineError, match=f"the topic 'both' on broker-a {says}.*another --id"):
        check_targets("h:1", begun)
