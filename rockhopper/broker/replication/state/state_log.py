"""StateLog: a master's side of rmq_sys_rockhopper_state.

A record is staged at once, wherever the change happens. It is written with the open pass, or in the
next iteration of the loop. So the order of changes is the order of the log: a topic's record
precedes the first message sent to the topic.

Records of a failed pass are staged again until the store accepts them. A follower dispatches a
record marked *alone* by itself, before anything behind it. The mark is an IPv6 address of the
master in the record (protocol/store/walking.py).

    a topic is created, and its record staged with the pass of a send
    the pass fails: the disk is full; the record moves to ``_lost``
    one second later it is staged and written again
"""

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import structlog

from rockhopper.broker.kernel.state_records import NO_SNAPSHOT, Entry, encode_state
from rockhopper.broker.store.files.errors import (
    NotReplicatedError,
    RecordTooLargeError,
    StoreError,
)
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol.names import STATE_TOPIC
from rockhopper.protocol.sys_flags import SYS_FLAG_BORN_HOST_V6

log = structlog.get_logger("broker.ha")

STATE_QUEUE_ID = 0
RETRY_S = 1.0
_HOST = bytes(8)
_HOST_ALONE = bytes(20)


class _Told(NamedTuple):
    queue_offset: int
    entries: Sequence[Entry]
    is_alone: bool


class StateLog:
    """Writes state records. Belongs to the event loop."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._writer = secrets.randbits(64)
        self.snapshot = NO_SNAPSHOT
        """The queue offset of the newest complete snapshot's first record.

        The rest of the snapshot is in later records.
        """
        # Records that may be written, and records that are known to be missing.
        self._staged: deque[_Told] = deque()
        self._lost: deque[_Told] = deque()
        self._timer: asyncio.Handle | None = None
        self._is_failing = False
        self._is_closed = False

    @property
    def is_late(self) -> bool:
        """Whether some noted records are not written yet."""
        return bool(self._lost)

    def stage(self, entries: Sequence[Entry], *, alone: bool = False) -> int:
        """Add a record to the open pass; return its queue offset.

        The commit of the pass shows whether the record is written.

        Raises:
            StoreError: the record could not be added to the pass.
        """
        self._find_lost()
        tail = self._store.staging.tail(STATE_TOPIC, STATE_QUEUE_ID)
        queue_offset = tail.next_offset
        self._store.staging.stage(
            tail,
            encode_state(self._writer, self.snapshot, entries),
            {},
            0,
            SYS_FLAG_BORN_HOST_V6 if alone else 0,
            self._store.log.store_time_ms,
            _HOST_ALONE if alone else _HOST,
        )
        return queue_offset

    def note(self, entries: Sequence[Entry], *, alone: bool = False) -> None:
        """Write a record soon and retry until that succeeds; after ``close`` it is lost."""
        self._lost.append(_Told(-1, entries, alone))
        if self._is_closed:
            return
        self._stage_lost()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_soon(self.flush)

    def _stage_lost(self) -> None:
        self._find_lost()
        lost = self._lost
        while lost:
            told = lost[0]
            try:
                queue_offset = self.stage(told.entries, alone=told.is_alone)
            except RecordTooLargeError as error:
                log.error("a change is too large to replicate", reason=str(error))
                lost.popleft()
                continue
            except StoreError as error:
                self._is_late(error)
                return
            lost.popleft()
            self._staged.append(told._replace(queue_offset=queue_offset))

    def _find_lost(self) -> None:
        """Collect the records that a failed pass has lost."""
        if not self._staged:
            return
        next_offset = self._store.staging.tail(STATE_TOPIC, STATE_QUEUE_ID).next_offset
        while self._staged and self._staged[-1].queue_offset >= next_offset:
            self._lost.appendleft(self._staged.pop())

    def flush(self) -> None:
        """Write all noted records; must not be called during a pass."""
        if self._is_closed:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._stage_lost()
        try:
            if self._staged:
                self._store.commit()
        except StoreError as error:
            self._is_late(error)
        self._find_lost()
        self._staged.clear()
        if self._lost:
            self._timer = asyncio.get_running_loop().call_later(RETRY_S, self.flush)
        else:
            self._is_failing = False

    def _is_late(self, error: StoreError) -> None:
        if not self._is_failing:
            self._is_failing = True
            log.error("changes of state cannot be replicated", reason=str(error))

    async def wait_until_confirmed(self) -> None:
        """Return once all noted records are replicated, including those noted before ``close``.

        Raises:
            NotReplicatedError: this took too long. The change stays on this broker.
            StoreError: the store has failed.
        """
        # The caller may be within a pass.
        await asyncio.sleep(0)
        self.flush()
        if not self._lost:
            try:
                await self._store.safe_point.wait(self._store.log.written_offset)
            except NotReplicatedError:
                pass
            else:
                return
        raise NotReplicatedError(
            "this broker has made the change, but the other replicas of the set did not confirm "
            "it in time: a failover now may undo it. Check that they are connected (rockhopper "
            "ha status), and make the change again"
        )

    def close(self) -> None:
        """Stop writing. Staged records are written, or lost if that fails."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._staged:
            with contextlib.suppress(StoreError):
                self._store.commit()
            self._find_lost()
            self._staged.clear()
