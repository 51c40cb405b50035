"""DelayedDelivery: due messages reach their topic once, others wait, and a crash loses none.

Both clocks, the wall's and the loop's, stand still unless a test lets time pass.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.kernel.scheduled.delayed import RETRY_S, DelayOffsetTable
from rockhopper.broker.server.loop.wall_waits import WAIT_S_MAX
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.peers import Clock
from tests.support.served_broker import ServedBroker
from tests.support.stepped_loop import SteppedLoop

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
TEN_SECONDS, MINUTE = 3, 5


class Rig:
    """A broker that delivers delayed messages, and the time that passes for it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.loop = SteppedLoop()
        self.clock = Clock()
        self.broker = self._make()

    def _make(self) -> ServedBroker:
        broker = ServedBroker(self.root, self.clock, {})
        broker.create_topic("orders")
        return broker

    def start(self) -> None:
        """Begin to deliver."""

        async def start() -> None:
            self.broker.kernel.scheduled.delayed.start()

        self.loop.run(start())

    def restart(self) -> None:
        """Stop cleanly and open the same store again."""

        async def stop() -> None:
            closing = asyncio.create_task(self.broker.kernel.scheduled.delayed.close())
            await asyncio.sleep(0)
            self.flush()
            await closing
            self.broker.kernel.scheduled.delayed.table.save()
            await self.broker.store.close()

        self.loop.run(stop())
        self.broker = self._make()
        self.broker.kernel.scheduled.delayed.table.load()

    def flush(self) -> None:
        """Flush the commit log, as the flush service does every half second."""
        self.broker.store.flush_now()

    def delay(
        self, level: int, body: bytes = b"hello", *, real: str = "orders", queue: str = "1"
    ) -> None:
        """Store a message that waits at *level*."""

        async def put() -> None:
            self.broker.put(
                SCHEDULE,
                body,
                queue_id=level - 1,
                properties=f"DELAY\x01{level}\x02REAL_TOPIC\x01{real}\x02REAL_QID\x01{queue}\x02"
                "TAGS\x01a\x02",
                reconsume_times=3,
            )

        self.loop.run(put())

    def wait(self, seconds: float) -> None:
        """Let time pass on both clocks, in steps that no timer is shorter than."""
        self.clock.advance(round(seconds * 1000))
        self.loop.advance(seconds)

    def delivered(self, topic: str = "orders", queue_id: int = 1) -> list[StoredMessage]:
        """What has arrived."""
        return decode_messages(self.broker.store.reading.get_message(topic, queue_id, 0, 32).body)

    def bodies(self) -> list[bytes]:
        """The bodies that have arrived."""
        return [message.body for message in self.delivered()]

    def close(self) -> None:
        """Close store and loop."""
        self.loop.run(self.broker.close())
        self.loop.close()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.close()


def test_message_is_delivered_when_due_and_not_before(rig: Rig) -> None:
    rig.start()
    rig.delay(TEN_SECONDS)
    rig.wait(9.999)
    assert rig.bodies() == []
    rig.wait(0.001)
    assert rig.bodies() == [b"hello"]
    rig.wait(60)
    assert rig.bodies() == [b"hello"]


def test_delivered_message_is_the_one_that_was_sent(rig: Rig) -> None:
    rig.start()
    rig.delay(TEN_SECONDS)
    rig.wait(10)
    (message,) = rig.delivered()
    assert message.properties == {
        "DELAY": "3",
        "REAL_TOPIC": "orders",
        "REAL_QID": "1",
        "TAGS": "a",
    }
    assert (message.born_host, message.born_port, message.born_time_ms) == ("10.1.2.3", 4567, 1234)
    assert message.reconsume_times == 3
    assert message.store_time_ms == rig.clock.now_ms


def test_messages_of_a_level_keep_their_order(rig: Rig) -> None:
    rig.start()
    for number in range(40):
        rig.delay(TEN_SECONDS, b"%d" % number)
        rig.wait(0.01)
    rig.wait(10)
    rig.loop.advance(0)
    result = rig.broker.store.reading.get_message("orders", 1, 0, 40)
    first = [message.body for message in decode_messages(result.body)]
    assert first == [b"%d" % number for number in range(32)]
    assert rig.broker.store.reading.queue_range("orders", 1) == (0, 40)


def test_short_level_does_not_wait_for_a_long_one(rig: Rig) -> None:
    rig.start()
    rig.delay(MINUTE, b"minute")
    rig.delay(TEN_SECONDS, b"ten seconds")
    rig.wait(10)
    assert rig.bodies() == [b"ten seconds"]


def test_long_waits_are_cut_short_so_that_a_set_clock_is_noticed(rig: Rig) -> None:
    rig.start()
    rig.delay(18)
    rig.clock.set_by(2 * 3_600_000)
    rig.loop.advance(WAIT_S_MAX)
    assert rig.bodies() == [b"hello"]


@pytest.mark.parametrize("back_s", [1, 59, 61, 86_400])
def test_a_clock_that_is_set_back_makes_no_message_early_or_late(rig: Rig, back_s: int) -> None:
    rig.start()
    rig.delay(TEN_SECONDS, b"before")
    rig.wait(2)
    rig.clock.set_by(-back_s * 1000)
    rig.wait(1)
    rig.delay(TEN_SECONDS, b"after")
    rig.wait(6.999)
    assert rig.bodies() == []
    rig.wait(0.001)
    assert rig.bodies() == [b"before"]
    rig.wait(2.999)
    assert rig.bodies() == [b"before"]
    rig.wait(0.001)
    assert rig.bodies() == [b"before", b"after"]


