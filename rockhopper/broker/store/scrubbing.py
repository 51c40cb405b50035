"""The scrub: reads the commit log in the background and finds corruption before a reader does.

It walks the records in the order of the log, from the oldest to the log's tail, and then starts
again. It checks the sizes, the place and the body's CRC of each record, and compares its queue's
entry with it, including the tags code. It logs and counts damage, and repairs wrong entries. The
format has no checksum of properties, so only inconsistent properties are found.

A setting limits the bytes per second, with another value for off-peak hours. Pages are loaded into
memory in a thread; each step in the event loop takes a fraction of a millisecond. A record counts
as at least a kilobyte, because small ones cost as much.

The scrub also continues the searches that readers began for records of wrong entries
(entry_repair.py).
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol, Self

import structlog

from rockhopper.broker.settings.store_config import StoreConfig
from rockhopper.broker.store.dispatch import Dispatch
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.index_scrubbing import IndexScrub
from rockhopper.broker.store.opening import OpenedStore
from rockhopper.broker.store.reading.message_reader import MessageReader
from rockhopper.broker.store.recovering.entry_repair import EntryRepair, RecordPlaces
from rockhopper.protocol.properties import PROPERTY_INNER_MULTI_QUEUE_OFFSET
from rockhopper.protocol.store.expected import expected
from rockhopper.protocol.store.record_head import BLANK_RECORD, MAGIC_BLANK
from rockhopper.tasks import complete_in_thread, end_task, keep_running

log = structlog.get_logger("broker.store")

SLICE_RECORDS = 16
CHUNK_BYTES = 256 << 10
RECORD_COST_BYTES = 1024
RETRY_S = 60.0
_LIGHT_QUEUES = PROPERTY_INNER_MULTI_QUEUE_OFFSET.encode()


class ScrubSettings(NamedTuple):
    """How fast and how often; broker/settings/store_config.py names the settings."""

    bytes_per_second: int
    off_peak_bytes_per_second: int
    off_peak_hours: str
    interval_ms: int

    @classmethod
    def from_config(cls, config: StoreConfig) -> Self:
        """Return the settings of a store."""
        return cls(
            config.scrub_bytes_per_second,
            config.scrub_off_peak_bytes_per_second,
            config.scrub_off_peak_when,
            config.scrub_interval_ms,
        )

    def rate_at(self, now_ms: int) -> int:
        """Return the bytes per second at the local hour; 0 turns the scrub off."""
        hour = time.localtime(now_ms / 1000).tm_hour
        hours = (part.strip() for part in self.off_peak_hours.split(";"))
        is_off_peak = any(part.isdigit() and int(part) == hour for part in hours)
        return self.off_peak_bytes_per_second if is_off_peak else self.bytes_per_second


class Scrub:
    """Pass after pass over a log, a slice at a time."""

    def __init__(
        self,
        opened: OpenedStore,
        places: RecordPlaces,
        mender: EntryRepair,
        reader: MessageReader,
        *,
        dispatched: Callable[[], int],
    ) -> None:
        """*dispatched* returns the offset up to which messages are in their queues."""
        self._log = opened.commit_log
        self._queues = opened.queues
        self._places = places
        self._mender = mender
        self._reader = reader
        self.index = None if opened.index is None else IndexScrub(opened.index, opened.layout)
        self._dispatched = dispatched
        self._is_gone = opened.is_gone
        self._delay_ms = opened.delay_ms
        self.pass_count = 0
        """Passes completed since the start."""
        self.start_pass()

    @property
    def end_offset(self) -> int:
        """Where this pass ends: the log's tail is new, and was checked on arrival."""
        return min(self._reader.tail_start, self._dispatched())

    def start_pass(self) -> None:
        """Begin a pass."""
        self.log_offset = self._log.min_offset
        if self.index is not None:
            self.index.start_pass(self.log_offset)

    def step(self) -> int:
        """Check some records or entries; return the cost in bytes, 0 at the end of the pass."""
        cost = 0
        if self.log_offset < self._log.min_offset:
            self.start_pass()
        if self.index is None or not self.index.is_behind:
            cost = self._look_at_some()
        if self.index is not None:
            cost += self.index.step(is_last=self.log_offset >= self.end_offset)
        if not cost:
            self.pass_count += 1
        return cost

    def places(self) -> list[tuple[str, int, int]]:
        """Return path, start and size of the next pieces of files to be read."""
        is_behind = self.index is not None and self.index.is_behind
        is_over = is_behind or self.log_offset >= self.end_offset
        log_place = None if is_over else self._log.place_of(self.log_offset, CHUNK_BYTES)
        index_place = None if self.index is None else self.index.place()
        return [place for place in (log_place, index_place) if place is not None]

    def _look_at_some(self) -> int:
        cost = 0
        for _ in range(SLICE_RECORDS):
            if self.log_offset >= self.end_offset:
                break
            before = self.log_offset
            self._look_at(before)
            cost += max(min(self.log_offset - before, CHUNK_BYTES), RECORD_COST_BYTES)
        return cost

    def _look_at(self, log_offset: int) -> None:
        found = self._places.read_claimed(log_offset)
        if found is None:
            self.log_offset = self._beyond(log_offset)
            return
        record, check = found
        self.log_offset = log_offset + len(record)
        is_sound = self._reader.check_body(record, check)
        own = self._queues.get(check.topic, check.queue_id)
        units, keys = expected(
            check.record, is_batch=own is not None and own.IS_BATCH, delay_ms=self._delay_ms
        )
        if self.index is not None:
            is_gone = self._is_gone(check.topic, log_offset)
            self.index.expect(check, keys, is_needed=is_sound and not is_gone)
        for unit in units:
            queue = self._queues.get(unit.place.topic, unit.place.queue_id)
            if queue is not None and not self._is_gone(unit.place.topic, log_offset):
                self._mender.compare(queue, unit)

    def _beyond(self, log_offset: int) -> int:
        """Return where the log continues after bytes that are not a record."""
        head = self._log.read(log_offset, log_offset + BLANK_RECORD.size)
        if len(head) < BLANK_RECORD.size or BLANK_RECORD.unpack(head)[1] == MAGIC_BLANK:
            return self._log.next_file_offset(log_offset)
        behind = self._places.proven_behind(log_offset)
        end = self._log.next_file_offset(log_offset) if behind is None else behind
        self._reader.report(log_offset, "the head of the record is damaged", beyond=end)
        if self.index is not None:
            self.index.expect_anything(log_offset, end)
        return end


