"""Access to messages by their log offset, which any client can make up.

A client can name any log offset; never return a record it may not read: see *of_topics*. Records of
a replica set's state are never returned either. They are not messages, and contain users' secrets.
"""

from collections.abc import Collection
from typing import NamedTuple

from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.names import STATE_TOPIC
from rockhopper.protocol.properties import PROPERTY_ORIGIN_MESSAGE_ID
from rockhopper.protocol.store.message_codec import decode_message
from rockhopper.protocol.sys_flags import SYS_FLAG_INNER_BATCH


class Identity(NamedTuple):
    """What a client knows about the message that it names by a log offset.

    After a restore from a backup or a power cut, another message may be at that offset. Example: a
    consumer has a message at offset 500, the restored log ends at 400, and a new message gets 500.
    """

    message_id: str = ""
    """UNIQ_KEY or the offset message id, as RocketMQ's clients send it; "" if not known."""
    store_time_ms: int | None = None
    """Reliable where the id is not: both messages have the same offset message id."""

    def fits(self, message: StoredMessage) -> bool:
        """Return whether `message` can be the one that the client means."""
        if self.store_time_ms not in (None, message.store_time_ms):
            return False
        # The messages of an inner batch have their own ids.
        if not self.message_id or message.sys_flag & SYS_FLAG_INNER_BATCH:
            return True
        return self.message_id in (
            message.message_id,
            message.offset_message_id,
            message.properties.get(PROPERTY_ORIGIN_MESSAGE_ID),
        )


ANY_MESSAGE = Identity()


def record_at(
    store: MessageStore, log_offset: int, of_topics: Collection[str] | None
) -> tuple[bytes, StoredMessage] | None:
    """Return the record at *log_offset*, raw and decoded, if it belongs to *of_topics*; else None.

    *of_topics* None: any topic.
    """
    if not store.log.min_offset <= log_offset < store.log.written_offset:
        return None
    record = store.reading.reader.record(log_offset)
    if not record:
        return None
    message = decode_message(record)
    if message.topic == STATE_TOPIC:
        return None
    if of_topics is not None and message.topic not in of_topics:
        return None
    return record, message
