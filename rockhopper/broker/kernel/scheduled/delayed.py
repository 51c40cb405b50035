"""Delivers delayed messages when they are due: RocketMQ's ScheduleMessageService.

Each delay level is a queue of SCHEDULE_TOPIC_XXXX. All messages in it wait equally long, so its
first message is always the next one due. A level therefore needs one timer, for its first message;
an empty level waits for an arrival like a pull. Nothing is polled.

``config/delayOffset.json`` contains the progress of each level:

    {"dataVersion": {…}, "offsetTable": {<level>: <queue offset of the next message>, …}}

An offset is saved only after the messages before it are known to be on disk. After a crash, later
deliveries are recognized as follows: delay_journal.py records each pass before it is written, and
the log shows whether it was. Journal entries are on disk half a second later. So a power cut may
repeat the deliveries of the last half second; no message is lost.

    the table says 10; the journal has the pass 10 to 12; a kill follows
    the log has the copies of 10 and 11    delivery continues at 12
    the log has no copy                    delivery continues at 10

A missing file, or a damaged one without a backup, does not prevent a start: the progress of each
level is then derived from the log (delay_search.py).

A delivered message keeps its properties DELAY, REAL_TOPIC and REAL_QID, as in RocketMQ.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from pathlib import Path

import structlog

from rockhopper.broker.kernel.pull.long_polling import LongPolling, ParkedPull
from rockhopper.broker.kernel.scheduled.delay_journal import DelayJournal, Pass
from rockhopper.broker.kernel.scheduled.delay_search import DelaySearch
from rockhopper.broker.kernel.scheduled.journal_sync import JournalSync
from rockhopper.broker.kernel.scheduled.last_flush import last_flush
from rockhopper.broker.kernel.scheduled.timers.copies import find_written_copies, stage_copy
from rockhopper.broker.kernel.state import State
from rockhopper.broker.kernel.state_channels import Channel, StateChannels
from rockhopper.broker.kernel.state_records import StateKind, decode_numbers, encode_numbers
from rockhopper.broker.kernel.tables.json_table import JsonObject, JsonTable
from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.server.loop.clock import wall_clock_ms
from rockhopper.broker.server.loop.part import Part
from rockhopper.broker.server.loop.wall_waits import WallTimer
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.settings.delay_levels import DelayLevels
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import CorruptFileError, StoreError
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.queues.queue_tail import QueueTail
from rockhopper.broker.store.reading.get_result import GetStatus
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.names import SCHEDULE_TOPIC
from rockhopper.protocol.properties import PROPERTY_REAL_TOPIC
from rockhopper.protocol.store.message_codec import decode_messages
from rockhopper.tasks import run_in_background

log = structlog.get_logger("broker.delayed")

SAVE_INTERVAL_S = 10.0
RETRY_S = 1.0
BATCH_COUNT_MAX = 32
VERSION_STEP = 200

_MISSING = (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE)
_MOVED = (GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY)


class DelayOffsetTable(JsonTable):
    """Level -> queue offset of the next message to deliver.

    Counts only deliveries that are on disk.
    """

    def __init__(self, path: Path, *, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        super().__init__(path, now_ms=now_ms)
        self.offsets: dict[int, int] = {}
        self._updates = 0
        self.is_damaged = False
        self.passes: dict[int, Pass] = {}
        """On a follower: the last pass of each level; the log shows how far it came."""

    def load(self) -> bool:
        """Load as JsonTable does, but leave an unreadable table empty: the log has its content.

        Raises:
            OSError: the file cannot be opened.
        """
        try:
            return super().load()
        except CorruptFileError as error:
            log.error(
                "delay offsets cannot be read and are derived from the log", reason=error.reason
            )
            self.is_damaged = True
            return False

    def to_json(self) -> JsonObject:
        """Return the content of delayOffset.json."""
        return {"dataVersion": self.version.to_json(), "offsetTable": dict(self.offsets)}

    def from_json(self, document: JsonObject) -> None:
        """Load the offsets of a delayOffset.json, with bare or quoted levels."""
        table = document.get("offsetTable")
        if not isinstance(table, dict):
            raise ValueError("it has no offsetTable")
        self.offsets = {int(level): int(offset) for level, offset in table.items()}

    def take_copy(self, data: bytes) -> None:
        """Replace the table by another broker's; its passes are not known here."""
        super().take_copy(data)
        self.passes.clear()

    def set_offset(self, level: int, offset: int) -> None:
        """Set the offset of *level*, to be written with the next save."""
        if self.offsets.get(level) == offset:
            return
        self.offsets[level] = offset
        self._updates += 1
        if self._updates % VERSION_STEP == 0:
            self.version.advance(self._now_ms())
        self.mark_changed()


