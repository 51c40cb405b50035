"""What is safe: written, on disk, and with replicas what they have confirmed of that."""

import pytest

from rockhopper.broker.settings.store_config import FlushDiskType
from rockhopper.broker.store.files.errors import (
    NotReplicatedError,
    StoreBusyError,
    StoreError,
)
from rockhopper.broker.store.flush import EXPIRY_INTERVAL_S
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.safe_point import StoreListener
from tests.support.killed_store import copy_killed
from tests.support.open_stores import Stores, bodies, flush, put
from tests.support.stepped_loop import SteppedLoop

SYNC = FlushDiskType.SYNC


def test_what_is_confirmed_is_safe_and_shown(store: MessageStore) -> None:
    first = put(store, b"first").end_offset
    store.safe_point.replicate(first, 5000)
    second = put(store, b"second").end_offset
    assert (store.safe_point.is_what_is_written, store.safe_point.high_watermark) == (False, first)
    assert bodies(store) == [b"first"]
    assert not store.safe_point.has_dispatched(second)
    store.safe_point.confirm(second)
    assert store.safe_point.high_watermark == second
    assert bodies(store) == [b"first", b"second"]
    assert store.safe_point.has_dispatched(second)


async def test_answers_wait_for_what_is_confirmed(store: MessageStore) -> None:
    store.safe_point.replicate(0, 5000)
    got: list[StoreError | None] = []
    ends = [put(store).end_offset for _ in range(3)]
    for end in ends:
        store.safe_point.when(end, got.append)
    store.safe_point.confirm(ends[1])
    assert got == [None, None]
    store.safe_point.confirm(ends[0])
    assert store.safe_point.high_watermark == ends[1]


async def test_what_is_confirmed_and_not_on_disk_is_not_safe_under_sync_flush(
    stores: Stores,
) -> None:
    store = stores.open(flush_disk_type=SYNC)
    store.safe_point.replicate(0, 5000)
    end = put(store).end_offset
    store.safe_point.confirm(end)
    assert store.safe_point.high_watermark == 0
    flush(store)
    assert store.safe_point.high_watermark == end
    assert bodies(store) == [b"hello"]


async def test_what_is_on_disk_and_not_confirmed_is_not_safe(stores: Stores) -> None:
    store = stores.open(flush_disk_type=SYNC)
    store.safe_point.replicate(0, 5000)
    end = put(store).end_offset
    flush(store)
    assert store.safe_point.high_watermark == 0
    store.safe_point.confirm(end)
    assert store.safe_point.high_watermark == end


async def test_waiting_for_the_disk_is_not_waiting_for_replicas(stores: Stores) -> None:
    store = await stores.start(flush_interval_ms=3_600_000)
    store.safe_point.replicate(0, 5000)
    end = put(store).end_offset
    await store.safe_point.wait_for_disk(end)
    assert store.log.flushed_offset == end
    assert store.safe_point.high_watermark == 0
    await store.close()


@pytest.mark.parametrize(
    ("sync", "on_disk", "error", "said"),
    [
        (False, False, NotReplicatedError, "the replicas did not confirm the message in time"),
        (True, True, NotReplicatedError, "the replicas did not confirm the message in time"),
        (True, False, StoreBusyError, "the disk did not confirm the flush in time"),
    ],
)
def test_who_waits_in_vain_is_told_for_what(
    stores: Stores, sync: bool, on_disk: bool, error: type[StoreError], said: str
) -> None:
    loop = SteppedLoop()
    disk = SYNC if sync else FlushDiskType.ASYNC
    store = stores.open(sync_flush_timeout_ms=1000, flush_disk_type=disk)
    store.safe_point.replicate(0, 1000)
    end = put(store).end_offset
    if on_disk:
        flush(store)
    got: list[StoreError | None] = []

    async def wait() -> None:
        store.safe_point.when(end, got.append)

    loop.run(wait())
    for _ in range(3):
        loop.advance(EXPIRY_INTERVAL_S)
    assert [(type(each), str(each)) for each in got] == [(error, said)]
    store.safe_point.close()
    loop.close()


def test_too_much_that_waits_is_refused_with_what_it_waits_for(stores: Stores) -> None:
    store = stores.open(flush_waiting_bytes_max=1 << 20, commit_log_file_size_bytes=4 << 20)
    store.safe_point.replicate(0, 5000)
    put(store, bytes(1 << 20))
    with pytest.raises(StoreBusyError, match="more than 1 MiB wait for replicas"):
        put(store)


def test_replicas_are_told_when_there_is_more_to_fetch(store: MessageStore) -> None:
    told: list[int] = []

    class Replicas(StoreListener):
        def store_written(self) -> None:
            told.append(store.log.written_offset)

    store.listeners.add(Replicas())
    store.safe_point.replicate(0, 5000)
    ends = [put(store).end_offset for _ in range(2)]
    assert told == ends


def test_what_was_safe_stays_so_when_each_message_must_be_on_disk(stores: Stores) -> None:
    store = stores.open()
    first = put(store, b"first").end_offset
    assert (store.safe_point.high_watermark, store.log.flushed_offset) == (first, 0)
    store.safe_point.flush_each(True)
    assert (store.safe_point.high_watermark, store.safe_point.is_what_is_written) == (
        first,
        False,
    )
    second = put(store, b"second").end_offset
    assert bodies(store) == [b"first"]
    flush(store)
    assert store.safe_point.high_watermark == second
    assert bodies(store) == [b"first", b"second"]


def test_what_waits_for_the_disk_is_let_go_when_it_need_not_any_more(stores: Stores) -> None:
    store = stores.open(flush_disk_type=SYNC)
    end = put(store).end_offset
    assert bodies(store) == []
    store.safe_point.flush_each(False)
    assert (store.safe_point.high_watermark, store.safe_point.is_what_is_written) == (
        end,
        True,
    )
    assert bodies(store) == [b"hello"]
    put(store, b"next")
    assert bodies(store) == [b"hello", b"next"]


def test_a_crash_after_the_change_to_async_flush_is_no_damage(stores: Stores) -> None:
    """Under SYNC_FLUSH units of queues prove how far the log reached."""
    for has_noted in (True, False):
        store = stores.open(stores.root / f"{has_noted}", flush_disk_type=SYNC)
        put(store, b"durable")
        flush(store)
        end = store.log.flushed_offset
        if has_noted:
            store.note_async_flush()
        store.safe_point.flush_each(False)
        put(store, b"in the page cache")
        killed = copy_killed(store.opened.layout.root, stores.root.parent / f"killed-{has_noted}")
        with open(next((killed / "commitlog").iterdir()), "r+b") as log:
            log.seek(end)
            log.write(bytes(500))
        again = stores.open(killed, flush_disk_type=SYNC)
        assert (again.log.written_offset == end) is has_noted
