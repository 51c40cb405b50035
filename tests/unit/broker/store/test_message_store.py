"""MessageStore as a whole: what is taken, when it is safe, and what a failure stops."""

import asyncio
import threading
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.settings.store_config import FlushDiskType
from rockhopper.broker.store.files.errors import (
    DeposedError,
    DiskFullError,
    StoreError,
    StoreFailedError,
)
from rockhopper.broker.store.message_store import MessageStore
from tests.support.open_files import open_files_in
from tests.support.open_stores import Stores, bodies, flush, messages, put, stage
from tests.support.store_listeners import NotedFailures

SYNC = FlushDiskType.SYNC
LOST = StoreFailedError("the disk is gone")


class Releases:
    """What parked answers got, by name."""

    def __init__(self) -> None:
        self.got: dict[str, StoreError | None] = {}

    def __call__(self, name: str) -> Callable[[StoreError | None], None]:
        return lambda error: self.got.update({name: error})


def test_put_says_where_a_message_stands(store: MessageStore, stores: Stores) -> None:
    put(store)
    stores.clock.advance(50)
    result = put(store, b"second", properties="KEYS\x01k\x02", reconsume_times=3)
    first, message = messages(store)
    assert result.commit_log_offset == message.commit_log_offset == first.size_bytes
    assert result.queue_offset == message.queue_offset == 1
    assert result.end_offset == store.log.written_offset == first.size_bytes + message.size_bytes
    assert result.store_time_ms == message.store_time_ms == first.store_time_ms + 50
    assert message.reconsume_times == 3
    assert len(store.reading.query("TopicA", "k", 32, 0, 2**62)) == 1


def test_what_is_written_is_safe_without_sync_flush(store: MessageStore) -> None:
    releases = Releases()
    end = put(store).end_offset
    assert (store.safe_point.is_what_is_written, store.safe_point.high_watermark) == (True, end)
    store.safe_point.when(end, releases("at its end"))
    assert releases.got == {"at its end": None}


async def test_under_sync_flush_only_what_is_on_disk_is_safe(stores: Stores) -> None:
    store, releases = stores.open(flush_disk_type=SYNC), Releases()
    first, second = put(store).end_offset, put(store).end_offset
    assert (store.safe_point.is_what_is_written, store.safe_point.high_watermark) == (False, 0)
    store.safe_point.when(first, releases("first"))
    store.safe_point.when(second, releases("second"))
    assert releases.got == {}
    assert not store.safe_point.has_dispatched(first)
    flush(store)
    assert releases.got == {"first": None, "second": None}
    assert store.safe_point.high_watermark == second
    assert store.safe_point.has_dispatched(second)


def test_what_waits_for_the_disk_is_dispatched_up_to_its_beginning(stores: Stores) -> None:
    store = stores.open(flush_disk_type=SYNC)
    first = put(store).end_offset
    flush(store)
    second = put(store).end_offset
    assert store.safe_point.has_dispatched(first)
    assert not store.safe_point.has_dispatched(second)
    assert bodies(store) == [b"hello"]


async def test_waiting_for_what_is_safe_already_takes_no_time(store: MessageStore) -> None:
    end = put(store).end_offset
    await store.safe_point.wait(end)
    flush(store)
    await store.safe_point.wait_for_disk(end)
    assert store.log.flushed_offset == end


async def test_flushed_asks_for_a_flush_and_waits(stores: Stores) -> None:
    store = await stores.start(flush_interval_ms=3_600_000)
    end = put(store).end_offset
    assert store.log.flushed_offset < end
    await store.safe_point.wait_for_disk(end)
    assert store.log.flushed_offset == end
    await store.close()


async def test_a_failure_is_told_once_to_all_who_wait_and_to_all_who_come(stores: Stores) -> None:
    store, releases = stores.open(flush_disk_type=SYNC), Releases()
    told = NotedFailures(store)
    end = put(store).end_offset
    store.safe_point.when(end, releases("parked"))
    with capture_logs() as logs:
        store.fail(LOST)
        store.fail(StoreFailedError("again"))
    assert told.errors == [LOST]
    assert [entry["reason"] for entry in logs] == ["the disk is gone"]
    store.safe_point.when(end, releases("late"))
    assert releases.got == {"parked": LOST, "late": LOST}
    with pytest.raises(StoreFailedError, match="gone"):
        await store.safe_point.wait(end)
    with pytest.raises(StoreFailedError, match="gone"):
        store.check_writable()
    assert not store.is_writable
    assert (stores.root / "abort").exists()


