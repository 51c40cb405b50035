"""Follows rmq_sys_wheel_timer: converts its messages to entries of the index.

    TIMER_OUT_MS                        a message that waits
      and TIMER_ORIGIN                  … appended again before retention, replacing an older one
    TIMER_OUT_MS and TIMER_DEL_UNIQKEY  a recall: by the broker (with TIMER_ORIGIN, which names the
                                        message), or by a producer, as RocketMQ allows

TIMER_ORIGIN is Rockhopper's: ``<queue offset>/<due ms>`` of the message that is removed.
"""

from collections.abc import Callable

import structlog

from rockhopper.broker.kernel.scheduled.timers.copies import TIMER_ORIGIN
from rockhopper.broker.kernel.scheduled.timers.entries import (
    KIND_MESSAGE,
    KIND_WITHDRAWAL,
    TimerEntry,
    key_hash,
)
from rockhopper.broker.kernel.scheduled.timers.index import TimerIndex
from rockhopper.broker.kernel.scheduled.timers.times import due_ms
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.reading.get_result import GetStatus
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.names import REVIVE_TOPIC_PREFIX, TIMER_TOPIC
from rockhopper.protocol.properties import (
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEL_UNIQUE_KEY,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TIMER_ROLL_TIMES,
    PROPERTY_UNIQUE_KEY,
)
from rockhopper.protocol.store.message_codec import decode_message, decode_messages

log = structlog.get_logger("broker.timers")

BATCH_COUNT_MAX = 128
TIMER_QUEUE_ID = 0


IsOver = Callable[[StoredMessage, int], bool]


