"""OrderedBatch: what an orderly pop handed out of a queue, which blocks it until that is settled.

RocketMQ: ConsumerOrderInfo. The queue hands out nothing else while any message of the batch is
neither acknowledged nor visible again; the same attempt (a client that repeats its request) is let
through. It goes on at the first message that was not acknowledged: what was acknowledged behind
that one is handed out again, so that the order is kept.
"""

import msgspec


class OrderedBatch(msgspec.Struct):
    """The messages of one queue that are with an orderly consumer."""

    attempt_id: str | None
    pop_ms: int
    invisible_ms: int
    offsets: list[int]
    acked: set[int] = msgspec.field(default_factory=set)
    visible_at: dict[int, int] = msgspec.field(default_factory=dict)
    """Visible times that were changed, by offset."""
    counts: dict[int, int] = msgspec.field(default_factory=dict)
    """How often an offset was handed out before, where it was."""
    suspended: set[int] = msgspec.field(default_factory=set)
    """Offsets whose next delivery counts as no further attempt."""

    def visible_ms(self, offset: int) -> int:
        """From when on *offset* may be handed out again."""
        return self.visible_at.get(offset, self.pop_ms + self.invisible_ms)

    def blocked_until(self) -> int:
        """From when on the queue may hand out messages again; 0 when nothing is left to settle."""
        return max(
            (self.visible_ms(offset) for offset in self.offsets if offset not in self.acked),
            default=0,
        )

    def blocks(self, attempt_id: str | None, now_ms: int) -> bool:
        """Whether a pop by *attempt_id* has to wait."""
        if attempt_id is not None and attempt_id == self.attempt_id:
            return False
        return now_ms < self.blocked_until()

    def next_offset(self) -> int:
        """The first offset that is not acknowledged, or the one after the last."""
        for offset in self.offsets:
            if offset not in self.acked:
                return offset
        return self.offsets[-1] + 1

    def successor(
        self, attempt_id: str | None, pop_ms: int, invisible_ms: int, offsets: list[int]
    ) -> "OrderedBatch":
        """The batch of the next pop: it knows how often each message was handed out before."""
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
    """The bytes of a batch in the journal."""
    return _encoder.encode(batch)


def decode_batch(data: bytes) -> OrderedBatch | None:
    """A batch of the journal. Raises msgspec.DecodeError."""
    return msgspec.msgpack.decode(data, type=OrderedBatch) if data != _NONE else None
