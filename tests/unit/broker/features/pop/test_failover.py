"""What a master popped and acknowledged is known to the next one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.broker.features.pop.extra_info import ExtraInfo
from rockhopper.broker.features.pop.lanes import Lanes
from rockhopper.broker.features.pop.reading import PopRequest
from rockhopper.broker.features.pop.state import POPPED, POPPED_ALL, PopState
from rockhopper.broker.kernel.state_records import decode_state
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroup
from rockhopper.broker.replication.state.state_writer import StateWriter
from rockhopper.broker.server.loop.cooperative_work import run_at_once
from rockhopper.protocol.names import STATE_TOPIC
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.features import pop_of
from tests.support.state_rig import GROUP, Member, Pair

INVISIBLE_MS = 60_000


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    yield pair
    pair.close()


def pop_some(member: Member, topic: str) -> list[bytes]:
    """Pop messages for the group; return their bodies."""
    wanted = PopRequest(GROUP, topic, -1, 32, INVISIBLE_MS, False, None, False)

    async def pop() -> list[bytes]:
        answer = run_at_once(pop_of(member).pop_steps(wanted))
        return [message.body for message in decode_messages(answer.body())]

    return member.run(pop())


def ack(member: Member, topic: str, offset: int) -> None:
    """Acknowledge a popped message."""
    lane = pop_of(member).lanes.get(GROUP, topic, 0)
    info = ExtraInfo(0, lane.entries[offset].pop_ms, INVISIBLE_MS, 0, "0")

    async def ack() -> None:
        pop_of(member).ack(GROUP, topic, 0, [offset], info)

    member.run(ack())


def kinds(member: Member, from_offset: int = 0) -> list[int]:
    """Of all entries that the log holds from a queue offset on."""
    result = member.store.reading.get_message(STATE_TOPIC, 0, from_offset, 1000)
    return [
        kind
        for message in decode_messages(result.body)
        for kind, _ in decode_state(message.body).entries
    ]


def writer_of(member: Member) -> StateWriter:
    assert member.writer is not None
    return member.writer


def end(member: Member) -> int:
    return member.store.reading.queue_range(STATE_TOPIC, 0)[1]


def lanes_of(member: Member) -> Lanes:
    state = member.tables.features["pop"]
    assert isinstance(state, PopState)
    return state.lanes


def test_what_is_popped_is_told_earlier_and_takes_the_rest_along(pair: Pair) -> None:
    master = pair.master
    master.create_topic("orders")
    master.put("orders")
    pair.pass_time(1)
    before = end(master)
    pop_some(master, "orders")
    pair.pass_time(0.03)
    assert POPPED in kinds(master, before)


def test_acknowledgements_are_overdue_sooner_than_offsets(pair: Pair) -> None:
    master, store = pair.master, pair.master.store
    master.create_topic("orders")
    master.put("orders")
    pair.pass_time(1)

    async def replicate() -> None:
        store.safe_point.replicate(store.log.written_offset, 5000)

    master.run(replicate())
    pop_some(master, "orders")
    pair.pass_time(0.02)
    assert writer_of(master).overdue_since_ms() is None
    pair.pass_time(0.01)
    assert writer_of(master).overdue_since_ms() is not None


def test_all_that_is_popped_takes_the_place_of_what_was(pair: Pair) -> None:
    master, follower = pair.master, pair.follower
    master.create_topic("orders")
    master.put("orders")
    assert pop_some(master, "orders")
    pair.gather()
    assert len(list(lanes_of(follower))) == 1

    async def take() -> None:
        follower.applier.state.apply(POPPED_ALL, b"", 0)

    follower.run(take())
    leader = pair.fail_over()
    assert pop_of(leader).lanes.get(GROUP, "orders", 0) is None


def test_a_message_that_was_acknowledged_does_not_come_again(pair: Pair) -> None:
    master = pair.master
    master.create_topic("orders")

    async def make_group() -> None:
        master.tables.groups.put(SubscriptionGroup(GROUP))

    master.run(make_group())
    for body in (b"0", b"1", b"2"):
        master.put("orders", body)
    assert pop_some(master, "orders") == [b"0", b"1", b"2"]
    ack(master, "orders", 1)
    pair.gather()
    leader = pair.fail_over()
    lane = pop_of(leader).lanes.get(GROUP, "orders", 0)
    assert lane is not None
    assert list(lane.entries) == [0, 2]
    assert pop_some(leader, "orders") == []