async def test_a_store_that_was_deposed_is_closed_cleanly_unless_it_opens_again(
    stores: Stores,
) -> None:
    store = await stores.start()
    end = put(store).end_offset
    store.depose(DeposedError("another leads"))
    await store.close(opens_again=True)
    assert (stores.root / "abort").exists()
    store = await stores.start()
    store.depose(DeposedError("another leads"))
    await store.close()
    assert not (stores.root / "abort").exists()
    store = await stores.start()
    assert store.log.written_offset == end
    await store.close()


async def test_a_store_that_was_deposed_and_failed_is_not_closed_cleanly(stores: Stores) -> None:
    for is_deposed_first in (True, False):
        store = await stores.start()
        if is_deposed_first:
            store.depose(DeposedError("another leads"))
        store.fail(LOST)
        store.depose(DeposedError("another leads"))
        await store.close()
        assert (stores.root / "abort").exists()


def test_a_full_disk_is_said_to_producers(store: MessageStore) -> None:
    assert store.is_writable
    store.retention.space.full_reason = "the disk is full: free some"
    assert not store.is_writable
    with pytest.raises(DiskFullError, match="free some"):
        put(store)
    store.retention.space.full_reason = None
    put(store)


def test_a_pass_is_counted_by_its_messages(store: MessageStore) -> None:
    store.staging.read_clock()
    for queue_id in (0, 0, 1):
        stage(store, queue_id=queue_id)
    end = store.log.staged_offset
    assert store.log.written_offset == 0
    assert store.commit() == end == store.log.written_offset
    put(store)
    counts = [text.split(":")[1] for text in store.put_times.distribution().split()]
    assert sum(map(int, counts)) == 4
    assert store.reading.topics() == ["TopicA"]


def test_a_lost_lock_stops_the_store(stores: Stores) -> None:
    store = stores.open()
    store.look_after_files()
    assert store.failure is None
    (stores.root / "lock").unlink()
    with capture_logs():
        store.look_after_files()
    assert store.is_lost
    assert store.failure is not None
    failure = store.failure
    store.look_after_files()
    assert store.failure is failure


async def test_a_stop_lets_everybody_see_what_was_held(stores: Stores) -> None:
    store = await stores.start()
    put(store)
    store.visibility.hold(store.staging.tail("TopicA", 0))
    put(store, b"held")
    assert bodies(store) == [b"hello"]
    await store.close()
    assert bodies(stores.open()) == [b"hello", b"held"]
    assert not asyncio.all_tasks() - {asyncio.current_task()}


async def test_a_stop_leaves_neither_files_open_nor_threads(stores: Stores) -> None:
    before = set(threading.enumerate())
    store = await stores.start()
    put(store, properties="KEYS\x01k\x02")
    await store.close()
    assert open_files_in(stores.root) == []
    mine = [thread for thread in threading.enumerate() if thread not in before]
    assert [thread.name for thread in mine if thread.name.startswith("asyncio") is False] == []


@pytest.mark.parametrize("mode", list(FlushDiskType))
def test_a_kill_before_the_file_of_a_new_queue_is_made_costs_nothing(
    stores: Stores, mode: FlushDiskType
) -> None:
    store = stores.open(flush_disk_type=mode)
    store.opened.mappings.drafts_max = 8  # As with a flush thread, which has no time here.
    for number in range(3):
        put(store, b"%d" % number, properties=f"KEYS\x01k{number}\x02")
    put(store, b"other", queue_id=1)
    flush(store)
    directory = stores.root / "consumequeue" / "TopicA"
    assert not directory.exists()
    assert bodies(store) == [b"0", b"1", b"2"]
    again = stores.reopen_after_kill(flush_disk_type=mode)
    report = again.opened.report
    assert (report.holes, report.lost_tail, report.lost_messages) == ([], None, {})
    assert report.log_end == store.log.written_offset
    assert (bodies(again), bodies(again, queue_id=1)) == ([b"0", b"1", b"2"], [b"other"])
    assert put(again).queue_offset == 3
    stopped = stores.reopen_after_stop(flush_disk_type=mode)
    assert (directory / "0").exists()
    assert stopped.opened.report.changed_queues == {}
    assert bodies(stopped) == [b"0", b"1", b"2"]
