"""Builds the body and the header fields of a pop's answer from records of a consume queue."""

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
    """Yield (queue offset, record) of adjacent records."""
    position = 0
    while position < len(body):
        size, offset = _HEAD.unpack_from(body, position)
        yield offset, body[position : position + size]
        position += size


class PopRequest(NamedTuple):
    """The request of a pop; *subscription* None matches all messages, queue −1 means all."""

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
        """The key of the filter: pops with the same key find the same messages.

        Versions of the same expression match the same messages. An attempt that holds a queue may
        find more: see ``Lanes.attempts_holding``.
        """
        wanted = self.subscription
        expression = None if wanted is None else (wanted.expression_type, wanted.expression)
        return self.queue_id, self.order, expression


class FoundMessages(NamedTuple):
    """Adjacent messages of one queue in :attr:`PopAnswer.records`."""

    retry_flag: str
    queue_id: int
    start: int
    offsets: list[int]


class PopAnswer:
    """The messages that a pop has found so far, queue by queue."""

    def __init__(self, topic: str, pop_ms: int, invisible_ms: int, revive_queue_id: int) -> None:
        self.topic = topic
        self.pop_ms = pop_ms
        self.invisible_ms = invisible_ms
        self.revive_queue_id = revive_queue_id
        self.rest = 0
        self.is_unfinished = False
        self.count = 0
        self.records: list[bytes] = []
        self.found: list[FoundMessages] = []
        self.order_counts: dict[tuple[int, int], int] = {}
        """The number of earlier deliveries, by queue id and queue offset; orderly pops only."""
        self._order_counts: list[str] = []

    def append_messages(
        self,
        queue_id: int,
        start: int,
        found: list[tuple[int, bytes]],
        *,
        flag: str,
        broker_name: str,
    ) -> None:
        """Add the messages of one queue; those of a retry topic get their original topic back.

        A message without room for its receipt, which another broker may have put into the retry
        topic, is left out: ``Reviving`` makes it a dead letter after the invisible time.
        """
        if flag == NORMAL:
            records = [record for _, record in found]
            offsets = [offset for offset, _ in found]
        else:
            records, offsets = self._encode_retries(
                queue_id, start, found, flag=flag, broker_name=broker_name
            )
        if offsets:
            self.found.append(FoundMessages(flag, queue_id, start, offsets))
            self.count += len(offsets)
            self.records += records

    def _encode_retries(
        self,
        queue_id: int,
        start: int,
        found: list[tuple[int, bytes]],
        *,
        flag: str,
        broker_name: str,
    ) -> tuple[list[bytes], list[int]]:
        records: list[bytes] = []
        offsets: list[int] = []
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
            try:
                records.append(encode_stored_message(message))
            except ValueError:
                continue
            offsets.append(offset)
        return records, offsets

    def add_order_counts(self, queue_id: int, offsets: list[int], counts: dict[int, int]) -> None:
        """Add the number of earlier deliveries of messages of an orderly pop."""
        for offset, count in counts.items():
            self.order_counts[queue_id, offset] = count
            self._order_counts.append(f"{NORMAL} qo{queue_id}%{offset} {count}")
        # Old clients read one count per queue.
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
                [f"{each.retry_flag} {each.queue_id} {_join(each.offsets)}" for each in found]
            )
        if self._order_counts:
            ext["orderCountInfo"] = ";".join(self._order_counts)
        return ext

    def body(self) -> bytes:
        """The messages."""
        return b"".join(self.records)


def _join(offsets: list[int]) -> str:
    return ",".join(map(str, offsets))
