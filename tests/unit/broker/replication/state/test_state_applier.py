"""What a follower has of its master's state, seen when it leads."""

import asyncio
from collections.abc import Callable

import pytest

from rockhopper.broker.kernel.scheduled.timers.entries import SLOT_MS
from rockhopper.broker.kernel.state_records import (
    StateKind,
    StateRecordError,
    encode_numbers,
    encode_slots,
)
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroup
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.replication.state import state_applier
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.protocol import fastjson
from rockhopper.protocol.subscription import Subscription
from tests.support.peers import Peer
from tests.support.state_rig import GROUP, Pair, new_writer


def test_topics_groups_and_values_are_there_after_a_failover(pair: Pair) -> None:
    master = pair.master

    async def change() -> None:
        master.tables.topics.put(TopicConfig("orders", read_queue_nums=3))
        master.tables.topics.put(TopicConfig("gone"))
        master.tables.topics.delete("gone")
        master.tables.groups.put(SubscriptionGroup(GROUP, retry_max_times=5))
        master.tables.groups.forbid(GROUP, "orders", readable=False)
        master.values.set_value("ORDER_TOPIC_CONFIG", "orders", "broker-a:4")

    master.run(change())
    pair.take()
    leader = pair.fail_over()
    orders, group = leader.tables.topics.get("orders"), leader.tables.groups.get(GROUP)
    assert orders is not None
    assert orders.read_queue_nums == 3
    assert "gone" not in leader.tables.topics
    assert group is not None
    assert group.retry_max_times == 5
    assert leader.tables.groups.is_forbidden(GROUP, "orders")
    assert leader.values.get("ORDER_TOPIC_CONFIG", "orders") == "broker-a:4"


def test_what_is_not_confirmed_is_not_applied(pair: Pair) -> None:
    confirmed = pair.master.store.log.written_offset
    pair.master.create_topic("orders")
    pair.follower.take(pair.master, confirmed)
    assert "orders" not in pair.follower.tables.topics
    pair.take()
    assert "orders" in pair.follower.tables.topics


def test_committed_offsets_come_a_moment_later(pair: Pair) -> None:
    master = pair.master

    async def commit() -> None:
        master.tables.offsets.commit("orders", GROUP, 0, 7)
        master.tables.offsets.commit("orders", "other", 0, 3)
        master.tables.offsets.delete_group("other")

    master.run(commit())
    pair.gather()
    assert pair.follower.tables.offsets.queues("orders", GROUP) == {0: 7}
    assert pair.follower.tables.offsets.queues("orders", "other") == {}


def test_a_topic_that_was_deleted_and_made_anew_holds_what_came_later(pair: Pair) -> None:
    master = pair.master
    master.create_topic("orders")
    master.put("orders", b"old")

    async def delete() -> None:
        master.tables.deletions.delete_topics(["orders"]).remove()
        master.tables.topics.delete("orders")

    master.run(delete())
    master.create_topic("orders")
    master.put("orders", b"new")
    pair.take()
    assert pair.follower.bodies("orders") == [b"new"]
    assert pair.fail_over().bodies("orders") == [b"new"]


def test_a_topic_that_was_purged_is_empty(pair: Pair) -> None:
    master = pair.master
    master.create_topic("orders")
    master.put("orders", b"old")

    async def purge() -> None:
        master.tables.deletions.purge_topics(["orders"])

    master.run(purge())
    master.put("orders", b"new")
    pair.take()
    assert pair.fail_over().store.reading.queue_range("orders", 0) == (1, 2)


def test_a_snapshot_tells_what_was_deleted_and_purged(pair: Pair) -> None:
    master, follower = pair.master, pair.follower
    master.create_topic("again")
    for topic in ("again", "gone", "purged"):
        master.put(topic, b"old")
    end = master.store.log.written_offset
    for topic in ("again", "purged"):
        master.put(topic, b"new")
    pair.take()
    ends = [{"again": end, "gone": end}, {"purged": end}]

    async def apply() -> None:
        follower.tables.deletions.apply(StateKind.ENDS, fastjson.dumps(ends).encode(), 0)

    for _ in range(2):  # as often as masters change
        follower.run(apply())
    topics = ("again", "gone", "purged")
    ranges = {topic: follower.store.reading.queue_range(topic, 0) for topic in topics}
    assert ranges == {"again": (1, 2), "gone": (0, 0), "purged": (1, 2)}


