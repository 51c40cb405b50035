"""Timers: messages go to their topic once, at their time, and what cannot be is refused."""

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.kernel.scheduled.timers.timers import RETRY_S
from rockhopper.broker.store.files.errors import DiskFullError
from rockhopper.broker.store.log.commit_log import CommitLog
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.store.message_codec import encode_batch
from tests.support.features import needs
from tests.support.timer_rig import START_MS, TimerRig, handle_of
from tests.support.transactions import COMMIT, end_fields, half_fields, half_of


def test_message_is_delivered_at_its_millisecond_and_not_before(rig: TimerRig) -> None:
    rig.start()
    answer = rig.send({"TIMER_DELIVER_MS": str(START_MS + 12_345), "TAGS": "a", "UNIQ_KEY": "K"})
    assert answer.code == ResponseCode.SUCCESS
    assert rig.pending == 1
    rig.wait(12.344)
    assert rig.bodies() == []
    rig.wait(0.001)
    (message,) = rig.delivered()
    assert message.body == b"hello"
    assert message.properties["TAGS"] == "a"
    assert message.properties["REAL_TOPIC"] == "orders"
    assert message.properties["TIMER_OUT_MS"] == str(START_MS + 12_344)
    assert message.properties["TIMER_DEQUEUE_MS"] == str(START_MS + 12_345)
    assert rig.pending == 0
    rig.wait(3600)
    assert len(rig.bodies()) == 1
    assert rig.broker.kernel.scheduled.timers.delivery.late_count == 0


@pytest.mark.parametrize(
    ("properties", "seconds"),
    [
        ({"TIMER_DELAY_SEC": "3", "TIMER_DELAY_MS": "1", "TIMER_DELIVER_MS": "1"}, 3),
        ({"TIMER_DELAY_MS": "1500", "TIMER_DELIVER_MS": "1"}, 1.5),
        ({"TIMER_DELIVER_MS": str(START_MS + 2500), "__STARTDELIVERTIME": "1"}, 2.5),
        ({"__STARTDELIVERTIME": str(START_MS + 4000)}, 4),
        ({"DELAY": "1", "TIMER_DELAY_SEC": "9"}, None),
    ],
)
def test_the_first_property_counts_and_a_delay_level_before_all(
    rig: TimerRig, properties: dict[str, str], seconds: float | None
) -> None:
    rig.start()
    assert rig.send(properties).code == ResponseCode.SUCCESS
    if seconds is None:
        assert rig.pending == 0
        assert rig.broker.store.reading.queue_range("SCHEDULE_TOPIC_XXXX", 0) == (0, 1)
        return
    rig.wait(seconds - 0.002)
    assert rig.bodies() == []
    rig.wait(0.002)
    assert rig.bodies() == [b"hello"]


@pytest.mark.parametrize("past", ["0", "-5"])
def test_a_time_that_has_passed_means_now(rig: TimerRig, past: str) -> None:
    rig.start()
    assert rig.send({"TIMER_DELAY_SEC": past}).code == ResponseCode.SUCCESS
    assert rig.bodies() == [b"hello"]


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"TIMER_DELAY_SEC": "soon"}, "not a number"),
        ({"TIMER_DELAY_SEC": "259201"}, "timerMaxDelaySec"),
        ({"__STARTDELIVERTIME": "1e12"}, "not a number"),
        ({"TIMER_DELAY_MS": "0", "TIMER_DEL_UNIQKEY": "orders+K"}, "has passed"),
    ],
)
def test_a_time_that_makes_no_sense_is_refused_in_words(
    rig: TimerRig, properties: dict[str, str], words: str
) -> None:
    rig.start()
    answer = rig.send(properties)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert words in (answer.remark or "")
    assert rig.waiting_messages() == []


def test_nobody_sends_to_the_timer_topic_itself(rig: TimerRig) -> None:
    assert rig.send({}, topic="rmq_sys_wheel_timer").code == ResponseCode.NO_PERMISSION


def test_messages_of_a_second_come_in_the_order_of_their_times(rig: TimerRig) -> None:
    rig.start()
    for ms in (900, 300, 600, 300):
        rig.send({"TIMER_DELIVER_MS": str(START_MS + 60_000 + ms)}, b"%d" % ms)
    rig.wait(61)
    assert rig.bodies() == [b"300", b"300", b"600", b"900"]


def test_clock_set_forward_delivers_at_once_and_set_back_makes_wait(rig: TimerRig) -> None:
    rig.start()
    rig.send({"TIMER_DELAY_SEC": "3600"}, b"hour")
    rig.send({"TIMER_DELAY_SEC": "90000"}, b"day")
    rig.clock.set_by(3_600_000)
    rig.loop.advance(0.25)
    assert rig.bodies() == [b"hour"]
    rig.clock.set_by(-7_200_000)
    rig.send({"TIMER_DELAY_SEC": "10"}, b"ten")
    rig.wait(9.9)
    assert rig.bodies() == [b"hour"]
    rig.wait(0.2)
    assert rig.bodies() == [b"hour", b"ten"]
    rig.wait(90_000 + 3600 - 10.2)
    assert rig.bodies() == [b"hour", b"ten"]
    rig.wait(0.2)
    assert rig.bodies() == [b"hour", b"ten", b"day"]


