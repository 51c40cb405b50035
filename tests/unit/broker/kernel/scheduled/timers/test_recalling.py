"""Recalling: what a handle means is found and withdrawn in RocketMQ's words, or stays pending."""

import pytest

from rockhopper.broker.kernel.scheduled.timers.recall_handle import (
    RecallHandle,
    decode_recall_handle,
)
from rockhopper.broker.kernel.scheduled.timers.recalling import recall
from rockhopper.broker.store.files.errors import StoreBusyError
from tests.support.served_broker import BORN_HOST
from tests.support.timer_rig import START_MS, TimerRig, handle_of


def recalled(rig: TimerRig, handle: RecallHandle) -> int | None:
    timers = rig.broker.kernel.scheduled.timers

    async def run() -> int | None:
        return recall(rig.broker.store, timers.index, timers.queue, handle, 1000, BORN_HOST)

    return rig.loop.run(run())


@pytest.fixture
def handle(rig: TimerRig) -> RecallHandle:
    rig.start()
    return decode_recall_handle(
        handle_of(rig.send({"TIMER_DELIVER_MS": str(START_MS + 60_123), "UNIQ_KEY": "K1"}))
    )


def test_the_withdrawal_is_rocketmqs_and_ends_where_it_is_said(
    rig: TimerRig, handle: RecallHandle
) -> None:
    end = recalled(rig, handle)
    assert end == rig.broker.store.log.written_offset
    _, withdrawal = rig.waiting_messages()
    assert withdrawal.body == b"0"
    assert withdrawal.properties == {
        "TAGS": "_RECALL_TAG_",
        "UNIQ_KEY": "K1",
        "TIMER_DEL_UNIQKEY": "orders+K1",
        "TIMER_DELIVER_MS": str(START_MS + 60_123),
        "TIMER_OUT_MS": str(START_MS + 60_122),
        "REAL_TOPIC": "orders",
        "REAL_QID": "0",
        "TIMER_ORIGIN": f"0/{START_MS + 60_123}",
    }
    rig.wait(120)
    assert rig.bodies() == []
    assert rig.pending == 0


@pytest.mark.parametrize(
    "change",
    [{"topic": "others"}, {"unique_key": "K2"}, {"due_ms": START_MS + 60_124}, {"due_ms": 0}],
)
def test_another_handle_means_nothing(
    rig: TimerRig, handle: RecallHandle, change: dict[str, str | int]
) -> None:
    assert recalled(rig, handle._replace(**change)) is None  # type: ignore[arg-type]
    rig.wait(120)
    assert rig.bodies() == [b"hello"]


def test_a_message_is_recalled_once(rig: TimerRig, handle: RecallHandle) -> None:
    assert recalled(rig, handle) is not None
    assert recalled(rig, handle) is None
    assert recalled(rig, handle) is None
    assert len(rig.waiting_messages()) == 2


def test_a_key_with_the_same_hash_is_not_enough(
    rig: TimerRig, handle: RecallHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = rig.broker.kernel.scheduled.timers.index
    entries = list(filter(None, index.pending()))
    monkeypatch.setattr(index, "find", lambda key, from_ms, to_ms: iter(entries))
    assert recalled(rig, handle._replace(unique_key="K2")) is None
    assert recalled(rig, handle._replace(topic="others")) is None
    assert recalled(rig, handle) is not None


def test_a_record_that_is_gone_is_not_recalled(
    rig: TimerRig, handle: RecallHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        rig.broker.kernel.scheduled.timers.queue, "message_at", lambda position, offset: None
    )
    assert recalled(rig, handle) is None


def test_what_could_not_be_withdrawn_is_delivered(
    rig: TimerRig, handle: RecallHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(message: object) -> None:
        raise StoreBusyError("not now")

    with monkeypatch.context() as patch:
        patch.setattr(rig.broker.store, "put", refuse)
        with pytest.raises(StoreBusyError):
            recalled(rig, handle)
    rig.wait(61)
    assert rig.bodies() == [b"hello"]


def test_a_message_with_a_separator_in_its_key_is_recalled(rig: TimerRig) -> None:
    rig.start()
    sent = rig.send({"TIMER_DELIVER_MS": str(START_MS + 60_123), "UNIQ_KEY": "K\x011"})
    assert recalled(rig, decode_recall_handle(handle_of(sent))) is not None
    rig.wait(120)
    assert rig.bodies() == []
