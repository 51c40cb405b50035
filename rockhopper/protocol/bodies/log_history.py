"""Bodies of LOG_HISTORY (70020): msgpack, positional arrays.

request  [group or nil, [epoch id, …] newest first, [[topic, queue id], …]]
answer   [[epoch id, …] newest first, newest common id or nil, [end offset or nil, …]]

The ends are those of the requested queues at the end of the newest common epoch, in the same order;
nil if nothing was truncated since.
"""

import msgspec

from rockhopper.protocol.errors import MalformedBodyError

IDS_MAX = 32
QUEUES_MAX = 10_000


class HistoryQuestion(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The knowledge of a reader: the epochs in which it has read, and the queues that it reads."""

    group: str | None
    known_ids: list[str]
    queues: list[tuple[str, int]]


class HistoryAnswer(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The epochs of the log, and the offsets up to which its queues match those of the reader."""

    ids: list[str]
    common_id: str | None
    ends: list[int | None]


_encode = msgspec.msgpack.Encoder().encode
_question = msgspec.msgpack.Decoder(HistoryQuestion)
_answer = msgspec.msgpack.Decoder(HistoryAnswer)


def encode_history(value: HistoryQuestion | HistoryAnswer) -> bytes:
    """Encode either body."""
    return _encode(value)


def decode_history_question(body: bytes) -> HistoryQuestion:
    """Decode a request. Raises MalformedBodyError."""
    try:
        return _question.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise MalformedBodyError(f"the msgpack body does not decode: {error}") from None


def decode_history_answer(body: bytes) -> HistoryAnswer:
    """Decode an answer. Raises MalformedBodyError."""
    try:
        return _answer.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise MalformedBodyError(f"the msgpack body does not decode: {error}") from None
