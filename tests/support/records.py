"""Records for tests, field by field."""

from rockhopper.protocol.store import message_codec
from rockhopper.protocol.store.record_head import RecordHead


def encode_message(
    *,
    topic: str,
    body: bytes = b"",
    properties: bytes | str | dict[str, str] = b"",
    queue_id: int = 0,
    queue_offset: int = 0,
    commit_log_offset: int = 0,
    flag: int = 0,
    sys_flag: int = 0,
    born_time_ms: int = 0,
    born_host: bytes = bytes(8),
    store_time_ms: int = 0,
    store_host: bytes = bytes(8),
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
) -> bytes:
    """Return the record of a message. Raises ValueError if a value does not fit its field."""
    head = RecordHead(
        0,
        0,
        0,
        queue_id,
        flag,
        queue_offset,
        commit_log_offset,
        sys_flag,
        born_time_ms,
        born_host,
        store_time_ms,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
        0,
    )
    return message_codec.encode_message(head, topic, body, properties)