def test_a_store_that_refuses_delays_delivery_and_loses_nothing(
    rig: TimerRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.start()
    rig.send({"TIMER_DELAY_SEC": "1"})

    def full() -> None:
        raise DiskFullError("the disk is full")

    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(rig.broker.store, "check_writable", full)
        rig.wait(1)
        rig.wait(RETRY_S)
    assert [line["event"] for line in logs].count(
        "timer messages wait because the store refuses writes"
    ) == 1
    assert rig.pending == 1
    delivery = rig.broker.kernel.scheduled.timers.delivery
    assert delivery.behind_ms >= RETRY_S * 1000
    rig.wait(RETRY_S)
    assert rig.bodies() == [b"hello"]
    assert (delivery.late_count, delivery.delivered, delivery.behind_ms) == (1, {"orders": 1}, 0)


def test_a_write_that_fails_is_made_up_for(rig: TimerRig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.start()
    for number in range(3):
        rig.send({"TIMER_DELAY_SEC": "1"}, b"%d" % number)
    with monkeypatch.context() as patch:

        def fail(*_: object) -> None:
            raise DiskFullError("the disk is full")

        patch.setattr(CommitLog, "_pwrite", fail)
        rig.wait(1)
        assert rig.bodies() == []
    rig.wait(RETRY_S)
    assert rig.bodies() == [b"0", b"1", b"2"]
    rig.kill()
    assert rig.bodies() == [b"0", b"1", b"2"]


def test_a_message_whose_topic_is_gone_is_dropped_with_an_error(rig: TimerRig) -> None:
    rig.start()
    rig.send({"TIMER_DELAY_SEC": "1"})
    rig.broker.tables.topics.delete("orders")
    with capture_logs() as logs:
        rig.wait(1)
    assert "delayed message dropped" in [line["event"] for line in logs]
    assert rig.pending == 0


def test_switched_off_it_takes_no_more_and_delivers_what_waits(rig: TimerRig) -> None:
    rig.start()
    rig.send({"TIMER_DELAY_SEC": "60"})
    rig.settings["timerWheelEnable"] = "false"
    rig.restart()
    answer = rig.send({"TIMER_DELAY_SEC": "60"})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "timerWheelEnable" in (answer.remark or "")
    rig.wait(60)
    assert rig.bodies() == [b"hello"]


def test_finished_slots_leave_no_files(rig: TimerRig) -> None:
    rig.start()
    rig.send({"TIMER_DELAY_SEC": "30"})
    rig.send({"TIMER_DELAY_SEC": "300"})
    rig.save()
    assert len(list(rig.broker.kernel.scheduled.timers.index.files.directory.iterdir())) == 2
    rig.wait(100)
    # Notes outlive the entries until their deletion is on disk.
    rig.save()
    rig.save()
    assert len(list(rig.broker.kernel.scheduled.timers.index.files.directory.iterdir())) == 1
    rig.wait(300)
    rig.save()
    rig.save()
    assert list(rig.broker.kernel.scheduled.timers.index.files.directory.iterdir()) == []
    assert rig.bodies() == [b"hello", b"hello"]


def test_parked_count_leaves_the_timers_out(rig: TimerRig) -> None:
    rig.start()
    rig.send({"TIMER_DELAY_SEC": "30"})
    assert len(rig.broker.kernel.long_polling) == 0


def test_what_stops_before_its_turn_goes_on_when_it_starts_again(rig: TimerRig) -> None:
    async def start_and_stop_and_start() -> None:
        for act in (
            rig.broker.kernel.scheduled.timers.start,
            rig.broker.kernel.scheduled.timers.stop,
            rig.broker.kernel.scheduled.timers.start,
        ):
            act()

    rig.start()
    rig.loop.run(start_and_stop_and_start())
    rig.send({"TIMER_DELAY_SEC": "30"})
    rig.wait(31)
    assert rig.bodies() == [b"hello"]


def test_recalled_message_is_not_delivered(rig: TimerRig) -> None:
    rig.start()
    first = rig.send({"TIMER_DELAY_SEC": "30", "UNIQ_KEY": "first"}, b"first")
    rig.send({"TIMER_DELAY_SEC": "30", "UNIQ_KEY": "second"}, b"second")
    answer = rig.recall(handle_of(first))
    assert answer.code == ResponseCode.SUCCESS
    assert (answer.ext or {})["msgId"] == "first"
    assert rig.pending == 1
    assert rig.recall(handle_of(first)).code == ResponseCode.ILLEGAL_OPERATION
    rig.wait(31)
    assert rig.bodies() == [b"second"]
    assert rig.pending == 0


def test_recall_of_what_waits_for_days_survives_restarts(rig: TimerRig) -> None:
    rig.start()
    far = rig.send({"TIMER_DELAY_SEC": "200000", "UNIQ_KEY": "far"})
    farther = rig.send({"TIMER_DELAY_SEC": "200000", "UNIQ_KEY": "farther"}, b"farther")
    assert rig.recall(handle_of(far)).code == ResponseCode.SUCCESS
    rig.kill()
    assert rig.pending == 1
    assert rig.recall(handle_of(far)).code == ResponseCode.ILLEGAL_OPERATION
    rig.save()
    rig.restart()
    assert rig.pending == 1
    rig.wait(200_001)
    assert rig.bodies() == [b"farther"]
    assert rig.recall(handle_of(farther)).code == ResponseCode.ILLEGAL_OPERATION


def test_recall_of_a_delivered_message_is_refused(rig: TimerRig) -> None:
    rig.start()
    answer = rig.send({"TIMER_DELAY_SEC": "1", "UNIQ_KEY": "K"})
    rig.wait(1)
    refused = rig.recall(handle_of(answer))
    assert refused.code == ResponseCode.ILLEGAL_OPERATION
    assert "not pending" in (refused.remark or "")


@pytest.mark.parametrize("handle", ["", "?", "djIgYSBiIDEgaw==", "djEgb3RoZXIgYnJva2VyLWEgMSBr"])
def test_a_handle_that_is_none_is_refused(rig: TimerRig, handle: str) -> None:
    rig.start()
    assert rig.recall(handle or "x").code == ResponseCode.ILLEGAL_OPERATION


def test_recall_can_be_forbidden_and_needs_the_topic(rig: TimerRig) -> None:
    rig.start()
    handle = handle_of(rig.send({"TIMER_DELAY_SEC": "30"}))
    assert rig.recall(handle, topic="others").code == ResponseCode.TOPIC_NOT_EXIST
    rig.settings["recallMessageEnable"] = "false"
    rig.restart()
    assert rig.recall(handle).code == ResponseCode.NO_PERMISSION


def test_a_recall_that_the_store_refuses_recalls_nothing(
    rig: TimerRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.start()
    handle = handle_of(rig.send({"TIMER_DELAY_SEC": "30"}))

    def full() -> None:
        raise DiskFullError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(rig.broker.store, "check_writable", full)
        assert rig.recall(handle).code == ResponseCode.SERVICE_NOT_AVAILABLE
    rig.wait(30)
    assert rig.bodies() == [b"hello"]


def test_a_withdrawal_as_rocketmqs_producers_send_it_withdraws(rig: TimerRig) -> None:
    rig.start()
    at = str(START_MS + 60_500)
    rig.send({"TIMER_DELIVER_MS": at, "UNIQ_KEY": "A"}, b"a")
    rig.send({"TIMER_DELIVER_MS": at, "UNIQ_KEY": "B"}, b"b")
    rig.send({"TIMER_DELIVER_MS": at, "UNIQ_KEY": "C", "TIMER_DEL_UNIQKEY": "orders+A"}, b"c")
    assert rig.pending == 1
    rig.wait(70)
    assert rig.bodies() == [b"b"]


@pytest.mark.parametrize(
    "properties", ["TIMER_DELAY_SEC\x015\x02", "__STARTDELIVERTIME\x011900000000000\x02"]
)
def test_a_batch_with_a_time_inside_is_refused(rig: TimerRig, properties: str) -> None:
    body = encode_batch([(0, b"plain", b""), (0, b"later", properties.encode())])
    answer = rig.send({}, body, code=RequestCode.SEND_BATCH_MESSAGE)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "send it on its own" in (answer.remark or "")
    assert rig.bodies() == []


@needs("transactions")
def test_a_transactions_delay_counts_from_its_commit(rig: TimerRig) -> None:
    rig.start()
    broker = rig.broker

    async def ask(code: RequestCode, fields: dict[str, str], body: bytes = b"") -> Command:
        return await broker.ask(code, fields, body)

    refused = half_fields("orders", "A", TIMER_DELAY_SEC="999999")
    assert rig.loop.run(ask(RequestCode.SEND_MESSAGE_V2, refused)).code == 13
    fields = half_fields("orders", "B", TIMER_DELAY_SEC="10")
    half = half_of(rig.loop.run(ask(RequestCode.SEND_MESSAGE_V2, fields, b"paid")))
    rig.wait(20)
    assert rig.delivered(queue_id=0) == []
    assert rig.loop.run(ask(RequestCode.END_TRANSACTION, end_fields(half, COMMIT))).code == 0
    rig.wait(9.9)
    assert rig.delivered(queue_id=0) == []
    rig.wait(0.2)
    assert [message.body for message in rig.delivered(queue_id=0)] == [b"paid"]
