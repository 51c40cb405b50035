"""Imports the pending messages of a RocketMQ broker by reading the queue from its start.

RocketMQ's timer log and wheel are not needed. Its timercheck contains how much of the queue it had
indexed, and up to which time it delivered those messages. All later messages are pending;
without a timercheck all messages are. A past-due message counts as delivered if the message index
finds its copy.
"""

from collections.abc import Callable, Container

import structlog

from rockhopper.broker.kernel.scheduled.timers.copies import is_copy
from rockhopper.broker.kernel.scheduled.timers.following import TimerQueue
from rockhopper.broker.kernel.scheduled.timers.index import TimerIndex
from rockhopper.broker.kernel.scheduled.timers.java_files import TimerCheck
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.properties import (
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_UNIQUE_KEY,
)
from rockhopper.protocol.store.message_codec import decode_message

log = structlog.get_logger("broker.timers")

COPIES_LOOKED_AT_MAX = 32


def import_queue(
    store: MessageStore,
    queue: TimerQueue,
    index: TimerIndex,
    check: TimerCheck | None,
    now_ms: int,
    delivered: Container[int] = (),
) -> None:
    """Rebuild the index, which must be empty. Blocks until the whole queue is read.

    *delivered* are queue offsets of messages that are known to be delivered.

    Raises:
        OSError: the index cannot be written.
    """
    low, high = queue.range
    queue.offset = low
    is_over = _judge(store, check, now_ms, delivered)
    while queue.follow(is_over):
        pass
    if high > low:
        log.info("timer messages imported", messages=high - low, pending=index.waiting)


def _judge(
    store: MessageStore, check: TimerCheck | None, now_ms: int, delivered: Container[int]
) -> Callable[[StoredMessage, int], bool]:
    taken_over = min(check.queue_offset, check.master_queue_offset) if check else 0
    read_time_ms = check.read_time_ms if check else 0

    def is_over(message: StoredMessage, due: int) -> bool:
        if message.queue_offset in delivered:
            return True
        if message.queue_offset < taken_over:
            before_ms = int(message.properties[PROPERTY_TIMER_OUT_MS])
            if before_ms < read_time_ms:
                return True
        return due <= now_ms and _has_copy(store, message, now_ms)

    return is_over


def _has_copy(store: MessageStore, message: StoredMessage, now_ms: int) -> bool:
    topic = message.properties.get(PROPERTY_REAL_TOPIC)
    key = message.properties.get(PROPERTY_UNIQUE_KEY)
    if not topic or not key:
        return False
    end_ms = max(now_ms, store.log.store_time_ms)
    found = store.reading.query(topic, key, COPIES_LOOKED_AT_MAX, message.store_time_ms, end_ms)
    return any(is_copy(decode_message(record), message) for record in found)
