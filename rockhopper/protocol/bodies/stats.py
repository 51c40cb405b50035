"""Body of FIGURES (70018): the statistics of each topic and group of a broker. msgpack.

    [[topic, …], [group, …]]
    topic  [name, messages, newestMs, sent, sentPerSecond, handedOut, [group, …]]
    group  [name, members, lag, handedOut, [topic, …], oldestMs]

``sent`` and ``handedOut`` count from the broker's start. Without ``details``, messages, newestMs
and sentPerSecond of a topic are 0 and cost nothing. ``oldestMs`` is the store time of the oldest
message that a group has not consumed, 0 for none; without ``ages`` it is -1.
"""

import msgspec

from rockhopper.protocol.errors import MalformedBodyError

OLDEST_UNKNOWN = -1
LAG_UNKNOWN = -1
"""The lag of a broadcast group, whose members store their own offsets."""


class TopicFigures(msgspec.Struct, array_like=True):
    """A topic on one broker, or on several."""

    name: str
    messages: int = 0
    newest_ms: int = 0
    sent: int = 0
    sent_per_s: float = 0.0
    handed_out: int = 0
    groups: list[str] = []


class GroupFigures(msgspec.Struct, array_like=True):
    """A consumer group on one broker, or on several."""

    name: str
    members: int = 0
    lag: int = 0
    handed_out: int = 0
    topics: list[str] = []
    oldest_ms: int = OLDEST_UNKNOWN


class Figures(msgspec.Struct, array_like=True):
    """All topics and groups."""

    topics: list[TopicFigures] = []
    groups: list[GroupFigures] = []

    def encode(self) -> bytes:
        """Encode the body."""
        return _encode(self)

    @classmethod
    def decode(cls, body: bytes) -> "Figures":
        """Decode a body. Raises MalformedBodyError."""
        try:
            return _decode(body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise MalformedBodyError(f"the msgpack body does not decode: {error}") from None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Figures).decode
