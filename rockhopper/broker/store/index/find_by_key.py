"""Finding messages by key: the index says where to look, the record itself decides.

The index knows keys by a 31-bit hash and times by the second, so what it names may be another
message; nobody who asks ever gets to see one.
"""

from collections.abc import Iterator

from rockhopper.broker.store.index.index import MessageIndex
from rockhopper.broker.store.log.record_search import BODY_BYTES_MAX, RecordSearch
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.properties import PROPERTY_KEYS, PROPERTY_UNIQUE_KEY

# A look at each record costs: what nobody is shown is not read without end.
MISSES_MAX = 1000
MISSED_BYTES_MAX = 16 << 20


class KeySearch(RecordSearch):
    """Collects the newest messages of a topic with a key; ``steps`` does the work."""

    @property
    def newest_first(self) -> list[bytes]:
        """The records that were found."""
        return [record for _, record in self._found]

    def steps(self, index: MessageIndex) -> Iterator[None]:
        """Search; between the steps others can be served."""
        found = self._found
        size_all = misses = missed_bytes = 0
        seen: set[int] = set()
        for log_offset in index.candidates(self._topic, self._wanted, self._begin_ms, self._end_ms):
            if len(found) >= self._count_max or misses > MISSES_MAX:
                break
            if missed_bytes > MISSED_BYTES_MAX:
                break
            if log_offset is None or self.is_step_full():
                yield
                self.next_step()
            if log_offset is None:
                continue
            record = b"" if log_offset in seen else self.look_at(log_offset)
            if not record:
                misses += 1
                missed_bytes += 0 if log_offset in seen else self.looked_bytes
            seen.add(log_offset)
            if not record:
                continue
            size_all += len(record)
            if found and size_all > BODY_BYTES_MAX:
                break
            found.append((log_offset, record))

    def is_carried(self, message: StoredMessage) -> bool:
        """Whether it is one of its keys, or its unique key."""
        properties = message.properties
        return self._wanted == properties.get(
            PROPERTY_UNIQUE_KEY
        ) or self._wanted in properties.get(PROPERTY_KEYS, "").split(" ")
