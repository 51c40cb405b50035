"""What was popped from RocketMQ's broker and not acknowledged, in a store that it leaves to us."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.broker.features.pop.extra_info import ExtraInfo
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.store.put import MessageToStore
from rockhopper.protocol.names import REVIVE_GROUP, TIMER_TOPIC
from tests.support.pop_world import GROUP, TOPIC, PopWorld

REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"


class Apache:
    """What RocketMQ's broker wrote before ours opened the store."""

    def __init__(self, world: PopWorld) -> None:
        self.world = world
        world.topics.configs[REVIVE] = TopicConfig(REVIVE, read_queue_nums=2, write_queue_nums=2)
        self.pop_ms = world.now_ms()
        for number in range(10):
            world.send(b"%d" % number)
        world.offsets.commit(TOPIC, GROUP, 0, 8)

    def _note(self, tag: str, note: dict[str, object], due_ms: int, *, is_due: bool) -> None:
        common = {"t": TOPIC, "c": GROUP, "q": 0, "pt": self.pop_ms, "bn": "b"}
        properties = f"TAGS\1{tag}\2TIMER_OUT_MS\1{due_ms}"
        if not is_due:
            properties += f"\2REAL_TOPIC\1{REVIVE}\2REAL_QID\x010"
        topic = REVIVE if is_due else TIMER_TOPIC
        body = json.dumps(common | note).encode()
        self.world.store.put(MessageToStore(topic, 0, body, properties))

    def popped(
        self,
        *offsets: int,
        invisible_ms: int = 1000,
        suspended: bool = False,
        is_due: bool = True,
        bits: int = 0,
    ) -> None:
        distances = [offset - offsets[0] for offset in offsets]
        note: dict[str, object] = {
            "so": offsets[0],
            "n": len(offsets),
            "d": distances,
            "bm": bits,
            "ro": 0,
        }
        note |= {"it": invisible_ms, "sp": suspended, "rp": "1", "reviveTime": 0}
        self._note("ck", note, self.pop_ms + invisible_ms - 1000, is_due=is_due)

    def acked(self, start: int, *offsets: int, is_due: bool = True) -> None:
        note: dict[str, object] = {"so": start}
        is_one = len(offsets) == 1
        note |= {"ao": offsets[0]} if is_one else {"aol": list(offsets)}
        self._note("ack" if is_one else "bAck", note, self.pop_ms + 1000, is_due=is_due)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[PopWorld]:
    world = PopWorld(tmp_path / "store")
    yield world
    world.abandon()


@pytest.fixture
def apache(world: PopWorld) -> Apache:
    return Apache(world)


def redelivered(world: PopWorld, after_ms: int = 1000) -> list[tuple[bytes, int]]:
    world.pass_time(after_ms)
    popped = world.pop(invisible_ms=600_000)
    return sorted((each.body, each.message.reconsume_times) for each in popped)


@pytest.mark.parametrize("is_due", [False, True], ids=["in the timers", "in the revive topic"])
def test_what_nobody_acknowledged_is_delivered_again_in_its_time(
    world: PopWorld, apache: Apache, is_due: bool
) -> None:
    apache.popped(1, 2, 3, is_due=is_due)
    apache.popped(4, 6, 7, is_due=is_due, bits=0b100)
    apache.acked(1, 2, is_due=is_due)
    apache.acked(4, 4, 5, is_due=is_due)
    world.pop_service.rocketmq_wrote()
    assert world.lanes_in_flight == 3
    assert world.offsets.get(TOPIC, GROUP, 0) == 1
    assert [each.body for each in world.pop(invisible_ms=600_000)] == [b"8", b"9"]
    assert redelivered(world, 999) == []
    assert redelivered(world, 1) == [(b"1", 1), (b"3", 1), (b"6", 1)]


def test_an_acknowledgement_reaches_it_by_what_the_other_broker_said(
    world: PopWorld, apache: Apache
) -> None:
    apache.popped(5, 6)
    world.pop_service.rocketmq_wrote()
    info = ExtraInfo(5, apache.pop_ms, 1000, 0, "0")
    world.pop_service.ack(GROUP, TOPIC, 0, [5], info)
    assert redelivered(world) == [(b"6", 1), (b"8", 0), (b"9", 0)]


def test_what_was_dealt_with_before_is_left_alone(world: PopWorld, apache: Apache) -> None:
    apache.popped(1, is_due=False)
    apache.popped(2, is_due=False, invisible_ms=900_000)
    apache.popped(1)
    world.offsets.commit(REVIVE, REVIVE_GROUP, 0, 0)
    world.pop_service.rocketmq_wrote()
    assert redelivered(world, 900_000) == [(b"2", 1), (b"8", 0), (b"9", 0)]


def test_each_is_taken_over_once(world: PopWorld, apache: Apache) -> None:
    apache.popped(1, 2)
    apache.popped(3, is_due=False)
    world.pop_service.rocketmq_wrote()
    assert len(redelivered(world)) == 5
    apache.popped(7)
    world.pop_service.rocketmq_wrote()
    assert redelivered(world) == [(b"7", 1)]


def test_it_survives_a_kill(world: PopWorld, apache: Apache) -> None:
    apache.popped(1, suspended=True, invisible_ms=5000)
    world.pop_service.rocketmq_wrote()
    world.kill()
    assert world.lanes_in_flight == 1
    assert (b"1", 0) in redelivered(world, 5000)


def test_what_the_group_is_to_get_anyway_is_not_taken_over(world: PopWorld, apache: Apache) -> None:
    apache.popped(7, 8, 9)
    world.pop_service.rocketmq_wrote()
    assert world.lanes_in_flight == 1
    assert redelivered(world, 0) == [(b"8", 0), (b"9", 0)]


def test_a_group_without_an_offset_begins_at_the_first_of_them(
    world: PopWorld, apache: Apache
) -> None:
    world.offsets.delete_group(GROUP)
    apache.popped(4, 5)
    world.pop_service.rocketmq_wrote()
    assert redelivered(world, 0)[0] == (b"4", 0)


def test_notes_that_make_no_sense_are_passed_over(world: PopWorld, apache: Apache) -> None:
    world.store.put(MessageToStore(REVIVE, 0, b"{", "TAGS\1ck"))
    world.store.put(MessageToStore(REVIVE, 0, b'{"t":1}', "TAGS\1ack"))
    apache.popped(1)
    world.pop_service.rocketmq_wrote()
    assert world.lanes_in_flight == 1
