"""Timers: messages that are delivered at a chosen time, from the request to the delivery.

All of it runs on the event loop, in steps of a few milliseconds, except the syncing of files. Each
turn follows the queue, reads ahead in the slot files, delivers due messages, and appends messages
again before retention deletes them. Then one timer waits for the next event.

If the wall clock is set forward, everything that is then due is delivered at once. If it is set
back, messages wait until it reaches their time again.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import structlog

from rockhopper.broker.kernel.events import KernelListener
from rockhopper.broker.kernel.pull.long_polling import LongPolling, ParkedPull
from rockhopper.broker.kernel.scheduled.journal_sync import JournalSync
from rockhopper.broker.kernel.scheduled.last_flush import last_flush
from rockhopper.broker.kernel.scheduled.timers.checkpoint import TimerSaver, find_damaged_slot
from rockhopper.broker.kernel.scheduled.timers.delivery import TimerDelivery
from rockhopper.broker.kernel.scheduled.timers.entries import ENTRY, TimerEntry
from rockhopper.broker.kernel.scheduled.timers.following import TIMER_QUEUE_ID, TimerQueue
from rockhopper.broker.kernel.scheduled.timers.importing import import_queue
from rockhopper.broker.kernel.scheduled.timers.index import TimerIndex
from rockhopper.broker.kernel.scheduled.timers.recall_handle import (
    RecallHandle,
    encode_recall_handle,
)
from rockhopper.broker.kernel.scheduled.timers.recalling import recall
from rockhopper.broker.kernel.scheduled.timers.rolling import Rolling
from rockhopper.broker.kernel.scheduled.timers.times import compute_out_ms, get_requested_time_ms
from rockhopper.broker.kernel.state import State
from rockhopper.broker.kernel.state_channels import StateChannels
from rockhopper.broker.kernel.state_records import (
    Entry,
    StateKind,
    decode_numbers,
    decode_slots,
    encode_numbers,
    join,
)
from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.server.loop.part import Part
from rockhopper.broker.server.loop.wall_waits import WallTimer
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.queues.queue_tail import QueueTail
from rockhopper.broker.users.errors import IllegalMessage, Refusal
from rockhopper.protocol.names import TIMER_TOPIC
from rockhopper.protocol.properties import (
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEL_UNIQUE_KEY,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_UNIQUE_KEY,
)

log = structlog.get_logger("broker.timers")

TURN_S = 0.004
RETRY_S = 1.0
IDLE_MS = 60_000


class _Waiting(ParkedPull):
    """The queue of timed messages, which waits for its next message."""

    __slots__ = ("_timers",)

    def __init__(self, timers: "Timers", tail: QueueTail, offset: int) -> None:
        super().__init__(None, tail, offset)
        self._timers = timers

    def rerun(self) -> None:
        self._timers.arrived()


class TimerState(State):
    """The waiting messages, as files below ``<store>/rockhopper/timers``.

    kind  payload
      6   TIMERS: {slot:8 queue offset:8}… of a pass whose copies follow in the log
      7   TIMERS_UNDONE: the same, for messages of a pass that were not delivered after all
      8   TIMERS_ALL: queue offset:8; the following records list all messages that wait before it
     17   TIMERS_MORE: entries of slots (entries.py), behind TIMERS_ALL
    """

    kinds = (StateKind.TIMERS, StateKind.TIMERS_UNDONE, StateKind.TIMERS_ALL, StateKind.TIMERS_MORE)

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicTable,
        channels: StateChannels,
        clock: BrokerClock,
    ) -> None:
        self._config = config
        self._topics = topics
        self._channels = channels
        self._clock = clock
        self.timers: Timers
        """Those over the open store; on a follower they are never started."""

    def build(
        self,
        store: MessageStore,
        long_polling: LongPolling,
        stats: BrokerStats,
        listeners: Sequence[KernelListener] = (),
    ) -> "Timers":
        """Return the timers over an open store; no I/O."""
        self.timers = Timers(
            self._config,
            store,
            self._topics,
            long_polling,
            stats,
            self._channels,
            self._clock,
            listeners,
        )
        return self.timers

    def follow(self, store: MessageStore) -> None:
        """Read the files. Raises OSError."""
        self.build(store, LongPolling(), BrokerStats(now_ms=self._clock.steady_ms)).open()

    def catch_up(self) -> bool:
        """Index a part of the queue. Raises OSError."""
        return self.timers.follow()

    async def save(self) -> None:
        """Save index and checkpoint."""
        await self.timers.saver.save()

    async def leave(self) -> None:
        """Index the rest of the queue, save, and close the files. Raises OSError."""
        while self.timers.follow():
            pass
        self.timers.leave()

    def snapshot(self) -> Iterator[Entry]:
        """Return all waiting messages."""
        yield StateKind.TIMERS_ALL, encode_numbers(self.timers.queue.offset)
        yield from join(StateKind.TIMERS_MORE, list(self.timers.index.pack()))

    def apply(self, kind: int, payload: bytes, log_offset: int) -> None:
        """Apply a pass, or a part of a snapshot. Raises OSError."""
        timers = self.timers
        match kind:
            case StateKind.TIMERS:
                timers.delivered_elsewhere(decode_slots(payload), log_offset)
            case StateKind.TIMERS_UNDONE:
                timers.index.undone_elsewhere(decode_slots(payload))
            case StateKind.TIMERS_ALL:
                (queue_offset,) = decode_numbers(payload, 1)
                timers.take_all(queue_offset, log_offset)
            case StateKind.TIMERS_MORE:
                timers.index.insert_entries(
                    TimerEntry(*fields) for fields in ENTRY.iter_unpack(payload)
                )


class Timers(Part):
    """The timed messages of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        long_polling: LongPolling,
        stats: BrokerStats,
        channels: StateChannels,
        clock: BrokerClock,
        listeners: Sequence[KernelListener],
    ) -> None:
        self._config = config
        self._store = store
        self._long_polling = long_polling
        self._listeners = listeners
        self._now_ms = now_ms = clock.wall_ms
        layout = store.opened.layout
        self.index = TimerIndex(layout.own / "timers" / "slots", layout.quarantine)
        self._sync = JournalSync(self.index.files)
        self.queue = TimerQueue(store, self.index, precision_ms=config.timer_precision_ms)
        self.delivery = TimerDelivery(
            store, topics, stats, self.index, self.queue, channels, now_ms=now_ms
        )
        self.saver = TimerSaver(store, self.index, self.queue, self.delivery, now_ms=now_ms)
        live = config.store.live
        self.rolling = Rolling(
            store,
            self.index,
            self.queue,
            lambda: live.file_reserved_hours * 3_600_000,
            now_ms=clock.steady_ms,
        )
        store.opened.reserved_time.has_taken_care.append(self._has_rolled_since)
        self._timer = WallTimer(now_ms)
        self._is_parked = False
        self._is_failing = False
        self._is_running = False
        self._is_open = False

    def due_ms(self, properties: dict[str, str], now_ms: int) -> int | None:
        """Return when a producer wants a message with *properties* delivered; None: at once.

        Check the delay level first: it takes precedence. For a message of a transaction call this
        twice: when the half message arrives, so that the producer learns of errors, and at the
        commit, from which a delay counts.

        Raises:
            Refusal: the time is invalid or too far ahead, or timers are disabled on this broker.
        """
        try:
            due_ms = get_requested_time_ms(properties, now_ms)
        except ValueError as error:
            raise IllegalMessage(f"timer message illegal: {error}") from None
        if due_ms is None:
            return None
        if not self._config.timer_wheel_enable:
            raise Refusal("accurate timer message is not enabled, timerWheelEnable is false")
        if due_ms <= now_ms:
            if PROPERTY_TIMER_DEL_UNIQUE_KEY in properties:
                raise IllegalMessage(
                    "timer message illegal: the time of a message that cancels another has passed"
                )
            return None
        max_ms = self._config.timer_max_delay_s * 1000
        if due_ms - now_ms > max_ms:
            raise IllegalMessage(
                "timer message illegal: the delay time should not be bigger than the max delay "
                f"{max_ms}ms (timerMaxDelaySec), and it is {due_ms - now_ms}ms"
            )
        return due_ms

    def redirect(
        self, topic: str, queue_id: int, properties: dict[str, str], due_ms: int
    ) -> tuple[str, int]:
        """Return the topic and queue where a message waits until *due_ms*; set its *properties*.

        Use this like DelayLevels.redirect: stage the message with the returned topic and queue. Its
        time is delayed by at most 1 ms, see times.py.
        """
        properties[PROPERTY_TIMER_OUT_MS] = str(compute_out_ms(due_ms))
        properties[PROPERTY_REAL_TOPIC] = topic
        properties[PROPERTY_REAL_QUEUE_ID] = str(queue_id)
        return TIMER_TOPIC, TIMER_QUEUE_ID

    def redirect_committed(
        self, topic: str, queue_id: int, properties: dict[str, str], now_ms: int
    ) -> tuple[str, int]:
        """Return the topic and queue of a message that was accepted earlier and is committed now.

        For transactions, after the check of the delay level. This refuses nothing any more: a
        message without a time, or with one that has passed, goes straight to *topic* and
        *queue_id*.
        """
        try:
            due_ms = get_requested_time_ms(properties, now_ms)
        except ValueError:
            due_ms = None
        if due_ms is None or due_ms <= now_ms:
            return topic, queue_id
        return self.redirect(topic, queue_id, properties, due_ms)

    def recall_handle(self, properties: dict[str, str]) -> str:
        """Return the recall handle for the answer to a message that ``redirect`` has changed."""
        return encode_recall_handle(
            RecallHandle(
                properties[PROPERTY_REAL_TOPIC],
                self._config.broker_name,
                int(properties[PROPERTY_TIMER_OUT_MS]) + 1,
                properties.get(PROPERTY_UNIQUE_KEY, ""),
            )
        )

    def recall(self, handle: RecallHandle, born_host: bytes) -> int | None:
        """Recall a pending message; return the end of the recall in the log, None if not pending.

        Raises:
            StoreError, OSError: not possible now; the message is still pending.
        """
        while self.queue.follow():
            pass
        return recall(
            self._store,
            self.index,
            self.queue,
            handle,
            self._config.timer_precision_ms,
            born_host,
        )

    @property
    def pending_count(self) -> int:
        """The number of waiting messages."""
        return self.index.waiting

    def get_delivered_until_ms(self, now_ms: int) -> int:
        """Return the time until which all is delivered, in whole seconds as in RocketMQ."""
        due_ms = self.index.due.next_ms
        until_ms = now_ms if due_ms is None else min(now_ms, due_ms)
        return until_ms - until_ms % 1000

    def open(self) -> None:
        """Bring the index up to date with the queue; blocks. The store must be open.

        Raises:
            OSError: files cannot be read or written.
        """
        checkpoint, check, is_ours = self.saver.load()
        low, high = self.queue.range
        noted, slot = self.index.load_deliveries()
        settled = 0 if checkpoint is None else checkpoint.settled_log_offset
        if checkpoint is not None:
            if slot is None:
                slot = find_damaged_slot(self.index.files.directory, checkpoint, self._now_ms())
            if slot is not None:
                log.error("a timer file is damaged or missing: rebuilding all timers", slot=slot)
                checkpoint = None
        if checkpoint is None or not is_ours:
            for listener in self._listeners:
                listener.rocketmq_wrote()
            notes = [note for number in sorted(noted) for note in noted[number]]
            delivered = {offset for offset, _ in self.delivery.find_written(notes, settled)}
            # Without a checkpoint, a kill during the import makes the next start repeat it.
            self.saver.remove_checkpoint()
            self.index.files.wipe()
            import_queue(self._store, self.queue, self.index, check, self._now_ms(), delivered)
        else:
            end = min(checkpoint.indexed_offset, high)
            written = partial(self.delivery.find_written, settled_log_offset=settled)
            self.index.load(end, checkpoint.slot_bytes, noted, written)
            self.queue.offset = max(end, low)
            while self.queue.follow():
                pass
        self.saver.save_now()
        self._is_open = True

    def start(self) -> None:
        """Start to deliver; needs a running event loop."""
        self._is_running = True
        self._wake_soon()

    def stop(self) -> None:
        """Stop all deliveries."""
        self._is_running = False
        self._timer.cancel()
        self.saver.stop()

    def purge(self) -> None:
        """Skip all waiting messages.

        Raises:
            OSError: a file cannot be deleted.
        """
        self.stop()
        self.index.clear()
        self.delivery.forget_all()
        self.queue.offset = self.queue.range[1]
        self.start()

    async def abandon(self) -> None:
        """Stop, and close the files."""
        self.stop()
        if self._is_open:
            self._is_open = False
            await self._sync.close()
            self.index.close()

    async def close(self) -> None:
        """Stop and save everything, so that the next start need not search.

        The store must still be open.
        """
        self.stop()
        if not self._is_open:
            return
        self._is_open = False
        await self.saver.finish()
        await self._sync.close()
        await last_flush(self._store, self.delivery.last_end)
        if self._store.failure is None:
            try:
                self.saver.leave_to_rocketmq()
                self.saver.save_now()
            except OSError as error:
                log.error("the timers could not be saved", reason=str(error))
        self.index.close()

    def follow(self) -> bool:
        """Index a part of the queue; return whether there may be more. Raises OSError.

        For a replica that follows: its timers are opened and never started. It learns of
        deliveries from its master, and ends with ``leave``.
        """
        return self.queue.follow()

    def delivered_elsewhere(self, offsets_of: Mapping[int, Sequence[int]], log_end: int) -> None:
        """Record, by slot, messages that the master delivers; their copies follow *log_end*.

        Raises:
            OSError: nothing was recorded.
        """
        while self.queue.follow():
            pass
        self.index.noted_elsewhere(offsets_of, log_end)
        self.delivery.passed_elsewhere(log_end)

    def take_all(self, queue_offset: int, log_end: int) -> None:
        """Clear the index, before the state of a master at *log_end* of its log is added.

        The master had followed the queue to *queue_offset*. Raises OSError.
        """
        self.index.clear()
        self.delivery.passed_elsewhere(log_end)
        self.queue.offset = queue_offset

    def leave(self) -> None:
        """Save, and close the files; blocks. Raises OSError."""
        self._is_open = False
        self.saver.save_now()
        self.index.close()

    def _wake_soon(self) -> None:
        if self._is_running:
            self._timer.soon(self._run)

    def _has_rolled_since(self, time_ms: int) -> bool:
        is_done = self.rolling.has_rolled_since(time_ms)
        if not is_done:
            self._wake_soon()
        return is_done

    def _run(self) -> None:
        try:
            more = self._work()
        except (StoreError, OSError) as error:
            if not self._is_failing:
                self._is_failing = True
                log.error("timer messages wait because the store refuses writes", reason=str(error))
            self._timer.retry(RETRY_S, self._run)
            return
        finally:
            if self.index.files.has_unsynced_notes:
                self._sync.soon()
        self._is_failing = False
        if more:
            self._wake_soon()
            return
        self._await_arrival()
        self.saver.save_soon()
        next_ms = self.index.next_ms
        if next_ms is None:
            next_ms = self._now_ms() + IDLE_MS
            if self._is_parked and not self.index.waiting and self.saver.is_saved:
                return
        self._timer.arm(next_ms, self._run)

    def _work(self) -> bool:
        """Work for the length of a turn; return whether there is more to do."""
        stop_s = time.perf_counter() + TURN_S
        while True:
            more = self.queue.follow()
            more |= self.index.open_due(self._now_ms())
            more |= self.delivery.deliver()
            more |= self.rolling.roll()
            if not more or time.perf_counter() >= stop_s:
                return more

    def _await_arrival(self) -> None:
        if self._is_parked:
            return
        tail = self._store.staging.tail(TIMER_TOPIC, TIMER_QUEUE_ID)
        self._is_parked = self._long_polling.watch(_Waiting(self, tail, self.queue.offset))

    def arrived(self) -> None:
        """Look at the queue, which has another message."""
        self._is_parked = False
        self._wake_soon()
