"""What RocketMQ left pending is delivered, and what it delivered is not delivered again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.broker.kernel.events import KernelListener
from rockhopper.broker.kernel.scheduled.timers.java_files import (
    TimerCheck,
    encode_timer_check,
    load_timer_check,
)
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.protocol.properties import encode_properties
from tests.support.golden_stores import copy_golden_store
from tests.support.timer_rig import START_MS, TimerRig

# timercheck of the golden store says so.
GOLDEN_READ_MS = 1_795_166_960_000


def java_message(rig: TimerRig, out_ms: int, body: bytes, **more: str) -> None:
    """A message in the timer topic as RocketMQ keeps it."""
    properties = {
        "UNIQ_KEY": body.decode(),
        "TIMER_OUT_MS": str(out_ms),
        "REAL_TOPIC": "orders",
        "REAL_QID": "1",
    }

    async def put() -> None:
        text = encode_properties(properties | more)
        rig.broker.put("rmq_sys_wheel_timer", body, properties=text)

    rig.loop.run(put())


def timer_check(rig: TimerRig, read_ms: int, queue_offset: int) -> None:
    """A timercheck as RocketMQ leaves it."""
    path = rig.root / "config" / "timercheck"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(encode_timer_check(TimerCheck(read_ms, 0, queue_offset, queue_offset)))


@pytest.fixture
def golden(tmp_path: Path) -> Iterator[TimerRig]:
    root = copy_golden_store("timer", tmp_path / "store")
    settings = {
        "mappedFileSizeCommitLog": str(64 << 10),
        "mappedFileSizeConsumeQueue": str(
            (root / "consumequeue/TopicA/1" / "0".zfill(20)).stat().st_size
        ),
        "messageIndexEnable": "false",
    }
    made = TimerRig(root, settings, start_ms=GOLDEN_READ_MS + 848)
    made.broker.tables.topics.put(TopicConfig("TopicA", read_queue_nums=4, write_queue_nums=4))
    yield made
    made.close()


def test_the_golden_store_goes_on(golden: TimerRig) -> None:
    golden.start()
    assert golden.pending == 4
    assert [message.body for message in golden.delivered("TopicA")] == [b"body5"]
    golden.wait(3600)
    bodies = [message.body for message in golden.delivered("TopicA")]
    assert bodies == [b"body5", b"body0", b"body1"]
    golden.wait(200_000)
    bodies = [message.body for message in golden.delivered("TopicA")]
    assert bodies == [b"body5", b"body0", b"body1", b"body2", b"body3"]
    for message in golden.delivered("TopicA")[1:]:
        assert message.store_time_ms >= int(message.properties["TIMER_OUT_MS"]) + 1000
    assert golden.pending == 0


def test_rocketmqs_times_are_held_to_its_precision_or_the_producers_word(rig: TimerRig) -> None:
    java_message(rig, START_MS + 5000, b"vague")
    java_message(rig, START_MS + 5000, b"told", TIMER_DELIVER_MS=str(START_MS + 5400))
    rig.start()
    rig.wait(5.399)
    assert rig.bodies() == []
    rig.wait(0.001)
    assert rig.bodies() == [b"told"]
    rig.wait(0.599)
    assert rig.bodies() == [b"told"]
    rig.wait(0.001)
    assert rig.bodies() == [b"told", b"vague"]


def test_what_rocketmq_rolled_or_withdrew_comes_once_or_not_at_all(rig: TimerRig) -> None:
    java_message(rig, START_MS + 5000, b"rolled")
    java_message(rig, START_MS + 5000, b"withdrawn")
    java_message(rig, START_MS + 5000, b"rolled", TIMER_ROLL_TIMES="1")
    java_message(rig, START_MS + 5000, b"marker", TIMER_DEL_UNIQKEY="orders+withdrawn")
    rig.start()
    assert rig.pending == 1
    rig.wait(10)
    assert rig.bodies() == [b"rolled"]


class Takeover(KernelListener):
    def __init__(self, rig: TimerRig) -> None:
        self._timers = rig.broker.kernel.scheduled.timers
        self.queue_ends: list[int] = []

    def rocketmq_wrote(self) -> None:
        self.queue_ends.append(self._timers.queue.range[1])


def test_what_rocketmq_noted_of_pops_is_handed_over_once_and_is_no_timer(rig: TimerRig) -> None:
    takeover = Takeover(rig)
    real_topic = "rmq_sys_REVIVE_LOG_DefaultCluster"
    java_message(rig, START_MS + 5000, b"{}", REAL_TOPIC=real_topic, TAGS="ck")
    rig.broker.kernel.listeners.append(takeover)
    rig.start()
    assert takeover.queue_ends == [1]
    assert rig.pending == 0


def test_what_rocketmq_had_read_past_is_over(rig: TimerRig) -> None:
    java_message(rig, START_MS - 5000, b"delivered")
    java_message(rig, START_MS - 1000, b"taken over and due")
    java_message(rig, START_MS - 5000, b"not taken over")
    timer_check(rig, START_MS - 2000, 2)
    rig.start()
    assert sorted(rig.bodies()) == [b"not taken over", b"taken over and due"]


def test_a_copy_in_the_topic_tells_without_a_timercheck(rig: TimerRig) -> None:
    java_message(rig, START_MS - 5000, b"delivered")
    (message,) = rig.waiting_messages()

    async def put() -> None:
        rig.broker.put(
            "orders",
            b"delivered",
            queue_id=1,
            properties=encode_properties(message.properties | {"TIMER_DEQUEUE_MS": "1"}),
        )

    rig.loop.run(put())
    java_message(rig, START_MS - 5000, b"other")
    rig.start()
    assert rig.bodies() == [b"delivered", b"other"]


def test_a_store_that_rocketmq_ran_on_is_imported_again(rig: TimerRig) -> None:
    """It delivered the first message; our own files still say that it waits."""
    rig.start()
    rig.send({"TIMER_DELAY_SEC": "60", "UNIQ_KEY": "A"}, b"first")
    rig.send({"TIMER_DELAY_SEC": "600", "UNIQ_KEY": "B"}, b"second")
    rig.restart()
    rig.clock.advance(120_000)
    timer_check(rig, rig.clock.now_ms, 2)
    rig.kill()
    assert rig.bodies() == []
    assert rig.pending == 1
    rig.wait(600)
    assert rig.bodies() == [b"second"]


def test_a_clean_stop_tells_rocketmq_where_the_oldest_pending_message_is(rig: TimerRig) -> None:
    rig.start()
    rig.send({"TIMER_DELAY_SEC": "1"}, b"first")
    rig.send({"TIMER_DELAY_SEC": "600"}, b"second")
    rig.send({"TIMER_DELAY_SEC": "300"}, b"third")
    rig.wait(100)
    rig.restart()
    check, _ = load_timer_check(rig.root / "config" / "timercheck")
    assert check is not None
    assert (check.queue_offset, check.master_queue_offset) == (1, 1)
    assert rig.pending == 2
    rig.wait(600)
    assert rig.bodies() == [b"first", b"third", b"second"]


def test_messages_older_than_the_log_is_kept_are_appended_again(tmp_path: Path) -> None:
    rig = TimerRig(tmp_path / "store", {"fileReservedTime": "6", "timerMaxDelaySec": "400000"})
    rig.start()
    rig.send({"TIMER_DELAY_SEC": "86400", "UNIQ_KEY": "A"}, b"day")
    rig.send({"TIMER_DELAY_SEC": "7200", "UNIQ_KEY": "B"}, b"two hours")
    for _ in range(2 * 24):
        rig.wait(1800)
        oldest = rig.broker.kernel.scheduled.timers.index.min_offset
        if oldest is not None:
            stored = rig.waiting_messages()[oldest]
            assert rig.clock.now_ms - stored.store_time_ms < 5.2 * 3_600_000
        if rig.clock.now_ms == START_MS + 5 * 3_600_000:
            rig.kill()
    rig.wait(60)
    assert rig.bodies() == [b"two hours", b"day"]
    (message,) = [m for m in rig.delivered() if m.body == b"day"]
    assert int(message.properties["TIMER_ROLL_TIMES"]) >= 4
    assert "TIMER_ORIGIN" not in message.properties
    assert rig.pending == 0
    rig.close()