class _Waiting(ParkedPull):
    """A level that waits for its next message."""

    __slots__ = ("_delayed", "_level")

    def __init__(
        self, delayed: "DelayedDelivery", level: int, tail: QueueTail, offset: int
    ) -> None:
        super().__init__(None, tail, offset)
        self._delayed = delayed
        self._level = level

    def rerun(self) -> None:
        self._delayed.soon(self._level)


class DelayState(State):
    """The levels, and how far each was delivered.

    kind  payload
      5   DELAYED: level:8 first queue offset:8 offset behind the last:8, of a pass whose copies
          follow in the log
    """

    kinds = (StateKind.DELAYED,)

    def __init__(
        self, config: BrokerConfig, channels: StateChannels, *, now_ms: Callable[[], int]
    ) -> None:
        layout = StoreLayout.from_config(config.store)
        self.levels = DelayLevels(config.live.delay_levels)
        self.table = DelayOffsetTable(layout.config / "delayOffset.json", now_ms=now_ms)
        self.tables = {self.table: None}
        self._layout = layout
        self.next_offsets: dict[int, int] = {}
        """The next message of each level that is delivered here; not all before it is on disk."""
        self._channel = channels.channel(StateKind.DELAYED, Channel.STAGED)

    def offset(self, level: int) -> int:
        """Return the queue offset of the next message that *level* delivers."""
        return self.next_offsets.get(level, self.table.offsets.get(level, 0))

    def stage(self, about: Pass) -> None:
        """Add a pass to the open commit, before its copies. Raises StoreError."""
        if self._channel.is_replicated:
            self._channel.note(encode_numbers(about.level, about.first_offset, about.end_offset))

    def known_offsets(self) -> dict[tuple[str, int], int]:
        """Return the queues of the levels, with the next message of each."""
        return {(SCHEDULE_TOPIC, level - 1): offset for level, offset in self.table.offsets.items()}

    def document(self, table: JsonTable) -> JsonObject:
        """Return the table with the offsets that are delivered, whether on disk or not."""
        levels = range(1, self.levels.level_max + 1)
        return {**table.to_json(), "offsetTable": {level: self.offset(level) for level in levels}}

    def apply(self, kind: int, payload: bytes, log_offset: int) -> None:
        """Apply a pass.

        All messages before the pass were delivered. A promotion determines which of its own were.
        """
        level, first_offset, end_offset = decode_numbers(payload, 3)
        self.table.set_offset(level, first_offset)
        self.table.passes[level] = Pass(level, first_offset, end_offset, log_offset)

    async def leave(self) -> None:
        """Write the last passes to the journal. Raises OSError."""
        journal = DelayJournal(self._layout.own / "delay", self._layout.quarantine)
        journal.open()
        for about in self.table.passes.values():
            journal.note(about)
        journal.close()


