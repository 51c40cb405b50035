"""Find messages by key: the index names candidates, the record itself decides.

The index has 31-bit hashes of keys and times in seconds, so a candidate may be another message;
such a message is never returned.
"""

from collections.abc import Iterator

from rockhopper.broker.store.index.index import MessageIndex
from rockhopper.broker.store.log.record_search import BODY_BYTES_MAX, RecordSearch
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.properties import PROPERTY_KEYS, PROPERTY_UNIQUE_KEY

# Reading a record is expensive, so the number of rejected candidates is limited.
MISSES_MAX = 1000
MISSED_BYTES_MAX = 16 << 20


class KeySearch(RecordSearch):
    """Collects the newest messages of a topic with a key; ``steps`` does the work."""

    @property
    def newest_first(self) -> list[bytes]:
        """The matching records."""
        return [record for _, record in self._found]

    def steps(self, index: MessageIndex) -> Iterator[None]:
        """Search in steps; other work can run between them."""
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
        """Return whether the wanted key is one of the message's keys, or its unique key."""
        properties = message.properties
        return self._wanted == properties.get(
            PROPERTY_UNIQUE_KEY
        ) or self._wanted in properties.get(PROPERTY_KEYS, "").split(" ")
