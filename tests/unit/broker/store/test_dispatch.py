"""Dispatch: queues and index follow the log, fall behind when they cannot grow, and catch up."""

import asyncio
import errno
from collections.abc import Set
from pathlib import Path

import pytest

from rockhopper.broker.settings.broker_config import FlushDiskType
from rockhopper.broker.store import dispatch
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import DiskFullError
from rockhopper.broker.store.index.index_file import IndexFile
from rockhopper.broker.store.log.encoding import INDEX_KEY
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.queues.consume_queue import ConsumeQueue
from rockhopper.broker.store.queues.queue_tail import QueueTail
from rockhopper.protocol.store.message_codec import encode_batch
from tests.support.hang import HANG_S
from tests.support.open_stores import (
    BORN_HOST,
    Stores,
    bodies,
    close,
    flush,
    flush_derived_files,
    messages,
    put,
    stage,
)
from tests.support.store_listeners import Reader

KEYED = "UNIQ_KEY\x01U{0}\x02KEYS\x01k{0} all\x02TAGS\x01t\x02"


class FullDisk:
    """Lets no file grow below a directory, while told so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.is_full = True
        real = disk.preallocate

        def preallocate(descriptor: int, size_bytes: int, offset: int = 0) -> None:
            path = Path(f"/proc/self/fd/{descriptor}").readlink()
            if self.is_full and name in path.parts:
                raise OSError(errno.ENOSPC, "no room")
            real(descriptor, size_bytes, offset)

        monkeypatch.setattr(disk, "preallocate", preallocate)


class Waiter:
    """Notes what a queue's arrivals are reported as."""

    def __init__(self, store: MessageStore, topic: str = "TopicA", queue_id: int = 0) -> None:
        self.arrivals: list[tuple[int, set[int]]] = []
        store.staging.tail(topic, queue_id).waiters = Reader(self._arrived)

    def _arrived(self, _tail: QueueTail, end: int, codes: Set[int]) -> None:
        self.arrivals.append((end, set(codes)))


def keys_found(store: MessageStore, key: str) -> int:
    return len(store.reading.query("TopicA", key, 100, 0, 2**62))


def put_keyed(store: MessageStore, number: int) -> None:
    put(store, b"%d" % number, properties=KEYED.format(number))


def test_a_message_is_visible_and_found_in_the_same_turn(stores: Stores) -> None:
    store = stores.open()
    put_keyed(store, 1)
    assert bodies(store) == [b"1"]
    assert (keys_found(store, "U1"), keys_found(store, "k1"), keys_found(store, "all")) == (1, 1, 1)
    assert store.dispatch.offset == store.log.written_offset


def test_one_arrival_is_reported_for_all_messages_of_a_queue_in_a_pass(stores: Stores) -> None:
    store = stores.open()
    waiter = Waiter(store)
    store.staging.read_clock()
    for _ in range(3):
        stage(store)
    stage(store, queue_id=1)
    store.commit()
    assert waiter.arrivals == [(3, {0})]