class Wake(asyncio.Event):
    """Set when the scrub must not wait for its next chunk, because a search is not over."""


class Scrubbed(Protocol):
    """Files outside the store that are checked as well."""

    async def scrub(self) -> None:
        """Check them."""


class ScrubService:
    """Drives a Scrub at its rate. Belongs to the event loop."""

    def __init__(
        self,
        scrub: Scrub,
        mender: EntryRepair,
        dispatch: Dispatch,
        settings: ScrubSettings,
        wall_ms: Callable[[], int],
        wake: Wake,
    ) -> None:
        """*wake* is set by *mender* when a search takes long."""
        self.passes = scrub
        self._mender = mender
        self._dispatch = dispatch
        self.settings = settings
        self._wall_ms = wall_ms
        self.wake = wake
        self._task: asyncio.Task[None] | None = None
        self.others: list[Scrubbed] = []
        """Scrubbed at the end of each pass."""

    @property
    def mended_count(self) -> int:
        """How many entries of queues and index were repaired since the start."""
        index = self.passes.index
        return self._mender.mended_count + (0 if index is None else index.mended_count)

    @property
    def index_fault_count(self) -> int:
        """How many faults of the index and its keys were logged but not repaired in place."""
        return 0 if self.passes.index is None else self.passes.index.fault_count

    def start(self) -> None:
        """Start the task; needs a running event loop."""
        self._task = keep_running(self._run, "scrub")

    async def stop(self) -> None:
        """End the task between two slices."""
        if self._task is not None:
            end_task(self._task)
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        while True:
            try:
                pause_s = await self.do_a_chunk()
            except (StoreError, OSError) as error:
                log.error("the scrub cannot read and will retry", reason=str(error))
                pause_s = RETRY_S
            self.wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self.wake.wait()
            while self.wake.is_set() and self._mender.is_searching:
                self.search()
                await asyncio.sleep(0)

    def search(self) -> None:
        """Continue a search that a reader began; notify readers when it has ended."""
        ended = self._mender.go_on()
        if ended is not None:
            self._dispatch.wake_readers(*ended)

    async def do_a_chunk(self) -> float:
        """Scrub a chunk; return how many seconds to wait before the next one."""
        rate = self.settings.rate_at(self._wall_ms())
        if rate <= 0:
            return RETRY_S
        scrub = self.passes
        for path_and_range in scrub.places():
            await complete_in_thread(_bring_into_memory, *path_and_range)
        cost = 0
        while cost < min(CHUNK_BYTES, rate):
            more = scrub.step()
            if not more:
                if not cost:
                    for other in self.others:
                        await other.scrub()
                    scrub.start_pass()
                    return self.settings.interval_ms / 1000
                break
            cost += more
            await asyncio.sleep(0)
        return cost / rate


def _bring_into_memory(path: str, start: int, size_bytes: int) -> None:
    """Read a piece of a file, so that accesses to its mapping do not wait for the disk. Blocks."""
    with contextlib.suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.pread(descriptor, size_bytes, start)
        finally:
            os.close(descriptor)