def test_queues_of_a_batch_topic_are_made_as_such(pair: Pair) -> None:
    master = pair.master

    async def create() -> None:
        batch = {"queue.type": "BatchCQ"}
        master.tables.topics.put(TopicConfig("batches", write_queue_nums=1, attributes=batch))

    master.run(create())
    master.put("batches")
    pair.take()
    layout = StoreLayout.from_config(pair.follower.config.store)
    assert (layout.batch_consume_queues / "batches").is_dir()


def test_a_delayed_message_is_delivered_once(pair: Pair) -> None:
    master = pair.master
    master.create_topic("orders")
    for body in (b"before", b"after"):
        master.put_delayed("orders", body)
        pair.pass_time(0.4)
    pair.take()
    assert pair.follower.bodies("orders") == []
    pair.pass_time(0.4)
    assert master.bodies("orders") == [b"before"]
    pair.take()
    leader = pair.fail_over()
    pair.pass_time(5)
    assert leader.bodies("orders") == [b"before", b"after"]


def test_a_delayed_message_whose_note_is_all_that_was_copied_is_delivered(pair: Pair) -> None:
    master = pair.master
    master.create_topic("orders")
    master.put_delayed("orders", b"hello")
    pair.take()
    before = master.store.log.written_offset
    pair.pass_time(2)
    note = next(iter(master.store.reading.records_from(before)))
    pair.follower.take(master, before + len(note))
    leader = pair.fail_over()
    pair.pass_time(5)
    assert leader.bodies("orders") == [b"hello"]


def test_timers_are_delivered_once(pair: Pair) -> None:
    master = pair.master
    master.create_topic("orders")
    now_ms = pair.clock()
    master.put_timer("orders", b"before", now_ms + 2_000)
    master.put_timer("orders", b"after", now_ms + 9_000)
    pair.pass_time(3)
    assert master.bodies("orders") == [b"before"]
    pair.take()
    leader = pair.fail_over()
    assert leader.kernel.scheduled.timers.pending_count == 1
    pair.pass_time(20)
    assert leader.bodies("orders") == [b"before", b"after"]


def test_a_log_that_was_copied_is_enough(pair: Pair) -> None:
    master = pair.master
    master.create_topic("orders")
    now_ms = pair.clock()
    master.put_timer("orders", b"timer", now_ms + 9_000)
    master.put_delayed("orders", b"delayed")
    pair.pass_time(2)

    async def tell() -> None:
        assert master.writer is not None
        master.writer.write_snapshot()

    master.run(tell())
    seeded = pair.member("seeded")
    seeded.follow()
    seeded.take(master)
    assert seeded.applier.is_whole
    pair.follower = seeded
    leader = pair.fail_over()
    pair.pass_time(20)
    assert leader.bodies("orders") == [b"delayed", b"timer"]


def test_a_follower_goes_on_where_it_was_killed(pair: Pair) -> None:
    pair.master.create_topic("before")
    pair.take()
    pair.pass_time(2)
    pair.follower.run(pair.follower.tables.saved())
    pair.loop.run(pair.follower.applier.saved())
    pair.follower.kill()
    again = pair.follower = pair.member("b")
    again.follow()
    assert again.applier.is_whole
    assert "before" in again.tables.topics
    pair.master.create_topic("after")
    pair.take()
    assert "after" in again.tables.topics


def test_a_snapshot_takes_away_what_an_ex_master_had(pair: Pair) -> None:
    confirmed = pair.master.store.log.written_offset
    pair.master.create_topic("unconfirmed")
    pair.follower.take(pair.master, confirmed)
    leader = pair.fail_over()
    leader.create_topic("orders")
    # What a cut leaves: the tables of the ex-master over the log up to there.
    fresh = pair.member("c")
    fresh.follow()

    async def have_tables() -> None:
        fresh.tables.topics.put(TopicConfig("unconfirmed"))

    fresh.run(have_tables())
    fresh.take(leader)
    assert "unconfirmed" not in fresh.tables.topics
    assert "orders" in fresh.tables.topics


