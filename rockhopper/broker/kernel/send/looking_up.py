"""Messages by their place in the log, which any client may make up.

Who names a place must not get by it what he may not read: see *of_topics*. Notes of a replica set
are no messages. They carry users' secrets, and are found by nobody.
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
    """What a client knows of the message that it names by a log offset.

    After a restore from a backup, or a power cut, another message may lie at that offset: a
    consumer holds one of offset 500, the restored log ends at 400, and a new message gets 500.
    """

    message_id: str = ""
    """UNIQ_KEY or the offset message id, as RocketMQ's clients send it; "" if not known."""
    store_time_ms: int | None = None
    """Certain where the id is not: an offset message id is the same for both messages."""

    def fits(self, message: StoredMessage) -> bool:
        """Whether `message` may be the one that the client means."""
        if self.store_time_ms not in (None, message.store_time_ms):
            return False
        # The messages of an inner batch have ids of their own.
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
    """The record there, as stored and decoded, if it is of one of *of_topics*; None if not.

    *of_topics* None: of whichever topic.
    """
    if not store.min_commit_log_offset <= log_offset < store.max_commit_log_offset:
        return None
    record = store.message_at(log_offset)
    if not record:
        return None
    message = decode_message(record)
    if message.topic == STATE_TOPIC:
        return None
    if of_topics is not None and message.topic not in of_topics:
        return None
    return record, message