def test_messages_from_a_future_that_was_taken_back_wait_as_long_as_they_should(rig: Rig) -> None:
    """Whole levels of them: the clock was right again when the broker was restarted."""
    rig.clock.set_by(86_400_000)
    rig.delay(TEN_SECONDS, b"before")
    rig.clock.set_by(-86_400_000)
    rig.restart()
    rig.start()
    rig.delay(TEN_SECONDS, b"after")
    rig.wait(9.999)
    assert rig.bodies() == []
    rig.wait(0.001)
    assert rig.bodies() == [b"before", b"after"]


def test_what_became_due_while_the_broker_was_down_is_delivered_at_start(rig: Rig) -> None:
    rig.delay(TEN_SECONDS)
    rig.clock.advance(3_600_000)
    rig.start()
    assert rig.bodies() == [b"hello"]


def test_nothing_is_delivered_twice_after_a_clean_stop(rig: Rig) -> None:
    rig.start()
    rig.delay(TEN_SECONDS, b"first")
    rig.wait(10)
    rig.restart()
    rig.start()
    rig.delay(TEN_SECONDS, b"second")
    rig.wait(10)
    assert rig.bodies() == [b"first", b"second"]


def test_offsets_wait_until_what_they_say_is_on_disk(rig: Rig) -> None:
    rig.start()
    rig.delay(TEN_SECONDS)
    rig.wait(10)
    rig.broker.kernel.scheduled.delayed.settle()
    assert rig.broker.kernel.scheduled.delayed.table.offsets == {}
    assert rig.broker.kernel.scheduled.delayed.offset(TEN_SECONDS) == 1
    rig.flush()
    rig.broker.kernel.scheduled.delayed.settle()
    assert rig.broker.kernel.scheduled.delayed.table.offsets == {TEN_SECONDS: 1}


def test_what_is_on_disk_is_settled_at_its_time(rig: Rig) -> None:
    rig.start()
    rig.delay(TEN_SECONDS)
    rig.wait(10)
    rig.flush()
    assert rig.broker.kernel.scheduled.delayed.table.offsets == {}
    rig.wait(9)
    assert rig.broker.kernel.scheduled.delayed.table.offsets == {}
    rig.wait(1)
    assert rig.broker.kernel.scheduled.delayed.table.offsets == {TEN_SECONDS: 1}


def test_offsets_outside_the_queue_are_moved_into_it(rig: Rig) -> None:
    rig.broker.kernel.scheduled.delayed.table.offsets = {TEN_SECONDS: 99, MINUTE: 5}
    rig.delay(TEN_SECONDS)
    rig.start()
    assert rig.broker.kernel.scheduled.delayed.offset(TEN_SECONDS) == 1
    assert rig.broker.kernel.scheduled.delayed.offset(MINUTE) == 0
    rig.delay(TEN_SECONDS, b"next")
    rig.wait(10)
    assert rig.bodies() == [b"next"]


@pytest.mark.parametrize(
    ("real", "queue"),
    [
        ("deleted", "0"),
        ("", "0"),
        (SCHEDULE, "0"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", "0"),
        ("orders", "x"),
        ("orders", "99999999"),
    ],
)
def test_message_that_can_never_be_delivered_is_dropped_with_one_line(
    rig: Rig, real: str, queue: str
) -> None:
    rig.start()
    rig.delay(TEN_SECONDS, b"lost", real=real, queue=queue)
    rig.delay(TEN_SECONDS, b"next")
    with capture_logs() as logs:
        rig.wait(10)
    assert rig.bodies() == [b"next"]
    assert [entry["event"] for entry in logs] == ["delayed message dropped"]


def test_store_that_takes_nothing_is_tried_again_and_reported_once(rig: Rig) -> None:
    rig.start()
    rig.delay(TEN_SECONDS)
    rig.broker.store.retention.space.full_reason = "the disk is full"
    with capture_logs() as logs:
        rig.wait(10)
        rig.wait(RETRY_S)
    assert rig.bodies() == []
    assert [entry["event"] for entry in logs] == [
        "delayed messages wait because the store refuses writes"
    ]
    rig.broker.store.retention.space.full_reason = None
    rig.wait(RETRY_S)
    assert rig.bodies() == [b"hello"]


def test_stopped_delivery_delivers_nothing(rig: Rig) -> None:
    rig.start()
    rig.delay(TEN_SECONDS)
    rig.broker.kernel.scheduled.delayed.stop()
    rig.wait(10)
    assert rig.bodies() == []


def test_delivery_counts_as_traffic(rig: Rig) -> None:
    rig.start()
    rig.delay(TEN_SECONDS)
    rig.wait(10)
    assert rig.broker.stats.get_send_traffic("orders").messages == 1


def test_what_waits_at_a_level_that_is_no_more_is_delivered_by_the_last_one(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    rig.delay(20)
    rig.broker.kernel.scheduled.delayed.open()
    rig.start()
    assert "messageDelayLevel does not define" in capsys.readouterr().out
    rig.wait(2 * 3600 - 1)
    assert rig.bodies() == []
    rig.wait(2)
    assert rig.bodies() == [b"hello"]


def test_table_reads_levels_bare_and_quoted_and_writes_them_bare(tmp_path: Path) -> None:
    path = tmp_path / "delayOffset.json"
    path.write_bytes(b'{"dataVersion":{"counter":2},"offsetTable":{1:11,"2":12}}')
    table = DelayOffsetTable(path)
    assert table.load()
    assert table.offsets == {1: 11, 2: 12}
    table.set_offset(3, 1)
    table.save()
    assert b"3:1" in path.read_bytes()
