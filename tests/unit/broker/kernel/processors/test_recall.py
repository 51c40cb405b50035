"""RECALL_MESSAGE: success means that the message will not come; all else says why not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.broker.kernel.scheduled.timers.recall_handle import (
    RecallHandle,
    decode_recall_handle,
    encode_recall_handle,
)
from rockhopper.protocol.codes import ResponseCode
from tests.support.timer_rig import START_MS, TimerRig, handle_of


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[TimerRig]:
    made = TimerRig(tmp_path / "store")
    made.start()
    yield made
    made.close()


@pytest.fixture
def handle(rig: TimerRig) -> str:
    return handle_of(rig.send({"TIMER_DELIVER_MS": str(START_MS + 5000), "UNIQ_KEY": "K"}))


def test_a_recalled_message_does_not_come(rig: TimerRig, handle: str) -> None:
    answer = rig.recall(handle)
    assert answer.code == ResponseCode.SUCCESS
    assert (answer.ext or {})["msgId"] == "K"
    rig.wait(10)
    assert rig.bodies() == []


def test_it_is_recalled_once_and_not_after_it_came(rig: TimerRig, handle: str) -> None:
    assert rig.recall(handle).code == ResponseCode.SUCCESS
    again = rig.recall(handle)
    assert again.code == ResponseCode.ILLEGAL_OPERATION
    assert "delivered or recalled before" in str(again.remark)
    late = handle_of(rig.send({"TIMER_DELAY_SEC": "1", "UNIQ_KEY": "L"}))
    rig.wait(2)
    assert rig.recall(late).code == ResponseCode.ILLEGAL_OPERATION
    assert rig.bodies() == [b"hello"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"topic": "others"}, "the handle is for topic others"),
        ({"broker_name": "broker-z"}, "for broker broker-z, and this is broker-a"),
        ({"unique_key": "other"}, "not pending"),
        ({"due_ms": 5}, "not pending"),
    ],
)
def test_another_handle_is_refused(
    rig: TimerRig, handle: str, changes: dict[str, str], reason: str
) -> None:
    other: RecallHandle = decode_recall_handle(handle)._replace(**changes)  # type: ignore[arg-type]
    answer = rig.recall(encode_recall_handle(other))
    assert answer.code == ResponseCode.ILLEGAL_OPERATION
    assert reason in str(answer.remark)


def test_what_is_no_handle_says_why(rig: TimerRig) -> None:
    answer = rig.recall("nonsense")
    assert answer.code == ResponseCode.ILLEGAL_OPERATION
    assert "the handle is invalid: " in str(answer.remark)


def test_a_topic_that_is_not_there_is_named(rig: TimerRig, handle: str) -> None:
    answer = rig.recall(handle, topic="gone")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


def test_an_administrator_may_forbid_it(rig: TimerRig, handle: str) -> None:
    live = rig.broker.config.live
    live.recall_message_enable = False
    assert rig.recall(handle).code == ResponseCode.NO_PERMISSION
    live.recall_message_enable = True
    live.accept_send_from_ms = rig.clock.now_ms + 1
    assert rig.recall(handle).code == ResponseCode.SERVICE_NOT_AVAILABLE
    live.accept_send_from_ms = rig.clock.now_ms
    assert rig.recall(handle).code == ResponseCode.SUCCESS