class DelayedDelivery(Part):
    """Delivers the messages of all delay levels to their topics. Belongs to the event loop."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        long_polling: LongPolling,
        stats: BrokerStats,
        state: DelayState,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._topics = topics
        self._long_polling = long_polling
        self._stats = stats
        self._state = state
        self.levels = state.levels
        self._now_ms = now_ms
        self.table = state.table
        self._next = state.next_offsets
        self._delivered: deque[tuple[int, int, int]] = deque()
        self._timers = {level: WallTimer(now_ms) for level in range(1, self.levels.level_max + 1)}
        self._save_timer: asyncio.TimerHandle | None = None
        self._failing = False
        self._is_running = False
        # The next message of a waiting level, cached so that it need not be read again.
        self._heads: dict[int, StoredMessage] = {}
        self._journal = DelayJournal(
            store.opened.layout.own / "delay", store.opened.layout.quarantine
        )
        self._sync = JournalSync(self._journal)
        self._saving: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Find the deliveries since the last save of delayOffset.json. The store must be open.

        Raises:
            OSError: the journal cannot be read or created.
        """
        self._find_levels_that_are_no_more()
        self._find_unknown_offsets()
        offsets = self.table.offsets
        passes = self._journal.open()
        for about in sorted(passes, key=lambda about: about.log_end, reverse=True):
            if about.end_offset > offsets.get(about.level, 0):
                end_offset = self._find_written_end(about)
                if end_offset > offsets.get(about.level, 0):
                    self.table.set_offset(about.level, end_offset)

    def _find_levels_that_are_no_more(self) -> None:
        """Create timers for levels that still hold messages but are no longer in the setting."""
        for queue_id in self._store.reading.queue_ids(SCHEDULE_TOPIC):
            level = queue_id + 1
            if level in self._timers:
                continue
            self._timers[level] = WallTimer(self._now_ms)
            end_offset = self._store.reading.queue_range(SCHEDULE_TOPIC, queue_id)[1]
            if self.table.offsets.get(level, 0) < end_offset:
                log.warning(
                    "messages wait at a delay level that messageDelayLevel does not define: they "
                    "are delivered by the time of the last level",
                    level=level,
                    levels=self.levels.level_max,
                )

    def _find_unknown_offsets(self) -> None:
        """Derive from the log the progress of levels that the table lacks."""
        if self.table.is_damaged:
            layout = self._store.opened.layout
            for path in (self.table.path, disk.backup_path(self.table.path)):
                if path.exists():
                    disk.copy_aside(path, layout.quarantine / "config" / path.name)
            self.table.mark_changed()
        search = DelaySearch(self._store, self._topics, self.levels, self._now_ms)
        for level in self._timers:
            if level not in self.table.offsets:
                offset = search.next_offset(level)
                if offset > 0:
                    log.warning(
                        "delay level offset derived from the log", level=level, offset=offset
                    )
                    self.table.set_offset(level, offset)

    def _find_written_end(self, about: Pass) -> int:
        """Return the queue offset behind the last message that a pass has written; 0 if none."""
        count = min(about.end_offset - about.first_offset, BATCH_COUNT_MAX)
        if about.log_end >= self._store.log.written_offset or count <= 0:
            return 0
        result = self._store.reading.get_message(
            SCHEDULE_TOPIC, about.level - 1, about.first_offset, count
        )
        if result.status is not GetStatus.FOUND:
            return 0
        written = find_written_copies(self._store, about.log_end, decode_messages(result.body))
        return written[-1].queue_offset + 1 if written else 0

    def start(self) -> None:
        """Start at the offsets of delayOffset.json, limited to the present queues; needs a loop."""
        self._is_running = True
        for level in self._timers:
            low, high = self._store.reading.queue_range(SCHEDULE_TOPIC, level - 1)
            known = self.table.offsets.get(level, 0)
            self._next[level] = min(max(known, low), high)
            self.soon(level)
        self._save_later()

    def levels_changed(self) -> None:
        """Apply the present ``levels``, also to waiting messages.

        A removed level is still served until no message waits there.
        """
        for level in range(1, self.levels.level_max + 1):
            if level not in self._timers:
                self._timers[level] = WallTimer(self._now_ms)
                if self._is_running:
                    low, high = self._store.reading.queue_range(SCHEDULE_TOPIC, level - 1)
                    self._next[level] = min(max(self.table.offsets.get(level, 0), low), high)
        for level in self._timers:
            self.soon(level)

    def stop(self) -> None:
        """Stop all deliveries."""
        self._is_running = False
        for timer in self._timers.values():
            timer.cancel()
        if self._save_timer is not None:
            self._save_timer.cancel()
            self._save_timer = None

    def purge(self) -> None:
        """Skip all waiting messages."""
        self.stop()
        self._heads.clear()
        self._delivered.clear()
        self._next.clear()
        for level in self._timers:
            self.table.set_offset(
                level, self._store.reading.queue_range(SCHEDULE_TOPIC, level - 1)[1]
            )
        self.start()

    async def abandon(self) -> None:
        """Stop, and close the journal."""
        self.stop()
        await self._sync.close()
        self._journal.close()

    async def close(self) -> None:
        """Stop and settle the deliveries, so that a clean restart repeats none.

        The store must still be open.
        """
        self.stop()
        if self._saving is not None:
            await asyncio.gather(self._saving, return_exceptions=True)
        await self._sync.close()
        self._journal.close()
        if self._delivered:
            await last_flush(self._store, self._delivered[-1][0])
        self.settle()

    def offset(self, level: int) -> int:
        """Return the queue offset of the next message that *level* delivers."""
        return self._state.offset(level)

    def settle(self) -> None:
        """Advance the table's offsets past every delivery that is on disk."""
        flushed_offset = self._store.log.flushed_offset
        delivered = self._delivered
        while delivered and delivered[0][0] <= flushed_offset:
            _, level, offset = delivered.popleft()
            self.table.set_offset(level, offset)

    def _save_later(self) -> None:
        self._save_timer = asyncio.get_running_loop().call_later(SAVE_INTERVAL_S, self._save)

    def _save(self) -> None:
        self._save_timer = None
        self._saving = run_in_background(
            self._save_and_forget(), "saving the delay levels", on_failure=self._save_failed
        )

    def _save_failed(self, _error: BaseException) -> None:
        if self._is_running:
            self._save_later()

    async def _save_and_forget(self) -> None:
        """Save the table, then delete the journal entries that it covers."""
        settled_offset = self._store.log.flushed_offset
        self.settle()
        try:
            self._journal.turn(self._store.log.written_offset)
            await self.table.saved()
            if self.table.is_saved:
                await asyncio.to_thread(self._journal.forget, settled_offset)
        except OSError as error:
            log.warning("delivered delay entries cannot be removed yet", reason=str(error))
        if self._is_running:
            self._save_later()

    def soon(self, level: int) -> None:
        """Examine *level* in the next iteration of the loop, after the one of the arrival."""
        if self._is_running:
            self._timers[level].soon(self._run, level)

    def _await_arrival(self, level: int) -> None:
        tail = self._store.staging.tail(SCHEDULE_TOPIC, level - 1)
        self._long_polling.watch(_Waiting(self, level, tail, self._next[level]))

    def _run(self, level: int) -> None:
        """Deliver the due messages of *level*, then wait for the next one."""
        offset = self._next[level]
        head = self._heads.get(level)
        if head is not None and head.queue_offset == offset and self._wait_for(level, head):
            return
        result = self._store.reading.get_message(SCHEDULE_TOPIC, level - 1, offset, BATCH_COUNT_MAX)
        if result.status is GetStatus.FOUND:
            self._deliver(level, decode_messages(result.body), result.next_offset)
        elif result.status in _MISSING or result.next_offset == offset:
            self._await_arrival(level)
        else:
            if result.status in _MOVED:
                log.warning(
                    "delay level offset moved", level=level, was=offset, now=result.next_offset
                )
            self._next[level] = result.next_offset
            self.soon(level)

    def _deliver(self, level: int, messages: list[StoredMessage], end_offset: int) -> None:
        store, next_offset = self._store, self._next[level]
        if self._wait_for(level, messages[0]):
            return
        now_ms, delay_ms = self._now_ms(), self.levels.delay_ms(level)
        staged: list[tuple[StoredMessage, int]] = []
        try:
            store.check_writable()
            log_end = store.log.written_offset
            about = Pass(level, next_offset, end_offset, log_end)
            store.staging.read_clock()
            try:
                self._note(about)
                for message in messages:
                    if _wait_ms(message.store_time_ms, delay_ms, now_ms) > 0:
                        break
                    log_offset = stage_copy(store, self._topics, message, message.properties, {})
                    if log_offset is not None:
                        staged.append((message, log_offset))
                    next_offset = message.queue_offset + 1
                else:
                    next_offset = end_offset
            finally:
                store.commit()
        except StoreError as error:
            # A part of the pass may be in the log.
            end = store.log.written_offset
            staged = [(message, log_offset) for message, log_offset in staged if log_offset < end]
            next_offset = staged[-1][0].queue_offset + 1 if staged else self._next[level]
            self._note_failure(error)
            self._timers[level].retry(RETRY_S, self._run, level)
        else:
            self._failing = False
            self.soon(level)
        if next_offset != self._next[level]:
            self._next[level] = next_offset
            self._delivered.append((store.log.written_offset, level, next_offset))
        for message, _ in staged:
            topic = message.properties[PROPERTY_REAL_TOPIC]
            self._stats.get_send_traffic(topic).count_request(1, message.size_bytes)

    def _note(self, about: Pass) -> None:
        if self._journal.note(about):
            self._sync.soon()
        self._state.stage(about)

    def _wait_for(self, level: int, head: StoredMessage) -> bool:
        """Wait for the next message of *level* if it is not due; return whether it waits."""
        now_ms, delay_ms = self._now_ms(), self.levels.delay_ms(level)
        wait_ms = _wait_ms(head.store_time_ms, delay_ms, now_ms)
        if wait_ms <= 0:
            return False
        self._heads[level] = head
        self._timers[level].arm(now_ms + wait_ms, self._run, level)
        return True

    def _note_failure(self, error: StoreError) -> None:
        if not self._failing:
            self._failing = True
            log.error("delayed messages wait because the store refuses writes", reason=str(error))


def _wait_ms(stored_ms: int, delay_ms: int, now_ms: int) -> int:
    """Return how long a message still has to wait, by the clock of its store time."""
    return max(stored_ms + delay_ms - now_ms, 0)