def test_queue_locks_are_known_to_the_next_master(pair: Pair) -> None:
    master, peer = pair.master, Peer()
    queues = [("orders", "broker-a", queue_id) for queue_id in range(2)]

    async def lock() -> None:
        master.kernel.locks.lock(GROUP, "client", peer.connection, queues)
        master.kernel.locks.unlock(GROUP, "client", peer.connection, queues[:1])

    master.run(lock())
    pair.gather()
    assert {key: held[0] for key, held in pair.follower.tables.locks.held.items()} == {
        (GROUP, queues[1]): "client"
    }


def test_subscriptions_come_a_moment_later(pair: Pair) -> None:
    master = pair.master

    async def change() -> None:
        subscription = Subscription("orders", "*", "TAG", 1)
        master.tables.subscriptions.store_subscriptions(GROUP, {"orders": subscription}, 5)

    master.run(change())
    pair.gather()
    subscriptions = pair.follower.tables.subscriptions
    assert GROUP not in subscriptions
    pair.fail_over()
    assert GROUP in subscriptions


def test_queues_go_before_what_comes_later_whatever_the_tables_say(pair: Pair) -> None:
    master = pair.master
    master.put("orders", b"old")

    async def delete() -> None:
        master.tables.deletions.delete_topics(["orders"]).remove()

    master.run(delete())
    master.put("orders", b"new")
    pair.take()
    assert pair.follower.bodies("orders") == [b"new"]
    left = StoreLayout.from_config(pair.follower.config.store).deleted_queues
    assert list(left.iterdir()) == []


def test_what_is_dispatched_and_not_confirmed_waits(pair: Pair) -> None:
    master, follower = pair.master, pair.follower
    confirmed = master.store.log.written_offset

    async def make_group() -> None:
        master.tables.groups.put(SubscriptionGroup(GROUP))

    master.run(make_group())
    follower.take(master, replicated_offset=confirmed)
    assert follower.store.dispatch.offset > confirmed
    assert GROUP not in follower.tables.groups
    pair.take()
    assert GROUP in follower.tables.groups


def test_timers_that_were_delivered_while_there_was_no_set_are_not_again(pair: Pair) -> None:
    master = pair.master
    assert master.writer is not None
    master.create_topic("orders")
    master.writer.drop()
    now_ms = pair.clock()
    master.put_timer("orders", b"before", now_ms + 2_000)
    master.put_timer("orders", b"after", now_ms + 90_000)
    pair.pass_time(3)
    assert master.bodies("orders") == [b"before"]

    async def begin() -> None:
        new_writer(master).start()

    master.run(begin())
    seeded = pair.follower = pair.member("seeded")
    seeded.follow()
    pair.take()
    leader = pair.fail_over()
    assert leader.kernel.scheduled.timers.pending_count == 1
    pair.pass_time(200)
    assert leader.bodies("orders") == [b"before", b"after"]


def test_who_begins_to_lead_has_what_was_not_dispatched_yet(pair: Pair) -> None:
    master, follower = pair.master, pair.follower
    confirmed = master.store.log.written_offset

    async def make_group() -> None:
        master.tables.groups.put(SubscriptionGroup(GROUP))

    master.run(make_group())
    follower.take(master, dispatched_offset=confirmed)
    assert GROUP not in follower.tables.groups
    follower.run(follower.applier.finish())
    assert GROUP in follower.tables.groups


