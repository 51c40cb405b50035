"""Finding messages by key: the index says where to look, the record itself decides.

The index knows keys by a 31-bit hash and times by the second, so what it names may be another
message; nobody who asks ever gets to see one.
"""

from collections.abc import Callable, Iterator

from rockhopper.broker.store.index.index import MessageIndex
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.properties import PROPERTY_KEYS, PROPERTY_UNIQUE_KEY
from rockhopper.protocol.store.message_codec import decode_message

BODY_BYTES_MAX = 8 << 20
# A look at each record costs: what nobody is shown is not read without end.
MISSES_MAX = 1000
MISSED_BYTES_MAX = 16 << 20
# A millisecond or two.
RECORDS_PER_STEP = 32
BYTES_PER_STEP = 1 << 20


class KeySearch:
    """Collects the newest messages of a topic with a key; ``steps`` does the work."""

    def __init__(
        self,
        topic: str,
        key: str,
        count_max: int,
        begin_ms: int,
        end_ms: int,
        record_at: Callable[[int], bytes],
        is_visible: Callable[[StoredMessage], bool],
    ) -> None:
        """Both times are included.

        *record_at* gives the verified record at a commit log offset, empty when there is none.
        """
        self._topic, self._key, self._count_max = topic, key, count_max
        self._begin_ms, self._end_ms = begin_ms, end_ms
        self._record_at, self._is_visible = record_at, is_visible
        self.newest_first: list[bytes] = []
        """The records that were found."""

    def steps(self, index: MessageIndex) -> Iterator[None]:
        """Search; between the steps others can be served."""
        found = self.newest_first
        size_all = misses = missed_bytes = 0
        step_records = step_bytes = 0
        seen: set[int] = set()
        for log_offset in index.candidates(self._topic, self._key, self._begin_ms, self._end_ms):
            if len(found) >= self._count_max or misses > MISSES_MAX:
                break
            if missed_bytes > MISSED_BYTES_MAX:
                break
            if (
                log_offset is None
                or step_records >= RECORDS_PER_STEP
                or step_bytes >= BYTES_PER_STEP
            ):
                yield
                step_records = step_bytes = 0
            if log_offset is None:
                continue
            record = b"" if log_offset in seen else self._record_at(log_offset)
            seen.add(log_offset)
            step_records += 1
            step_bytes += len(record)
            if not self._is_wanted(record):
                misses += 1
                missed_bytes += len(record)
                continue
            size_all += len(record)
            if found and size_all > BODY_BYTES_MAX:
                break
            found.append(record)

    def _is_wanted(self, record: bytes) -> bool:
        message = decode_message(record) if record else None
        if (
            message is None
            or message.topic != self._topic
            or not self._begin_ms <= message.store_time_ms <= self._end_ms
        ):
            return False
        properties = message.properties
        is_carried = self._key == properties.get(
            PROPERTY_UNIQUE_KEY
        ) or self._key in properties.get(PROPERTY_KEYS, "").split(" ")
        return is_carried and self._is_visible(message)
