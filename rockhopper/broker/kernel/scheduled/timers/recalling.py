"""Recalls a pending timed message: finds it, and appends a recall to the queue.

The recall is a message in RocketMQ's format, so that its broker understands it too.
"""

from rockhopper.broker.kernel.scheduled.timers.copies import TIMER_ORIGIN
from rockhopper.broker.kernel.scheduled.timers.entries import TimerEntry, key_hash
from rockhopper.broker.kernel.scheduled.timers.following import (
    TIMER_QUEUE_ID,
    TimerQueue,
    origin_text,
)
from rockhopper.broker.kernel.scheduled.timers.index import TimerIndex
from rockhopper.broker.kernel.scheduled.timers.recall_handle import RecallHandle
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.put import MessageToStore
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.names import TIMER_TOPIC
from rockhopper.protocol.properties import (
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DEL_UNIQUE_KEY,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_UNIQUE_KEY,
    join_properties,
)

RECALL_TAG = "_RECALL_TAG_"
RECALL_BODY = b"0"


def recall(
    store: MessageStore,
    index: TimerIndex,
    queue: TimerQueue,
    handle: RecallHandle,
    precision_ms: int,
    born_host: bytes,
) -> int | None:
    """Recall the message of *handle*; return the end of the recall in the log.

    Return None if the message is not pending.

    Raises:
        StoreError: not possible now; the message is still pending.
    """
    found = _find(index, queue, handle, precision_ms)
    if found is None:
        return None
    entry, message = found
    index.hide(entry.queue_offset)
    try:
        return store.put(
            MessageToStore(
                TIMER_TOPIC,
                TIMER_QUEUE_ID,
                RECALL_BODY,
                join_properties(_properties(handle, entry, message)),
                born_time_ms=store.staging.read_clock(),
                born_host=born_host,
            )
        ).end_offset
    except BaseException:
        index.unhide(entry.queue_offset)
        raise


def _find(
    index: TimerIndex, queue: TimerQueue, handle: RecallHandle, precision_ms: int
) -> tuple[TimerEntry, StoredMessage] | None:
    key = key_hash(handle.topic, handle.unique_key)
    for entry in index.find(key, handle.due_ms, handle.due_ms + precision_ms):
        message = queue.message_at(entry.log_offset, entry.queue_offset)
        if message is None:
            continue
        properties = message.properties
        if (
            properties.get(PROPERTY_REAL_TOPIC) == handle.topic
            and properties.get(PROPERTY_UNIQUE_KEY) == handle.unique_key
            and properties.get(PROPERTY_TIMER_OUT_MS) == str(handle.due_ms - 1)
        ):
            return entry, message
    return None


def _properties(handle: RecallHandle, entry: TimerEntry, message: StoredMessage) -> dict[str, str]:
    return {
        PROPERTY_TAGS: RECALL_TAG,
        PROPERTY_UNIQUE_KEY: handle.unique_key,
        PROPERTY_TIMER_DEL_UNIQUE_KEY: f"{handle.topic}+{handle.unique_key}",
        PROPERTY_TIMER_DELIVER_MS: str(handle.due_ms),
        PROPERTY_TIMER_OUT_MS: message.properties[PROPERTY_TIMER_OUT_MS],
        PROPERTY_REAL_TOPIC: handle.topic,
        PROPERTY_REAL_QUEUE_ID: "0",
        TIMER_ORIGIN: origin_text(entry.queue_offset, entry.due_ms),
    }
