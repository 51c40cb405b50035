"""From records of a consume queue to the body and the texts of a pop answer."""

from collections.abc import Iterator
from typing import NamedTuple

from rockhopper.broker.features.pop import extra_info
from rockhopper.broker.features.pop.extra_info import NORMAL
from rockhopper.protocol.properties import PROPERTY_POP_CK
from rockhopper.protocol.store.message_codec import decode_message, encode_stored_message
from rockhopper.protocol.store.record_head import head_struct
from rockhopper.protocol.subscription import Subscription

_HEAD = head_struct("size_bytes", "queue_offset")


def split_records(body: bytes) -> Iterator[tuple[int, bytes]]:
    """(queue offset, record) of records that stand back to back."""
    position = 0
    while position < len(body):
        size, offset = _HEAD.unpack_from(body, position)
        yield offset, body[position : position + size]
        position += size


class Wanted(NamedTuple):
    """What a pop asks for; *subscription* None lets everything through, queue −1 means all."""

    group: str
    topic: str
    queue_id: int
    count_max: int
    invisible_ms: int
    from_newest: bool
    subscription: Subscription | None = None
    order: bool = False
    attempt_id: str | None = None

    @property
    def filter_key(self) -> tuple[object, ...]:
        """What decides whether there is something for it: pops of one key find the same.

        Versions of one expression let the same messages through; what else an attempt id that
        holds a queue finds, ``PopPolling.holding`` knows.
        """
        wanted = self.subscription
        expression = None if wanted is None else (wanted.expression_type, wanted.expression)
        return self.queue_id, self.order, expression


class Found(NamedTuple):
    """Messages that stand one after the other in :attr:`PopAnswer.records`, all of one queue."""

    retry_flag: str
    queue_id: int
    start: int
    offsets: list[int]


class PopAnswer:
    """What one pop has found so far, queue by queue."""

    def __init__(self, topic: str, pop_ms: int, invisible_ms: int, revive_queue_id: int) -> None:
        self.topic = topic
        self.pop_ms = pop_ms
        self.invisible_ms = invisible_ms
        self.revive_queue_id = revive_queue_id
        self.rest = 0
        self.is_unfinished = False
        self.count = 0
        self.records: list[bytes] = []
        self.found: list[Found] = []
        self.order_counts: dict[tuple[int, int], int] = {}
        """How often before, by queue id and queue offset, of an orderly pop."""
        self._order_counts: list[str] = []

    def add(
        self,
        queue_id: int,
        start: int,
        found: list[tuple[int, bytes]],
        *,
        flag: str,
        broker_name: str,
    ) -> None:
        """Take the messages of one queue; those of a retry topic get their first topic back."""
        self.found.append(Found(flag, queue_id, start, [offset for offset, _ in found]))
        self.count += len(found)
        if flag == NORMAL:
            self.records += [record for _, record in found]
            return
        for offset, record in found:
            message = decode_message(record)
            message.topic = self.topic
            message.properties[PROPERTY_POP_CK] = extra_info.format_extra_info(
                start,
                self.pop_ms,
                self.invisible_ms,
                self.revive_queue_id,
                flag,
                broker_name,
                queue_id,
                offset,
            )
            self.records.append(encode_stored_message(message))

    def add_order_counts(self, queue_id: int, offsets: list[int], counts: dict[int, int]) -> None:
        """Say how often messages of an orderly pop were handed out before."""
        for offset, count in counts.items():
            self.order_counts[queue_id, offset] = count
            self._order_counts.append(f"{NORMAL} qo{queue_id}%{offset} {count}")
        # Old clients know one count for a queue.
        least = min(counts.values()) if counts and len(counts) == len(offsets) else 0
        self._order_counts.append(f"{NORMAL} {queue_id} {least}")

    def ext(self) -> dict[str, str]:
        """The header of the answer."""
        ext = {
            "popTime": str(self.pop_ms),
            "invisibleTime": str(self.invisible_ms),
            "reviveQid": str(self.revive_queue_id),
            "restNum": str(self.rest),
        }
        if self.records:
            found = self.found
            ext["startOffsetInfo"] = ";".join(
                [f"{each.retry_flag} {each.queue_id} {each.start}" for each in found]
            )
            ext["msgOffsetInfo"] = ";".join(
                [f"{each.retry_flag} {each.queue_id} {_joined(each.offsets)}" for each in found]
            )
        if self._order_counts:
            ext["orderCountInfo"] = ";".join(self._order_counts)
        return ext

    def body(self) -> bytes:
        """The messages."""
        return b"".join(self.records)


def _joined(offsets: list[int]) -> str:
    return ",".join(map(str, offsets))
