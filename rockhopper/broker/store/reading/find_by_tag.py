"""Find messages by tag: consume queue units hold the hash of each message's tags.

RocketMQ 5.4 adds an entry for each tag to the index instead. Here nothing is written for it, and
the messages of every store can be found. A search goes backwards from the end of the requested time
range, in steps between which other work can run.
"""

import struct
from collections.abc import Callable, Iterable, Iterator

from rockhopper.broker.store.log.record_properties import hash_of_tags
from rockhopper.broker.store.log.record_search import BODY_BYTES_MAX, RecordSearch
from rockhopper.broker.store.queues.consume_queue import ConsumeQueue
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.properties import PROPERTY_TAGS
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT, CONSUME_QUEUE_UNIT_SIZE_BYTES

UNITS_PER_STEP = 16_384
# 10 million messages: a second of work, in steps of a millisecond or two.
STEPS_MAX = 640

_CODE = struct.Struct(">q")
_CODE_AT = CONSUME_QUEUE_UNIT_SIZE_BYTES - _CODE.size


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
