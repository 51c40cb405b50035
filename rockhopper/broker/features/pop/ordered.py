"""OrderedBatch: the messages of an orderly pop, which block their queue until they are settled.

RocketMQ: ConsumerOrderInfo. The queue hands out nothing else while any message of the batch is
neither acknowledged nor visible again. Only the same attempt (a client that repeats its request)
may pop again. The queue continues at the first unacknowledged message. Later messages of the batch
are handed out again, even acknowledged ones, so that the order is kept.
"""

import msgspec


class OrderedBatch(msgspec.Struct):
    """The messages of one queue that an orderly consumer is processing."""

    attempt_id: str | None
    pop_ms: int
    invisible_ms: int
    offsets: list[int]
    acked: set[int] = msgspec.field(default_factory=set)
    visible_at: dict[int, int] = msgspec.field(default_factory=dict)
    """Visible times that were changed, by offset."""
    counts: dict[int, int] = msgspec.field(default_factory=dict)
    """How often an offset was handed out before; only offsets that were."""
    suspended: set[int] = msgspec.field(default_factory=set)
    """Offsets whose next delivery does not count as an attempt."""

    def visible_ms(self, offset: int) -> int:
        """The time from which *offset* may be handed out again."""
        return self.visible_at.get(offset, self.pop_ms + self.invisible_ms)

    def compute_blocked_until(self) -> int:
        """The time from which the queue may hand out messages again; 0 if all are settled."""
        return max(
            (self.visible_ms(offset) for offset in self.offsets if offset not in self.acked),
            default=0,
        )

    def blocks(self, attempt_id: str | None, now_ms: int) -> bool:
        """Whether a pop by *attempt_id* has to wait."""
        if attempt_id is not None and attempt_id == self.attempt_id:
            return False
        return now_ms < self.compute_blocked_until()

    def next_offset(self) -> int:
        """The first offset that is not acknowledged, or the one after the last."""
        for offset in self.offsets:
            if offset not in self.acked:
                return offset
        return self.offsets[-1] + 1

    def successor(
        self, attempt_id: str | None, pop_ms: int, invisible_ms: int, offsets: list[int]
    ) -> "OrderedBatch":
        """The batch of the next pop, with the number of earlier deliveries of each message."""
        counts = self.counts
        if attempt_id is None or attempt_id != self.attempt_id:
            known = set(self.offsets)
            counts = {
                offset: self.counts.get(offset, 0) + (offset not in self.suspended)
                for offset in offsets
                if offset in known
            }
        return OrderedBatch(attempt_id, pop_ms, invisible_ms, offsets, set(), {}, dict(counts))


_encoder = msgspec.msgpack.Encoder()
_NONE = _encoder.encode(None)


def encode_batch(batch: OrderedBatch | None) -> bytes:
    """Encode the batch for the journal."""
    return _encoder.encode(batch)


def decode_batch(data: bytes) -> OrderedBatch | None:
    """Decode a batch of the journal. Raises msgspec.DecodeError."""
    return msgspec.msgpack.decode(data, type=OrderedBatch) if data != _NONE else None
