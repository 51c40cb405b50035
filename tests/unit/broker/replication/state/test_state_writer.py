"""What a master tells its followers, and when."""

import asyncio

import pytest

from rockhopper.broker.kernel.state_records import StateKind, decode_state
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.replication.state.state_writer import StateWriter
from rockhopper.broker.store.files.errors import NotReplicatedError
from rockhopper.protocol.names import STATE_TOPIC
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.state_rig import GROUP, Member, Pair


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


def test_it_begins_with_a_snapshot(pair: Pair) -> None:
    assert kinds(pair.master)[-1:] == [StateKind.SNAPSHOT]


def test_offsets_are_gathered_for_a_twentieth_of_a_second(pair: Pair) -> None:
    master, before = pair.master, end(pair.master)

    async def commit() -> None:
        for offset in range(100):
            master.tables.offsets.commit("orders", GROUP, 0, offset)

    master.run(commit())
    pair.pass_time(0.045)
    assert kinds(master, before) == []
    pair.pass_time(0.01)
    assert kinds(master, before) == [StateKind.OFFSETS]


def test_what_the_replicas_do_not_confirm_is_overdue_a_tenth_of_a_second_later(
    pair: Pair,
) -> None:
    master, store = pair.master, pair.master.store
    writer = writer_of(master)

    async def commit() -> int:
        store.safe_point.replicate(store.log.written_offset, 5000)
        master.tables.offsets.commit("orders", GROUP, 0, 1)
        return master.clock.passed_ms()

    async def confirm() -> None:
        store.safe_point.confirm(store.log.written_offset)

    committed_ms = master.run(commit())
    pair.pass_time(0.095)
    assert writer.overdue_since_ms() is None
    pair.pass_time(0.01)
    assert writer.overdue_since_ms() == committed_ms + 100
    master.run(confirm())
    assert writer.overdue_since_ms() is None


def test_an_answer_waits_for_the_replicas_though_nothing_more_is_told(pair: Pair) -> None:
    master = pair.master
    store = master.store

    async def change() -> None:
        store.safe_point.replicate(store.log.written_offset, 5000)
        master.tables.topics.put(TopicConfig("told"))
        saved = asyncio.ensure_future(master.tables.topics.saved())
        stopping = asyncio.ensure_future(writer_of(master).stop())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not saved.done()
        store.safe_point.confirm(store.log.written_offset)
        await saved
        await stopping
        master.tables.topics.put(TopicConfig("untold"))
        with pytest.raises(NotReplicatedError):
            await master.tables.topics.saved()
        await master.tables.saved()

    master.run(change())
    pair.follower.take(master)
    assert "told" in pair.follower.tables.topics


def test_an_answer_waits_for_the_replicas(pair: Pair) -> None:
    master = pair.master
    safe_point = master.store.safe_point

    async def change() -> None:
        safe_point.replicate(master.store.log.written_offset, 5000)
        master.tables.topics.put(TopicConfig("orders"))
        saved = asyncio.ensure_future(master.tables.topics.saved())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not saved.done()
        safe_point.confirm(master.store.log.written_offset)
        await saved

    master.run(change())


def test_an_answer_that_is_not_confirmed_in_time_says_so(pair: Pair) -> None:
    master = pair.master

    async def change() -> "asyncio.Task[None]":
        master.store.safe_point.replicate(master.store.log.written_offset, 5000)
        master.tables.topics.put(TopicConfig("orders"))
        return asyncio.ensure_future(master.tables.topics.saved())

    saved = master.run(change())
    while not saved.done():
        pair.pass_time(1)
    assert isinstance(saved.exception(), NotReplicatedError)


def test_at_a_planned_end_what_is_gathered_is_told(pair: Pair) -> None:
    master, before = pair.master, end(pair.master)

    async def commit_and_stop() -> None:
        master.tables.offsets.commit("orders", GROUP, 0, 5)
        await writer_of(master).stop()

    master.run(commit_and_stop())
    assert kinds(master, before) == [StateKind.OFFSETS]


def test_after_the_end_nothing_is_told(pair: Pair) -> None:
    master, before = pair.master, end(pair.master)

    async def drop_and_change() -> None:
        master.tables.offsets.commit("orders", GROUP, 0, 5)
        writer_of(master).drop()
        master.tables.topics.put(TopicConfig("orders", write_queue_nums=1))
        master.tables.offsets.commit("orders", GROUP, 0, 6)
        await master.tables.topics.on_disk()

    master.run(drop_and_change())
    master.put_delayed("orders", b"hello")
    pair.pass_time(5)
    assert kinds(master, before) == []
    assert master.bodies("orders") == [b"hello"]


def test_another_snapshot_comes_before_retention_takes_the_last(pair: Pair) -> None:
    master = pair.master
    master.create_topic("orders")
    file_size = master.config.store.commit_log_file_size_bytes
    while master.store.log.written_offset < 2.5 * file_size:
        master.put("orders", bytes(100_000))

    async def write() -> None:
        writer_of(master).write_snapshot()

    master.run(write())
    before = end(master)
    commit_log = master.store.opened.commit_log

    async def commit(offset: int) -> None:
        master.tables.offsets.commit("orders", GROUP, 0, offset)

    master.run(commit(1))
    pair.pass_time(0.2)
    assert StateKind.SNAPSHOT not in kinds(master, before)
    while master.store.log.written_offset < 3.5 * file_size:
        master.put("orders", bytes(100_000))
    commit_log.drop_files_before(2 * file_size)
    master.run(commit(2))
    pair.pass_time(0.2)
    assert StateKind.SNAPSHOT in kinds(master, before)