def test_dispatch_waits_for_a_topic_and_not_for_timers(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    master, follower = pair.master, pair.follower
    for number in range(2000):
        master.put_timer("orders", b"%d" % number, pair.clock() + 600_000)
    master.create_topic("orders")
    monkeypatch.setattr(state_applier, "SLICE_S", 0)
    dispatched: list[int] = []
    timers = follower.tables.timers.timers
    real = follower.store.catch_up

    def catch_up() -> bool:
        more = real()
        dispatched.append(timers.pending_count)
        return more

    monkeypatch.setattr(follower.store, "catch_up", catch_up)
    pair.take()
    assert "orders" in follower.tables.topics
    assert dispatched[-1] < 2000
    pair.loop.advance(0)
    while timers.pending_count < 2000:
        pair.loop.advance(0)


@pytest.fixture
def saves(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> "list[asyncio.Future[None]]":
    """Of each time that the follower saves its state: what that waits for, without a disk."""
    begun: list[asyncio.Future[None]] = []

    async def save() -> None:
        begun.append(asyncio.get_running_loop().create_future())
        await begun[-1]

    async def at_once(function: Callable[..., object], *arguments: object) -> object:
        return function(*arguments)

    monkeypatch.setattr(pair.follower.applier.state, "save", save)
    monkeypatch.setattr(asyncio, "to_thread", at_once)
    return begun


def test_what_comes_while_the_state_is_saved_is_saved_though_nothing_follows(
    pair: Pair, saves: "list[asyncio.Future[None]]"
) -> None:
    for name in ("first", "second"):
        pair.master.create_topic(name)
        pair.take()
        pair.pass_time(state_applier.SAVE_INTERVAL_S)
    assert len(saves) == 1
    saves[0].set_result(None)
    pair.pass_time(state_applier.SAVE_INTERVAL_S)
    assert len(saves) == 2
    saves[1].set_result(None)
    for _ in range(3):
        pair.pass_time(state_applier.SAVE_INTERVAL_S)
    assert len(saves) == 2


def test_a_state_that_could_not_be_saved_is_saved_later(
    pair: Pair, saves: "list[asyncio.Future[None]]"
) -> None:
    pair.master.create_topic("first")
    pair.take()
    pair.pass_time(state_applier.SAVE_INTERVAL_S)
    saves[0].set_exception(OSError("the disk is full"))
    pair.pass_time(0)
    pair.pass_time(state_applier.SAVE_INTERVAL_S)
    assert len(saves) == 2
    saves[1].set_result(None)


def test_a_kind_that_is_not_known_is_named(pair: Pair) -> None:
    with pytest.raises(StateRecordError, match="kind 99"):
        pair.follower.applier.state.apply(99, b"", 0)


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (StateKind.ENTRY, b""),
        (StateKind.ENTRY, b"\0\1x\0\1yz"),
        (StateKind.DELAYED, b"short"),
        (StateKind.DELETED, b"{"),
        (StateKind.PURGED, b"[]"),
        (StateKind.DOCUMENT, b"\0\x0btopics.json{}"),
        (StateKind.TIMERS, b"123"),
    ],
)
def test_what_makes_no_sense_is_told(pair: Pair, kind: StateKind, payload: bytes) -> None:
    async def take() -> None:
        with pytest.raises(StateRecordError):
            pair.follower.applier.state.apply(kind, payload, 0)

    pair.follower.run(take())


def test_a_pass_leaves_the_one_before_it_behind(pair: Pair) -> None:
    kept = pair.follower.applier.state

    async def take() -> None:
        kept.apply(StateKind.DELAYED, encode_numbers(1, 5, 8), 100)
        kept.apply(StateKind.DELAYED, encode_numbers(1, 8, 9), 200)

    pair.follower.run(take())
    assert pair.follower.tables.delays.table.offsets[1] == 8
    assert pair.follower.tables.delays.table.passes[1] == (1, 8, 9, 200)


def test_a_timer_that_is_noted_twice_counts_once_and_comes_back(pair: Pair) -> None:
    now_ms = pair.clock()
    for body in (b"1", b"2"):
        pair.master.put_timer("orders", body, now_ms + 600_000)
    pair.take()
    timers = pair.follower.tables.timers.timers
    assert timers.pending_count == 2
    slot = encode_slots([((now_ms + 600_000) // SLOT_MS, 0)])

    async def take(kind: StateKind) -> None:
        pair.follower.applier.state.apply(kind, slot, 100)

    for _ in range(2):
        pair.follower.run(take(StateKind.TIMERS))
        assert timers.pending_count == 1
    pair.follower.run(take(StateKind.TIMERS_UNDONE))
    assert timers.pending_count == 2