@pytest.mark.parametrize("part", ["consumequeue", "index"])
def test_what_cannot_grow_falls_behind_and_catches_up(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    store = stores.open()
    full = FullDisk(monkeypatch, part)
    store.staging.read_clock()
    tail = store.staging.tail("TopicA", 0)
    for number in range(3):
        properties = KEYED.format(number)
        store.staging.stage_plain(tail, b"%d" % number, properties, b"", 0, 0, 0, BORN_HOST, 0)
    store.commit()
    waiter = Waiter(store)
    assert store.dispatch.offset == 0
    assert not store.is_writable
    with pytest.raises(DiskFullError, match="free disk space; messages already accepted are safe"):
        put(store)
    with pytest.raises(DiskFullError):
        store.catch_up()
    full.is_full = False
    assert not store.catch_up()
    assert store.is_writable
    assert bodies(store) == [b"0", b"1", b"2"]
    assert [keys_found(store, key) for key in ("U0", "k1", "all")] == [1, 1, 3]
    # What is in its queue can be read, whether the index has it or not.
    assert {end for end, _ in waiter.arrivals} == {3}
    put_keyed(store, 3)
    assert bodies(store)[3:] == [b"3"]


def test_nobody_is_woken_for_what_is_not_in_the_queue(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.open()
    waiter = Waiter(store)
    FullDisk(monkeypatch, "consumequeue")
    store.staging.read_clock()
    stage(store)
    store.commit()
    assert waiter.arrivals == []


def test_queues_of_a_pass_in_front_of_the_one_that_failed_are_served(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.open()
    put(store, b"a", "TopicA")
    waiter = Waiter(store)
    full = FullDisk(monkeypatch, "TopicB")
    store.staging.read_clock()
    for number, topic in enumerate("ABA"):
        stage(store, b"%d" % number, f"Topic{topic}")
    store.commit()
    assert bodies(store) == [b"a", b"0"]
    assert waiter.arrivals == [(2, {0})]
    full.is_full = False
    store.catch_up()
    assert bodies(store) == [b"a", b"0", b"2"]
    assert bodies(store, "TopicB") == [b"1"]


def test_messages_that_arrive_while_queues_are_behind_keep_their_order(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.open()
    full = FullDisk(monkeypatch, "consumequeue")
    # Passes that had begun before anybody knew.
    for number in range(3):
        store.staging.read_clock()
        stage(store, b"%d" % number, queue_id=number % 2)
        store.commit()
    full.is_full = False
    store.catch_up()
    assert (bodies(store), bodies(store, queue_id=1)) == ([b"0", b"2"], [b"1"])


def test_keys_are_indexed_once_though_dispatch_was_repeated(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.open()
    put_keyed(store, 0)
    puts: list[int] = []
    real = IndexFile.put_many

    def put_many(file: IndexFile, packed_keys: bytes | bytearray, time_ms: int) -> None:
        puts.append(len(packed_keys) // INDEX_KEY.size)
        if len(puts) == 1:
            real(file, packed_keys[: 2 * INDEX_KEY.size], time_ms)
            raise OSError(errno.ENOSPC, "no room")
        real(file, packed_keys, time_ms)

    with monkeypatch.context() as broken:
        broken.setattr(IndexFile, "put_many", put_many)
        put_keyed(store, 1)
        store.catch_up()
    assert puts == [3, 1]
    assert keys_found(store, "all") == 2
    index = store.opened.index
    assert index is not None
    assert list(index.candidates("TopicA", "all", 0, 2**62)) == [
        m.commit_log_offset for m in reversed(messages(store))
    ]


def test_an_inner_batch_that_was_left_behind_is_dispatched_as_one_record(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.open(batch_topics={"Batches"})
    full = FullDisk(monkeypatch, "batchconsumequeue")
    store.staging.read_clock()
    tail = store.staging.tail("Batches", 0)
    batch = encode_batch([(0, b"a", b""), (0, b"b", b"")])
    properties = {"INNER_NUM": "2", "INNER_BASE": "0"}
    store.staging.stage(tail, batch, properties, 0, 0xC0, 0, BORN_HOST, batch_count=2)
    store.staging.stage_batch(tail, batch, 0, 0, BORN_HOST)
    store.commit()
    full.is_full = False
    store.catch_up()
    assert store.reading.queue_range("Batches", 0) == (0, 4)
    assert bodies(store, "Batches") == [b"a", b"b", b"a", b"b"]


def test_a_number_of_messages_that_a_client_claims_means_nothing(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.open()
    full = FullDisk(monkeypatch, "consumequeue")
    store.staging.read_clock()
    batch = encode_batch([(0, b"a", b"INNER_NUM\x0150\x02"), (0, b"b", b"INNER_NUM\x01x\x02")])
    store.staging.stage_batch(store.staging.tail("TopicA", 0), batch, 0, 0, BORN_HOST)
    store.commit()
    full.is_full = False
    store.catch_up()
    assert bodies(store) == [b"a", b"b"]


def test_the_checkpoint_does_not_claim_what_is_not_in_the_queues(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.open()
    put(store)
    in_queues_ms = stores.clock.now_ms
    stores.clock.advance(10_000)
    full = FullDisk(monkeypatch, "TopicB")
    store.staging.read_clock()
    stage(store, topic="TopicB")
    store.commit()
    flush(store)
    flush_derived_files(store)
    saved = store.opened.checkpoint
    assert saved.commit_log_ms == stores.clock.now_ms
    assert saved.consume_queue_ms == saved.index_ms == in_queues_ms
    full.is_full = False
    store.catch_up()
    flush_derived_files(store)
    assert store.opened.checkpoint.consume_queue_ms == stores.clock.now_ms


def test_a_stop_that_leaves_queues_behind_is_not_clean(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.open()
    full = FullDisk(monkeypatch, "consumequeue")
    store.staging.read_clock()
    stage(store, b"late")
    store.commit()
    with pytest.raises(DiskFullError):
        store.catch_up()
    close(store)
    assert (stores.root / "abort").exists()
    full.is_full = False
    assert bodies(stores.open()) == [b"late"]


def test_a_deleted_topic_stays_deleted(stores: Stores) -> None:
    store = stores.open()
    put(store, b"gone")
    put(store, b"stays", "TopicB")
    store.visibility.delete_topics(["TopicA"]).remove()
    for opened in (store, stores.reopen_after_kill(), stores.reopen_after_stop()):
        assert opened.reading.queue_range("TopicA", 0) == (0, 0)
        assert bodies(opened) == []
        assert bodies(opened, "TopicB") == [b"stays"]


def test_a_topic_that_is_made_again_starts_at_zero_and_stays_so(stores: Stores) -> None:
    store = stores.open()
    for number in range(3):
        put(store, b"old %d" % number)
    store.visibility.delete_topics(["TopicA"]).remove()
    assert put(store, b"new").queue_offset == 0
    assert bodies(store) == [b"new"]
    killed = stores.reopen_after_kill()
    assert bodies(killed) == [b"new"]
    assert put(killed, b"newer").queue_offset == 1
    assert bodies(stores.reopen_after_stop()) == [b"new"]


def test_a_topic_deleted_before_its_messages_were_dispatched_stays_deleted(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.open()
    full = FullDisk(monkeypatch, "consumequeue")
    store.staging.read_clock()
    stage(store, b"gone")
    stage(store, b"stays", "TopicB")
    store.commit()
    store.visibility.delete_topics(["TopicA"]).remove()
    full.is_full = False
    store.catch_up()
    assert store.reading.queue_range("TopicA", 0) == (0, 0)
    assert bodies(store, "TopicB") == [b"stays"]
    assert not (stores.root / "consumequeue" / "TopicA").exists()
    assert put(store, b"new").queue_offset == 0


def test_a_topic_deleted_before_its_messages_were_flushed_stays_deleted(stores: Stores) -> None:
    store = stores.open(flush_disk_type=FlushDiskType.SYNC)
    put(store, b"early")
    flush(store)
    put(store, b"gone")
    store.visibility.delete_topics(["TopicA"]).remove()
    flush(store)
    assert store.reading.queue_range("TopicA", 0) == (0, 0)
    assert store.dispatch.offset == store.log.written_offset
    assert put(store, b"new").queue_offset == 0
    flush(store)
    assert bodies(store) == [b"new"]


async def test_the_reput_coroutine_goes_on_when_there_is_room_again(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "RETRY_INTERVAL_S", 0)
    store = await stores.start()
    # The send makes the file, as it does when too many wait for the flush thread.
    store.opened.mappings.drafts_max = 0
    full = FullDisk(monkeypatch, "consumequeue")
    store.staging.read_clock()
    stage(store, b"late")
    store.commit()
    arrived = asyncio.Event()
    store.staging.tail("TopicA", 0).waiters = Reader(lambda _tail, _end, _codes: arrived.set())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not store.is_writable
    full.is_full = False
    async with asyncio.timeout(HANG_S):
        await arrived.wait()
    assert bodies(store) == [b"late"]
    store.check_writable()
    await store.close()


async def test_catching_up_leaves_the_loop_to_others_in_between(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rockhopper.broker.store.dispatch.CATCH_UP_BYTES", 500)
    store = await stores.start()
    store.staging.read_clock()
    with monkeypatch.context() as broken:

        def fail(*_arguments: object) -> None:
            raise OSError(errno.EMFILE, "too many open files")

        broken.setattr(ConsumeQueue, "append_many", fail)
        for _ in range(20):
            stage(store, bytes(100))
        store.commit()
    seen: list[int] = []
    async with asyncio.timeout(HANG_S):
        while store.dispatch.offset < store.log.written_offset:
            seen.append(store.dispatch.offset)
            await asyncio.sleep(0)
    assert len(set(seen)) > 5
    assert len(bodies(store)) == 20
    await store.close()