class TimerQueue:
    """The queue rmq_sys_wheel_timer, and how far the index has followed it."""

    def __init__(self, store: MessageStore, index: TimerIndex, *, precision_ms: int) -> None:
        self._store = store
        self._index = index
        self._precision_ms = precision_ms
        self.offset = 0
        """The queue offset of the next message to index."""

    @property
    def range(self) -> tuple[int, int]:
        """The queue's minimum and maximum offsets."""
        return self._store.reading.queue_range(TIMER_TOPIC, TIMER_QUEUE_ID)

    def message(self, queue_offset: int) -> StoredMessage | None:
        """Return one message of the queue, if it still exists."""
        result = self._store.reading.get_message(TIMER_TOPIC, TIMER_QUEUE_ID, queue_offset, 1)
        if result.status is not GetStatus.FOUND:
            return None
        message = decode_message(result.body)
        return message if message.queue_offset == queue_offset else None

    def message_at(self, log_offset: int, queue_offset: int) -> StoredMessage | None:
        """Return the message at a commit log offset; None if its queue offset is another."""
        record = self._store.reading.reader.record(log_offset)
        if not record:
            return None
        message = decode_message(record)
        if message.topic != TIMER_TOPIC or message.queue_offset != queue_offset:
            return None
        return message

    def due_ms(self, message: StoredMessage) -> int | None:
        """Return when a message of the queue may be delivered."""
        origin = origin_of(message)
        if origin is not None:
            return origin[1]
        return due_ms(message.properties, message.store_time_ms, self._precision_ms)

    def follow(self, is_over: IsOver | None = None) -> bool:
        """Index a batch of messages; return whether there may be more.

        *is_over*, for the import of a RocketMQ store, returns whether RocketMQ delivered a message.

        Raises:
            OSError: nothing was indexed.
        """
        offset = self.offset
        result = self._store.reading.get_message(
            TIMER_TOPIC, TIMER_QUEUE_ID, offset, BATCH_COUNT_MAX
        )
        if result.status is GetStatus.FOUND:
            entries: list[TimerEntry] = []
            for message in decode_messages(result.body):
                entries += self._entries(message, entries, is_over)
            self._index.insert_entries(entries)
        elif result.next_offset <= offset:
            # The queue is empty, or at its end.
            return False
        self.offset = result.next_offset
        return result.next_offset < result.max_offset

    def _entries(
        self, message: StoredMessage, before: list[TimerEntry], is_over: IsOver | None
    ) -> list[TimerEntry]:
        """Return the new entries for *message*.

        *before* are entries that are not in the index yet.
        """
        if message.properties.get(PROPERTY_REAL_TOPIC, "").startswith(REVIVE_TOPIC_PREFIX):
            # A record of RocketMQ's pops: see features/pop/adopting.py.
            return []
        due = self.due_ms(message)
        if due is None:
            log.error(
                "a message in the timer topic has no delivery time and is not delivered",
                queue_offset=message.queue_offset,
                message_id=message.message_id,
            )
            return []
        entries = []
        if not message.properties.get(PROPERTY_TIMER_DEL_UNIQUE_KEY):
            if is_over is not None and is_over(message, due):
                return []
            entries.append(entry_of(message, due))
        entries += self._withdrawals(message, before)
        return entries

    def _withdrawals(self, message: StoredMessage, before: list[TimerEntry]) -> list[TimerEntry]:
        """Return the withdrawal of an earlier message that *message* withdraws or replaces."""
        origin = origin_of(message)
        if origin is not None:
            return [_withdrawal(message, *origin)]
        withdraws = message.properties.get(PROPERTY_TIMER_DEL_UNIQUE_KEY)
        if not withdraws and PROPERTY_TIMER_ROLL_TIMES not in message.properties:
            return []
        # RocketMQ does not name the message that it has appended again.
        key = withdraws or message.properties.get(PROPERTY_UNIQUE_KEY, "")
        victim = self._victim(message, key, before)
        return [] if victim is None else [_withdrawal(message, victim.queue_offset, victim.due_ms)]

    def _victim(
        self, message: StoredMessage, unique_key: str, before: list[TimerEntry]
    ) -> TimerEntry | None:
        """Return the message with that key and the same second, which is RocketMQ's search."""
        real_topic = message.properties.get(PROPERTY_REAL_TOPIC, "")
        key = key_hash(real_topic, unique_key.removeprefix(f"{real_topic}+"))
        before_ms = int(message.properties[PROPERTY_TIMER_OUT_MS])
        from_ms = before_ms - before_ms % self._precision_ms
        to_ms = from_ms + self._precision_ms
        withdrawn = {entry.mark for entry in before if entry.kind == KIND_WITHDRAWAL}
        for entry in before:
            if (
                entry.kind == KIND_MESSAGE
                and entry.mark == key
                and from_ms <= entry.due_ms <= to_ms
                and entry.queue_offset not in withdrawn
            ):
                return entry
        found = self._index.find(key, from_ms, to_ms)
        return next((entry for entry in found if entry.queue_offset not in withdrawn), None)


def entry_of(message: StoredMessage, due: int) -> TimerEntry:
    """Return the entry of a message that waits."""
    properties = message.properties
    return TimerEntry(
        due,
        message.commit_log_offset,
        message.size_bytes,
        KIND_MESSAGE,
        message.queue_offset,
        key_hash(properties.get(PROPERTY_REAL_TOPIC, ""), properties.get(PROPERTY_UNIQUE_KEY, "")),
    )


def _withdrawal(message: StoredMessage, queue_offset: int, due: int) -> TimerEntry:
    return TimerEntry(
        due,
        message.commit_log_offset,
        message.size_bytes,
        KIND_WITHDRAWAL,
        message.queue_offset,
        queue_offset,
    )


def origin_text(queue_offset: int, due: int) -> str:
    """Return the TIMER_ORIGIN of a message that replaces or recalls another one."""
    return f"{queue_offset}/{due}"


def origin_of(message: StoredMessage) -> tuple[int, int] | None:
    """Return the queue offset and due time of the message that *message* removes."""
    text = message.properties.get(TIMER_ORIGIN)
    if text is None:
        return None
    offset, _, due = text.partition("/")
    if not (offset.isdecimal() and due.isdecimal()):
        return None
    return int(offset), int(due)
