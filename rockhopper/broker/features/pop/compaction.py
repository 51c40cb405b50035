"""Compaction: rewrites the journal without obsolete records, in small steps.

From the start of a compaction, new records go to a new file. The current state is written to that
file too, lane by lane. Then a thread syncs the file, and the older files are deleted.
"""

import asyncio
from collections import deque

import structlog

from rockhopper.broker.features.pop.lanes import Lane, Lanes, lane_record
from rockhopper.broker.store.files.record_journal import RecordJournal
from rockhopper.tasks import run_in_background

log = structlog.get_logger("broker.pop")

SIZE_BYTES_MIN = 4 << 20
BYTES_PER_TURN = 128 << 10
RETRY_S = 30.0


class Compaction:
    """Belongs to the event loop."""

    def __init__(
        self, journal: RecordJournal, lanes: Lanes, *, size_bytes_min: int = SIZE_BYTES_MIN
    ):
        self._journal = journal
        self._lanes = lanes
        self._size_bytes_min = size_bytes_min
        self._threshold = size_bytes_min
        self._todo: deque[Lane] = deque()
        self._timer: asyncio.Handle | None = None
        self.deleting: asyncio.Task[None] | None = None

    def consider(self) -> None:
        """Begin if the newest file has grown enough."""
        if (
            self._journal.size_bytes < self._threshold
            or self._timer is not None
            or self.deleting is not None
        ):
            return
        try:
            self._journal.rotate()
        except OSError as error:
            log.error("pop journal not compacted, will retry", reason=str(error))
            self._timer = asyncio.get_running_loop().call_later(RETRY_S, self._compact_later)
            return
        self._todo = deque(self._lanes)
        self._timer = asyncio.get_running_loop().call_soon(self._step)

    def _compact_later(self) -> None:
        self._timer = None
        self.consider()

    def _step(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        records: list[bytes] = []
        size_bytes = 0
        while self._todo and size_bytes < BYTES_PER_TURN:
            lane = self._todo.popleft()
            if not lane.is_dropped:
                records.append(lane_record(lane))
                size_bytes += len(records[-1])
        try:
            if records:
                self._journal.append(b"".join(records))
        except OSError as error:
            # The older files stay and remain valid.
            log.error("pop journal not compacted, will retry", reason=str(error))
            self._threshold = self._journal.size_bytes + self._size_bytes_min
            self._todo.clear()
            return
        if self._todo:
            self._timer = loop.call_soon(self._step)
            return
        self._threshold = max(self._size_bytes_min, 3 * self._journal.size_bytes)
        self.deleting = run_in_background(self._forget_older(), "pop journals")

    async def _forget_older(self) -> None:
        try:
            await asyncio.to_thread(self._journal.forget_older)
        except OSError as error:
            log.error("old pop journals not deleted", reason=str(error))
        finally:
            self.deleting = None

    async def close(self) -> None:
        """Wait for the thread, and start no further compaction."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.deleting is not None:
            await self.deleting
