"""Copies: the delivered form of a message that waited, and its recognition after a crash.

A delivery is recorded with the end of the log before its copy is written. If the process is killed,
the log shows its progress: the copies follow one another from that offset on, unless they were not
written. Only records of a replica set's state can lie between, because a pass writes all its
records together.
"""

from collections.abc import Mapping, Sequence

import structlog

from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.store.files.errors import RecordTooLargeError
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.put import Copy
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.names import NOT_SENDABLE_TOPICS, STATE_TOPIC
from rockhopper.protocol.properties import (
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEQUEUE_MS,
    PROPERTY_TIMER_ENQUEUE_MS,
)
from rockhopper.protocol.store.message_codec import decode_message

log = structlog.get_logger("broker.timers")

QUEUE_ID_MAX = 65_535
# The maximum number of state records between a journal entry and its copies.
TOLD_MAX = 1000
# Properties that a copy may add or lack.
TIMER_ORIGIN = "TIMER_ORIGIN"
_OWN_PROPERTIES = (PROPERTY_TIMER_ENQUEUE_MS, PROPERTY_TIMER_DEQUEUE_MS, TIMER_ORIGIN)


def stage_copy(
    store: MessageStore,
    topics: TopicTable,
    message: StoredMessage,
    properties: Mapping[str, str],
    more: Mapping[str, str],
) -> int | None:
    """Stage *message* for its target; return its log offset, None if it can never be delivered.

    The copy has *properties*, and *more* if there is room.

    Raises:
        StoreError: it cannot be staged now.
    """
    topic = properties.get(PROPERTY_REAL_TOPIC, "")
    queue_text = properties.get(PROPERTY_REAL_QUEUE_ID, "")
    reason = _explain_undeliverable(topics, topic, queue_text)
    if reason is None:
        for copied in ({**properties, **more}, dict(properties)):
            try:
                prepared = message.prepared_transaction_offset
                copy = Copy(topic, int(queue_text), message, copied, prepared_offset=prepared)
                return store.staging.stage_again(copy)
            except RecordTooLargeError as error:
                reason = str(error)
    log.error(
        "delayed message dropped",
        reason=reason,
        queue_offset=message.queue_offset,
        message_id=message.message_id,
    )
    return None


def _explain_undeliverable(topics: TopicTable, topic: str, queue_text: str) -> str | None:
    if topic in NOT_SENDABLE_TOPICS or not topic:
        return f"its topic is {topic or 'no topic'}, to which no client may send"
    if topic not in topics:
        return f"its topic {topic} was deleted"
    if not (queue_text.isascii() and queue_text.isdecimal()) or int(queue_text) > QUEUE_ID_MAX:
        return f"its queue id is {queue_text!r}"
    return None


def is_copy(copy: StoredMessage, message: StoredMessage) -> bool:
    """Return whether *copy* is the delivered form of *message*."""
    properties = message.properties
    return (
        copy.topic == properties.get(PROPERTY_REAL_TOPIC)
        and str(copy.queue_id) == properties.get(PROPERTY_REAL_QUEUE_ID)
        and copy.body == message.body
        and copy.born_time_ms == message.born_time_ms
        and _select_compared(copy.properties) == _select_compared(properties)
    )


def _select_compared(properties: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in properties.items() if name not in _OWN_PROPERTIES}


def find_written_copies(
    store: MessageStore, log_end: int, messages: Sequence[StoredMessage]
) -> list[StoredMessage]:
    """Return which of *messages*, one pass in this order, have copies from *log_end* on."""
    written: list[StoredMessage] = []
    rest = list(messages)
    told = 0
    for record in store.reading.records_from(log_end):
        try:
            copy = decode_message(record)
        except ProtocolError:
            break
        if copy.topic == STATE_TOPIC and told < TOLD_MAX:
            told += 1
            continue
        skipped = 0
        while skipped < len(rest) and not is_copy(copy, rest[skipped]):
            skipped += 1
        if skipped == len(rest):
            break
        written.append(rest[skipped])
        del rest[: skipped + 1]
        if not rest:
            break
    return written
