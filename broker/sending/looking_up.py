"""Messages by their place in the log, which any client may make up.

Who names a place must not get by it what he may not read: see *of_topics*. Notes of a replica set
are no messages. They carry users' secrets, and are found by nobody.
"""

from collections.abc import Collection

from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.names import STATE_TOPIC
from rockhopper.protocol.store.message_codec import decode_message


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
