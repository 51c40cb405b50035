"""Find messages by key or tag: candidates are named elsewhere, the record itself decides.

By key: the index has 31-bit hashes of keys and times in seconds, so a candidate may be another
message; such a message is never returned.

By tag: consume queue units hold the hash of each message's tags. RocketMQ 5.4 adds an entry for
each tag to the index instead. Here nothing is written for it, and the messages of every store can
be found. A search goes backwards from the end of the requested time range.

Both search in steps, between which other work can run. The cost of reading a record depends on its
size, up to 4 MB, so a step counts records and bytes.
"""

import struct
from collections.abc import Callable, Iterable, Iterator

from rockhopper.broker.store.index.index import MessageIndex
from rockhopper.broker.store.queues.consume_queue import ConsumeQueue
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.properties import PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_UNIQUE_KEY
from rockhopper.protocol.store.expected import hash_of_tags
from rockhopper.protocol.store.message_codec import decode_message
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT, CONSUME_QUEUE_UNIT_SIZE_BYTES

BODY_BYTES_MAX = 8 << 20
# A millisecond or two.
RECORDS_PER_STEP = 32
BYTES_PER_STEP = 1 << 20
# Reading a record is expensive, so the number of rejected candidates is limited.
MISSES_MAX = 1000
MISSED_BYTES_MAX = 16 << 20
UNITS_PER_STEP = 16_384
# 10 million messages: a second of work, in steps of a millisecond or two.
STEPS_MAX = 640

_CODE = struct.Struct(">q")
_CODE_AT = CONSUME_QUEUE_UNIT_SIZE_BYTES - _CODE.size


class RecordSearch:
    """A search for the newest messages of a topic within a time range, both ends included."""

    def __init__(
        self,
        topic: str,
        wanted: str,
        count_max: int,
        begin_ms: int,
        end_ms: int,
        record_at: Callable[[int], bytes],
        is_visible: Callable[[StoredMessage], bool],
    ) -> None:
        """*wanted* is the value that ``is_carried`` looks for.

        *record_at* returns the verified record at a commit log offset, or empty bytes.
        """
        self._topic, self._wanted, self._count_max = topic, wanted, count_max
        self._begin_ms, self._end_ms = begin_ms, end_ms
        self._record_at, self._is_visible = record_at, is_visible
        self._found: list[tuple[int, bytes]] = []
        """Commit log offsets and records."""
        self._step_records = self._step_bytes = 0
        self.looked_bytes = 0
        """The size of the record that was read last."""

    def is_carried(self, message: StoredMessage) -> bool:
        """Return whether *message* has the wanted value."""
        raise NotImplementedError

    def is_step_full(self) -> bool:
        """Return whether other work should run before the next record is read."""
        return self._step_records >= RECORDS_PER_STEP or self._step_bytes >= BYTES_PER_STEP

    def next_step(self) -> None:
        """Start a new step, after other work has run."""
        self._step_records = self._step_bytes = 0

    def look_at(self, log_offset: int) -> bytes:
        """Return the record at *log_offset*; empty if it does not match or does not exist."""
        record = self._record_at(log_offset)
        self._step_records += 1
        self._step_bytes += len(record)
        self.looked_bytes = len(record)
        message = decode_message(record) if record else None
        if (
            message is None
            or message.topic != self._topic
            or not self._begin_ms <= message.store_time_ms <= self._end_ms
            or not self.is_carried(message)
            or not self._is_visible(message)
        ):
            return b""
        return record


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


class TagSearch(RecordSearch):
    """Collects the newest messages of a topic with a tag; ``steps`` does the work."""

    def records(self) -> list[bytes]:
        """Return the matching records, in the order of the log."""
        return [record for _, record in self._found]

    def steps(
        self, queues: Iterable[ConsumeQueue], bounds: Callable[[ConsumeQueue], tuple[int, int]]
    ) -> Iterator[None]:
        """Search in steps; *bounds* returns the offsets of a queue in the requested time range.

        Each queue contributes its newest messages only.
        """
        code = _CODE.pack(hash_of_tags(self._wanted))
        steps_left = STEPS_MAX
        for queue in queues:
            low, high = bounds(queue)
            taken = 0
            while high > low and taken < self._count_max and steps_left > 0:
                steps_left -= 1
                start = max(low, high - UNITS_PER_STEP)
                for log_offset in _matches(queue.read_units(start, high - start), code):
                    record = self.look_at(log_offset)
                    if record:
                        self._found.append((log_offset, record))
                        taken += 1
                    if taken == self._count_max or steps_left == 0:
                        break
                    if self.is_step_full():
                        steps_left -= 1
                        yield
                        self.next_step()
                high = start
                yield
                self.next_step()
            self._keep_newest()

    def is_carried(self, message: StoredMessage) -> bool:
        """Return whether the message has the wanted tag: two tags may have one hash."""
        return message.properties.get(PROPERTY_TAGS) == self._wanted

    def _keep_newest(self) -> None:
        self._found.sort()
        del self._found[: -self._count_max]
        size_all = 0
        for number, (_, record) in enumerate(reversed(self._found)):
            size_all += len(record)
            if number and size_all > BODY_BYTES_MAX:
                del self._found[:-number]
                break


def _matches(units: bytes, code: bytes) -> Iterator[int]:
    """Yield commit log offsets of the units with a tags code, the last one first."""
    at = units.rfind(code)
    while at >= 0:
        start, within = divmod(at, CONSUME_QUEUE_UNIT_SIZE_BYTES)
        if within == _CODE_AT:
            unit_at = start * CONSUME_QUEUE_UNIT_SIZE_BYTES
            yield CONSUME_QUEUE_UNIT.unpack_from(units, unit_at)[0]
        at = units.rfind(code, 0, at + len(code) - 1)
