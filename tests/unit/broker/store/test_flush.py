"""SYNC_FLUSH, the flush service and the checkpoint: nothing is told, or shown, before its fsync."""

import asyncio
import errno
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.settings.broker_config import FlushDiskType
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import (
    GeometryError,
    StoreBusyError,
    StoreError,
    StoreFailedError,
)
from rockhopper.broker.store.files.mapped_file import Mappings
from rockhopper.broker.store.flush import EXPIRY_INTERVAL_S, FlushService, ParkedAnswers
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.reading.get_result import GetStatus
from rockhopper.broker.store.safe_point import StoreListener
from tests.support.hang import HANG_S
from tests.support.killed_store import copy_killed
from tests.support.open_stores import (
    Stores,
    bodies,
    flush,
    put,
    stage,
)
from tests.support.stepped_loop import SteppedLoop
from tests.support.store_listeners import NotedFailures, Reader

SYNC = FlushDiskType.SYNC


class HeldDisk:
    """An fsync that waits until a test lets it go, and may fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Semaphore(0)
        self.count = 0
        self.error: OSError | None = None
        monkeypatch.setattr(disk, "sync_file", self._sync)

    def _sync(self, _descriptor: int) -> None:
        self.count += 1
        self.begun.release()
        self.go_on.acquire(timeout=HANG_S)
        if self.error is not None:
            raise self.error

    async def wait_until_begun(self) -> None:
        """Wait for the next fsync."""
        assert await asyncio.to_thread(self.begun.acquire, timeout=HANG_S)

    def release(self) -> None:
        """Let it go on."""
        self.go_on.release()

    def open(self) -> None:
        """Let all go on from now on."""
        for _ in range(1000):
            self.go_on.release()


class Answers:
    """Notes which parked answers were released, and how."""

    def __init__(self) -> None:
        self.released: list[tuple[str, StoreError | None]] = []
        self.changed = asyncio.Event()

    def __call__(self, name: str) -> Callable[[StoreError | None], None]:
        """A release that notes *name*."""

        def release(error: StoreError | None) -> None:
            self.released.append((name, error))
            self.changed.set()

        return release

    async def wait_for(self, count: int) -> None:
        """Wait until so many were released."""
        async with asyncio.timeout(HANG_S):
            while len(self.released) < count:
                self.changed.clear()
                await self.changed.wait()

    @property
    def names(self) -> list[str]:
        """Who was released, in order."""
        return [name for name, _ in self.released]


def commit(store: MessageStore, body: bytes = b"hello", queue_id: int = 0) -> int:
    store.check_writable()
    store.staging.read_clock()
    stage(store, body, queue_id=queue_id)
    return store.commit()


def test_a_message_is_shown_only_when_it_is_on_disk(stores: Stores) -> None:
    store = stores.open(flush_disk_type=SYNC)
    put(store, b"1", properties="KEYS\x01k\x02")
    assert store.reading.get_message("TopicA", 0, 0, 32).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    assert store.reading.query("TopicA", "k", 32, 0, 2**62) == []
    assert store.dispatch.offset == 0
    flush(store)
    assert bodies(store) == [b"1"]
    assert len(store.reading.query("TopicA", "k", 32, 0, 2**62)) == 1


def test_a_flush_shows_what_it_covers_and_no_more(stores: Stores) -> None:
    store = stores.open(flush_disk_type=SYNC)
    put(store, b"1")
    flushed = store.opened.commit_log.flush()
    put(store, b"2")
    store.note_flushed(flushed)
    assert bodies(store) == [b"1"]
    flush(store)
    assert bodies(store) == [b"1", b"2"]


def test_waiting_pulls_are_woken_only_when_the_message_is_on_disk(stores: Stores) -> None:
    store = stores.open(flush_disk_type=SYNC)
    ends: list[int] = []
    store.staging.tail("TopicA", 0).waiters = Reader(lambda _tail, end, _codes: ends.append(end))
    put(store)
    assert ends == []
    flush(store)
    assert ends == [1]


async def test_one_fsync_covers_what_was_written_during_the_one_before(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await stores.start(flush_disk_type=SYNC, flush_interval_ms=3_600_000)
    held, answers = HeldDisk(monkeypatch), Answers()
    store.safe_point.when(commit(store), answers("first"))
    await held.wait_until_begun()
    for name in ("second", "third", "fourth"):
        store.safe_point.when(commit(store), answers(name))
    assert answers.names == []
    held.release()
    await answers.wait_for(1)
    assert answers.names == ["first"]
    await held.wait_until_begun()
    held.release()
    await answers.wait_for(4)
    assert answers.released == [(n, None) for n in ("first", "second", "third", "fourth")]
    assert held.count == sum(store.flush_service.times.counts) == 2
    assert len(bodies(store)) == 4
    held.open()
    await store.close()


async def test_after_a_failed_fsync_everybody_is_told_and_nothing_is_taken(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await stores.start(flush_disk_type=SYNC)
    held, answers = HeldDisk(monkeypatch), Answers()
    failures = NotedFailures(store)
    store.safe_point.when(commit(store), answers("first"))
    await held.wait_until_begun()
    store.safe_point.when(commit(store), answers("second"))
    held.error = OSError(errno.EIO, "bad disk")
    held.open()
    await answers.wait_for(2)
    assert [(name, type(error)) for name, error in answers.released] == [
        ("first", StoreFailedError),
        ("second", StoreFailedError),
    ]
    assert failures.errors == [store.failure]
    assert not store.is_writable
    with pytest.raises(StoreFailedError, match="restart the broker"):
        put(store)
    assert bodies(store) == []
    fsyncs = held.count
    held.error = None
    await store.close()
    # Never repeated; and the next start reads what is really there.
    assert held.count == fsyncs
    assert (stores.root / "abort").exists()


async def test_waiting_for_the_disk_ends_with_the_fsync(stores: Stores) -> None:
    store = await stores.start(flush_disk_type=SYNC)
    end = put(store).end_offset
    async with asyncio.timeout(HANG_S):
        await store.safe_point.wait(end)
    assert store.log.flushed_offset >= end
    await store.safe_point.wait(end)
    await store.close()


async def test_under_async_flush_nobody_waits_and_the_interval_holds(stores: Stores) -> None:
    store = await stores.start(flush_interval_ms=1)
    result = put(store)
    await store.safe_point.wait(result.end_offset)
    flushed = asyncio.Event()

    class Listener(StoreListener):
        def store_flushed(self) -> None:
            if store.log.flushed_offset >= result.end_offset:
                flushed.set()

    store.listeners.add(Listener())
    async with asyncio.timeout(HANG_S):
        await flushed.wait()
    assert store.log.flushed_offset == result.end_offset
    await store.close()


def test_an_answer_that_waits_too_long_is_given_with_a_reason() -> None:
    loop = SteppedLoop()
    released: list[tuple[int, str]] = []
    parked = ParkedAnswers(5000, lambda end: StoreBusyError(f"not up to {end}"))

    async def park(number: int) -> None:
        parked.park(number, lambda error: released.append((number, str(error))))

    loop.run(park(1))
    loop.advance(EXPIRY_INTERVAL_S)
    loop.run(park(2))
    loop.advance(4.9 - EXPIRY_INTERVAL_S)
    assert released == []
    loop.advance(EXPIRY_INTERVAL_S)
    assert released == [(1, "not up to 1")]
    loop.advance(EXPIRY_INTERVAL_S)
    assert [number for number, _ in released] == [1, 2]
    assert len(parked) == 0
    parked.close()
    loop.close()


def test_too_much_that_waits_for_the_disk_is_refused(stores: Stores) -> None:
    store = stores.open(
        flush_disk_type=SYNC,
        flush_waiting_bytes_max=1 << 20,
        commit_log_file_size_bytes=4 << 20,
    )
    put(store, bytes(1 << 20))
    with pytest.raises(StoreBusyError, match=r"flow control .* 1 MiB wait for the disk"):
        put(store)
    flush(store)
    put(store)


def test_under_async_flush_nothing_is_refused_for_waiting(stores: Stores) -> None:
    store = stores.open(flush_waiting_bytes_max=1 << 20, commit_log_file_size_bytes=4 << 20)
    put(store, bytes(1 << 20))
    put(store)


def test_catching_up_goes_no_further_than_the_disk(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.open(flush_disk_type=SYNC)

    def no_room(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    commit(store, b"1")
    with monkeypatch.context() as full:
        full.setattr(disk, "preallocate", no_room)
        flush(store)
    assert not store.is_writable
    store.staging.read_clock()
    stage(store, b"2")
    store.commit()
    store.catch_up()
    assert bodies(store) == [b"1"]
    flush(store)
    assert bodies(store) == [b"1", b"2"]


def test_a_clean_stop_flushes_everything_and_says_so(stores: Stores) -> None:
    store = stores.open(flush_disk_type=SYNC)
    put(store, b"1")
    assert (stores.root / "abort").exists()
    reopened = stores.reopen_after_stop()
    saved = reopened.opened.checkpoint
    assert saved.commit_log_ms == saved.consume_queue_ms == saved.index_ms == stores.clock.now_ms
    assert bodies(reopened) == [b"1"]
    assert not (stores.root / "commitlog" / f"{4096:020d}").exists()


def test_after_a_kill_the_abort_file_is_there(stores: Stores) -> None:
    put(stores.open())
    killed = stores.reopen_after_kill()
    assert killed.opened.report.record_count == 1
    assert len(bodies(killed)) == 1


@pytest.mark.parametrize("clean", [True, False])
def test_a_setting_that_does_not_fit_the_store_changes_nothing(stores: Stores, clean: bool) -> None:
    put(stores.open(), properties="KEYS\x01k\x02")
    root = stores.root
    if clean:
        stores.close_all()
    else:
        root = copy_killed(stores.root, stores.root.with_name("killed"))
    with pytest.raises(GeometryError):
        stores.open(root, index_slot_count=99)
    assert (root / "abort").exists() is not clean
    assert len(bodies(stores.open(root))) == 1


class FakeWork:
    """What a flush thread flushes, and the store to which it reports."""

    def __init__(self, flush: Callable[[], int], steps: Callable[[bool], Iterator[None]]) -> None:
        self.flush = flush
        self.steps = steps
        self.failed: asyncio.Future[StoreFailedError] = asyncio.get_running_loop().create_future()

    def service(self, *, queue_flush_interval_ms: int) -> FlushService:
        each: Any = self
        return FlushService(
            each,
            each,
            Mappings(),
            self,
            flush_interval_ms=1,
            queue_flush_interval_ms=queue_flush_interval_ms,
            queue_flush_thorough_interval_ms=queue_flush_interval_ms,
        )

    def save_checkpoint(self) -> None:
        """Save nothing."""

    def note_flushed(self, offset: int) -> None:
        """Note nothing."""

    def fail(self, error: StoreFailedError) -> None:
        self.failed.set_result(error)


async def test_a_flush_thread_that_ends_by_a_mistake_ends_the_store() -> None:
    def flush_log() -> int:
        raise ZeroDivisionError("a mistake")

    work = FakeWork(flush_log, lambda _thorough: iter(()))
    service = work.service(queue_flush_interval_ms=1000)
    with capture_logs() as lines:
        service.start()
        error = await work.failed
        service.stop()
    assert "ZeroDivisionError" in str(error)
    assert [line["exc_info"].args for line in lines] == [("a mistake",)]


async def test_the_log_is_flushed_at_its_time_while_many_queues_are() -> None:
    flushed = threading.Semaphore(0)
    ended = threading.Event()
    was_flushed = False

    def flush_log() -> int:
        flushed.release()
        return 0

    def flush_ten_thousand_queues(_thorough: bool) -> Iterator[None]:
        while flushed.acquire(blocking=False):
            pass
        # They take longer than the interval on any machine.
        yield from itertools.repeat(None, 100_000)
        nonlocal was_flushed
        was_flushed = flushed.acquire(blocking=False)
        ended.set()

    service = FakeWork(flush_log, flush_ten_thousand_queues).service(queue_flush_interval_ms=1)
    service.start()
    assert await asyncio.to_thread(ended.wait, HANG_S)
    service.stop()
    assert was_flushed
