"""Finding messages by key: the index says where to look, the record itself decides.

The index knows keys by a 31-bit hash and times by the second, so what it names may be another
message; nobody who asks ever gets to see one.
"""

from collections.abc import Callable

from rockhopper.broker.store.index.index import MessageIndex
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.properties import PROPERTY_KEYS, PROPERTY_UNIQUE_KEY
from rockhopper.protocol.store.message_codec import decode_message

BODY_BYTES_MAX = 8 << 20
# A look at each record costs, and no query may hold up the others for long.
MISSES_MAX = 1000
MISSED_BYTES_MAX = 16 << 20


def find_by_key(
    index: MessageIndex,
    record_at: Callable[[int], bytes],
    topic: str,
    key: str,
    count_max: int,
    begin_ms: int,
    end_ms: int,
    is_visible: Callable[[StoredMessage], bool],
) -> list[bytes]:
    """Up to *count_max* records of *topic* that carry *key*, newest first; both times included.

    *record_at* gives the verified record at a commit log offset, empty when there is none.
    """
    found: list[bytes] = []
    size_all = misses = missed_bytes = 0
    seen: set[int] = set()
    for log_offset in index.candidates(topic, key, begin_ms, end_ms):
        if len(found) >= count_max or misses > MISSES_MAX or missed_bytes > MISSED_BYTES_MAX:
            break
        record = b"" if log_offset in seen else record_at(log_offset)
        seen.add(log_offset)
        message = decode_message(record) if record else None
        if (
            message is None
            or not _carries(message, topic, key, begin_ms, end_ms)
            or not is_visible(message)
        ):
            misses += 1
            missed_bytes += len(record)
            continue
        size_all += len(record)
        if found and size_all > BODY_BYTES_MAX:
            break
        found.append(record)
    return found


def _carries(message: StoredMessage, topic: str, key: str, begin_ms: int, end_ms: int) -> bool:
    if message.topic != topic or not begin_ms <= message.store_time_ms <= end_ms:
        return False
    properties = message.properties
    keys = properties.get(PROPERTY_KEYS, "")
    return key == properties.get(PROPERTY_UNIQUE_KEY) or key in keys.split(" ")
