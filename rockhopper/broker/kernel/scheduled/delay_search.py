"""Derives the progress of a delay level from the log, if delayOffset.json does not contain it.

A level delivers its messages in order, and each delivered message has a copy in its target queue. A
binary search looks for the copies of a few messages, from the time when each became due. It skips
messages that can have no copy because their topic was deleted since.

    level 3 has messages 0 to 7; 0 to 4 were delivered
    the search tests message 4: its copy exists; then 6: no copy; then 5: no copy
    delivery continues at 5
"""

from collections.abc import Callable

from rockhopper.broker.kernel.scheduled.timers.copies import is_copy
from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.settings.delay_levels import DelayLevels
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.reading.get_result import GetStatus
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.names import SCHEDULE_TOPIC
from rockhopper.protocol.properties import PROPERTY_REAL_QUEUE_ID, PROPERTY_REAL_TOPIC
from rockhopper.protocol.store.message_codec import decode_message, decode_messages

# How many messages behind the due time to examine: a broker that was down delivers late.
LOOKED_AT_MAX = 20_000
_CLOCK_SLACK_MS = 3_000


class DelaySearch:
    """Searches an open store for the copies of delayed messages."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        levels: DelayLevels,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._topics = topics
        self._levels = levels
        self._now_ms = now_ms

    def next_offset(self, level: int) -> int:
        """Return the queue offset of the first message of *level* that seems undelivered."""
        first, end = self._store.reading.queue_range(SCHEDULE_TOPIC, level - 1)
        delay_ms = self._levels.delay_ms(level)
        low, high = first, end
        while low < high:
            middle = (low + high) // 2
            known = self._find_from(level, middle, low)
            if known is None:
                low = middle + 1  # None of these messages can be delivered.
            elif self._is_delivered(known, delay_ms):
                low = middle + 1
            else:
                high = known.queue_offset
        return low

    def _find_from(self, level: int, queue_offset: int, least: int) -> StoredMessage | None:
        """Return the newest existing message up to an offset that can have a copy."""
        for offset in range(queue_offset, least - 1, -1):
            result = self._store.reading.get_message(SCHEDULE_TOPIC, level - 1, offset, 1)
            if result.status is GetStatus.FOUND:
                message = decode_message(result.body)
                if message.queue_offset == offset and self._target(message) is not None:
                    return message
        return None

    def _target(self, message: StoredMessage) -> tuple[str, int] | None:
        topic = message.properties.get(PROPERTY_REAL_TOPIC, "")
        queue_id = message.properties.get(PROPERTY_REAL_QUEUE_ID, "")
        is_there = topic in self._topics and queue_id.isascii() and queue_id.isdecimal()
        return (topic, int(queue_id)) if is_there else None

    def _is_delivered(self, message: StoredMessage, delay_ms: int) -> bool:
        due_ms = message.store_time_ms + delay_ms
        target = self._target(message)
        if target is None or due_ms > self._now_ms() + _CLOCK_SLACK_MS:
            return False
        offset = self._store.reading.offset_by_time(*target, due_ms - _CLOCK_SLACK_MS, upper=False)
        end = min(self._store.reading.queue_range(*target)[1], offset + LOOKED_AT_MAX)
        while offset < end:
            result = self._store.reading.get_message(*target, offset, 32)
            if any(is_copy(each, message) for each in decode_messages(result.body)):
                return True
            if result.next_offset <= offset:
                return False
            offset = result.next_offset
        return False
