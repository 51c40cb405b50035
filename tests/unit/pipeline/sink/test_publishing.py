"""Publishing on several brokers; with real ones: tests/integration/spark."""

from concurrent.futures import Future
from typing import Any

import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.sink import publishing
from rockhopper.pipeline.sink.publishing import publish
from rockhopper.pipeline.sink.rules import read_rules
from rockhopper.pipeline.sink.staging import TaskPart
from rockhopper.protocol.bodies.sinks import (
    SinkPart,
    SinkShares,
    decode_sink_shares,
    encode_sink_body,
)
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.command import Command

RULES = read_rules(
    {
        "nameServer": "127.0.0.1:1",
        "topic": "T",
        "delivery": "exactly-once",
        "sinkId": "s",
        "retries": "0",
    },
    streaming=False,
)


def test_nothing_was_written() -> None:
    assert not publish(RULES, [])


def test_a_part_counts_what_all_brokers_have_of_it() -> None:
    assert TaskPart("s", 0, "0.1", 0, {"a": 3, "b": 4}).message_count == 7


def test_without_a_name_service_nothing_is_published() -> None:
    with pytest.raises(PipelineError, match="found no broker to publish on, after 1 tries"):
        publish(RULES, [TaskPart("s", 0, "0.1", 0, {"broker-a": 1})])


class Brokers:
    """Two brokers; ``a`` is the sink's home. They note what they are asked, in order."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.decided: tuple[int, SinkShares] = (-1, {})
        self.content = ""
        self.has_published = False

    def begin_request(
        self, broker: str, code: RequestCode, fields: Any, body: bytes, *, timeout_s: float
    ) -> "Future[Command]":
        self.asked.append((code.name.removeprefix("SINK_"), broker))
        answer = Command(0, opaque=1, ext={"repeated": "true"} if self.has_published else {})
        if code is RequestCode.SINK_DECIDE:
            if body and self.decided[0] < 0:
                self.decided = int(fields["batchId"]), decode_sink_shares(body)
                self.content = fields["content"]
            batch_id, shares = self.decided
            answer.ext = {"batchId": str(batch_id), "content": self.content}
            answer.body = encode_sink_body(shares)
        found: Future[Command] = Future()
        found.set_result(answer)
        return found


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    brokers = Brokers()
    monkeypatch.setattr(publishing, "connect", lambda *_, **__: brokers)
    monkeypatch.setattr(publishing, "choose_broker", lambda *_, **__: "a")
    monkeypatch.setattr(publishing, "sink_state", lambda *_: None)
    for name in ("keep_home", "check_same_topics", "check_gap", "tell_home"):
        monkeypatch.setattr(publishing, name, lambda *_, **__: None)
    monkeypatch.setattr(
        publishing, "abort", lambda _rules, _parts: brokers.asked.append(("ABORT", "all"))
    )
    return brokers


def part(batch_id: int = 4, **counts: int) -> TaskPart:
    return TaskPart("s", batch_id, "0.1", 0, counts)


def test_a_batch_on_one_broker_is_published_in_one_step(brokers: Brokers) -> None:
    assert publish(RULES, [part(a=3)])
    assert brokers.asked == [("DECIDE", "a"), ("PUBLISH", "a")]
    brokers.has_published = True
    assert not publish(RULES, [part(a=3)])


def test_all_brokers_prepare_before_the_home_decides_and_publishes_last(brokers: Brokers) -> None:
    assert publish(RULES, [part(a=3, b=4)])
    assert brokers.asked == [
        ("DECIDE", "a"),
        ("PREPARE", "a"),
        ("PREPARE", "b"),
        ("DECIDE", "a"),
        ("PUBLISH", "b"),
        ("PUBLISH", "a"),
    ]


def test_what_an_earlier_try_decided_counts_and_this_one_is_forgotten(brokers: Brokers) -> None:
    earlier: SinkShares = {"a": [SinkPart("0.0", 3)], "b": [SinkPart("0.0", 4)]}
    brokers.decided = 4, earlier
    assert not publish(RULES, [part(a=3, b=4)])
    assert brokers.asked == [("DECIDE", "a"), ("PUBLISH", "b"), ("PUBLISH", "a"), ("ABORT", "all")]


def test_a_batch_with_other_rows_than_before_is_not_written(brokers: Brokers) -> None:
    brokers.decided, brokers.content = (4, {"a": [SinkPart("0.0", 9)]}), "9:0"
    with pytest.raises(PipelineError, match="was published with 9 messages, and now has 3 others"):
        publish(RULES, [part(a=3)])
    assert brokers.asked == [("DECIDE", "a")]


def test_a_later_batch_of_another_checkpoint_is_refused(brokers: Brokers) -> None:
    brokers.decided = 5, {"a": [SinkPart("0.0", 9)]}
    with pytest.raises(PipelineError, match=r"batch 5 .* this is batch 4: .* another checkpoint"):
        publish(RULES, [part(a=3)])


def test_a_broker_that_published_what_the_home_never_decided_is_named(brokers: Brokers) -> None:
    brokers.has_published = True
    with pytest.raises(PipelineError, match=r"a has published batch 4 .* put back from a backup"):
        publish(RULES, [part(a=3, b=4)])
