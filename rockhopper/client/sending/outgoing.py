"""Prepares a message for the wire: checks it, adds its id, compresses its body. No I/O.

Compression takes 20 ms per megabyte, which would block the event loop. So large bodies are
compressed in a thread, and only if a sample of the body becomes smaller.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import overload

import msgspec

from rockhopper.client.errors import MessageRejectedError
from rockhopper.client.queues import MessageQueue
from rockhopper.client.sending.key_lanes import KeyLanes
from rockhopper.client.sending.plain_batches import ID_END, ID_START, encode_plain_batch
from rockhopper.protocol.compression import compress_zlib
from rockhopper.protocol.frame import FRAME_SIZE_BYTES_MAX
from rockhopper.protocol.message import Message, wrong_body
from rockhopper.protocol.message_ids import UniqueIds
from rockhopper.protocol.names import NOT_SENDABLE_TOPICS, is_retry_topic, tag_error, topic_error
from rockhopper.protocol.properties import PROPERTIES_SIZE_BYTES_MAX, encode_properties
from rockhopper.protocol.store.message_codec import encode_batch
from rockhopper.protocol.sys_flags import SYS_FLAG_COMPRESSED_ZLIB

# The room in a frame besides the largest header: in JSON an escape takes six bytes.
BODY_SIZE_BYTES_MAX = FRAME_SIZE_BYTES_MAX - 6 * PROPERTIES_SIZE_BYTES_MAX - 4096

# From this size on, a body is sampled first and compressed in a thread.
APART_SIZE_BYTES = 64 * 1024
_SAMPLE_SIZE_BYTES = 4096
_SAMPLE_COUNT = 4


class OutgoingMessage(msgspec.Struct, frozen=True, gc=False):
    """The content of a send request, without the queue."""

    topic: str
    body: bytes
    properties: str
    message_id: str
    born_time_ms: int
    flag: int = 0
    sys_flag: int = 0
    sharding_key: str | None = None
    is_batch: bool = False


class PlainParts(Sequence[OutgoingMessage]):
    """The messages of a plain batch. Each is created when somebody asks for it."""

    def __init__(self, messages: list[Message], message_ids: list[str], born_time_ms: int) -> None:
        self._messages = messages
        self.message_ids = message_ids
        self._born_time_ms = born_time_ms

    def __len__(self) -> int:
        return len(self.message_ids)

    @overload
    def __getitem__(self, place: int) -> OutgoingMessage: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[OutgoingMessage]: ...

    def __getitem__(self, place: int | slice) -> OutgoingMessage | Sequence[OutgoingMessage]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        message, message_id = self._messages[place], self.message_ids[place]
        properties = f"{ID_START}{message_id}{ID_END}"
        return OutgoingMessage(
            message.topic, message.body, properties, message_id, self._born_time_ms, message.flag
        )


def list_message_ids(parts: Sequence[OutgoingMessage]) -> list[str]:
    """Return the id of each message of a batch, or of a single one."""
    if type(parts) is PlainParts:
        return parts.message_ids
    return [part.message_id for part in parts]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class OutgoingPolicy:
    """Prepares messages within the limits of one producer. Raises MessageRejectedError."""

    def __init__(
        self,
        ids: UniqueIds,
        *,
        compress_above_bytes: int | None = 4096,
        message_size_bytes_max: int = 4 * 1024 * 1024,
        now_ms: Callable[[], int] = _now_ms,
    ) -> None:
        self._compress_above_bytes = compress_above_bytes
        self._message_size_bytes_max = message_size_bytes_max
        self._ids = ids
        self._now_ms = now_ms
        self._good_topics: set[str] = set()
        # Messages to one queue must not overtake each other during compression.
        self._queues = KeyLanes()
        limits = (message_size_bytes_max, compress_above_bytes, BODY_SIZE_BYTES_MAX)
        self._plain_size_bytes_max = min(limit for limit in limits if limit is not None)
        self.batch_size_bytes_max = min(message_size_bytes_max, BODY_SIZE_BYTES_MAX)

    def may_compress(self, body: bytes) -> bool:
        """Whether a body is large enough to be compressed, unless it is in a batch."""
        limit = self._compress_above_bytes
        return limit is not None and len(body) > limit

    def must_wait(self, body: bytes, queue: MessageQueue | int | None) -> bool:
        """Whether a body is compressed in a thread, or another one to a chosen queue is."""
        return len(body) > APART_SIZE_BYTES or (queue is not None and len(self._queues) > 0)

    async def prepare_apart(
        self,
        message: Message,
        queue: MessageQueue | int | None = None,
        *,
        system: Mapping[str, str] | None = None,
        sys_flag: int = 0,
    ) -> OutgoingMessage:
        """Prepare a message; compress a large body in a thread.

        Calls with the same topic and *queue* return in the order in which they were made.
        """
        compressed = None
        if self.must_wait(message.body, queue):
            compressed = await self._compressed_apart(message.topic, message.body, queue)
        return self.prepare(message, system=system, sys_flag=sys_flag, compressed=compressed)

    async def prepare_plain_apart(
        self, topic: str, body: bytes, queue: MessageQueue | int | None
    ) -> OutgoingMessage:
        """See prepare_plain and prepare_apart."""
        compressed = await self._compressed_apart(topic, body, queue)
        return self.prepare_plain(topic, body, compressed=compressed)

    async def _compressed_apart(
        self, topic: str, body: bytes, queue: MessageQueue | int | None
    ) -> bytes | None:
        if queue is None:
            return await self._compress_apart(body)
        async with self._queues.line_up((topic, queue)) as turn:
            await turn.wait()
            return await self._compress_apart(body)

    async def _compress_apart(self, body: bytes) -> bytes | None:
        limit = self._compress_above_bytes
        if limit is None or not max(limit, APART_SIZE_BYTES) < len(body):
            return None
        if len(body) > self._message_size_bytes_max:
            return None  # it will be refused
        return await asyncio.to_thread(_compress_if_smaller, body)

    def prepare(
        self,
        message: Message,
        *,
        in_batch: bool = False,
        system: Mapping[str, str] | None = None,
        sys_flag: int = 0,
        compressed: bytes | None = None,
    ) -> OutgoingMessage:
        """Check and prepare a message; the bodies of a batch stay uncompressed.

        `system` contains properties with RocketMQ's reserved names, `sys_flag` flags besides
        compression. `compressed` is the compressed body, or the original body if compression does
        not help.
        """
        topic, body, flag = message.topic, message.body, message.flag
        if (
            type(flag) is not int
            or not -0x80000000 <= flag <= 0x7FFFFFFF
            or type(body) is not bytes
        ):
            _check_body_and_flag(message)
        if message.is_plain and system is None and not in_batch and not sys_flag:
            return self.prepare_plain(topic, body, flag, compressed)
        if topic not in self._good_topics:
            self._check_topic(topic)
        if len(body) > self._plain_size_bytes_max:
            body, compression = self._large_body(body, topic, in_batch, compressed)
            sys_flag |= compression
        message_id = self._ids.next()
        return OutgoingMessage(
            topic,
            body,
            _properties_text(message, message_id, system),
            message_id,
            self._now_ms(),
            flag,
            sys_flag,
            message.sharding_key,
        )

    def prepare_plain(
        self, topic: str, body: bytes, flag: int = 0, compressed: bytes | None = None
    ) -> OutgoingMessage:
        """Check and prepare a message without own properties."""
        if topic not in self._good_topics:
            self._check_topic(topic)
        sys_flag = 0
        if len(body) > self._plain_size_bytes_max:
            body, sys_flag = self._large_body(body, topic, False, compressed)
        now_ms = self._now_ms()
        message_id = self._ids.next_at(now_ms)
        properties = f"{ID_START}{message_id}{ID_END}"
        return OutgoingMessage(topic, body, properties, message_id, now_ms, flag, sys_flag)

    def _large_body(
        self, body: bytes, topic: str, in_batch: bool, compressed: bytes | None
    ) -> tuple[bytes, int]:
        """Return the body to send, and the flags for its compression."""
        self._check_size("body", len(body), topic)
        sys_flag = 0
        limit = self._compress_above_bytes
        if not in_batch and limit is not None and len(body) > limit:
            if compressed is None:
                compressed = _compress_if_smaller(body)
            if len(compressed) < len(body):
                body, sys_flag = compressed, SYS_FLAG_COMPRESSED_ZLIB
        _check_fits_frame("body", len(body), topic)
        return body, sys_flag

    def prepare_batch(
        self, messages: list[Message]
    ) -> tuple[OutgoingMessage, Sequence[OutgoingMessage]]:
        """Return the batch as one message, and its parts."""
        first = messages[0]
        if not is_retry_topic(first.topic) and (plain := self._prepare_plain_batch(messages)):
            return plain
        parts = []
        for message in messages:
            _check_batchable(message, first)
            parts.append(self.prepare(message, in_batch=True))
        return self.join(parts, first.wait_stored), parts

    def _prepare_plain_batch(
        self, messages: list[Message]
    ) -> tuple[OutgoingMessage, PlainParts] | None:
        topic = messages[0].topic
        if topic not in self._good_topics:
            self._check_topic(topic)
        id_start, number = self._ids.reserve(len(messages))
        encoded = encode_plain_batch(messages, self.batch_size_bytes_max, id_start, number)
        if encoded is None:
            return None
        body, message_ids = encoded
        now_ms = self._now_ms()
        return self._wrap_batch(topic, body, now_ms), PlainParts(messages, message_ids, now_ms)

    def join(self, parts: Sequence[OutgoingMessage], wait_stored: bool = True) -> OutgoingMessage:
        """Return a batch; its messages must have the same topic, sharding key and `wait_stored`."""
        first = parts[0]
        body = encode_batch((part.flag, part.body, part.properties.encode()) for part in parts)
        self._check_size("batch", len(body), first.topic)
        _check_fits_frame("batch", len(body), first.topic)
        return self._wrap_batch(
            first.topic, body, first.born_time_ms, first.sharding_key, wait_stored
        )

    def _wrap_batch(
        self,
        topic: str,
        body: bytes,
        born_time_ms: int,
        sharding_key: str | None = None,
        wait_stored: bool = True,
    ) -> OutgoingMessage:
        message_id = self._ids.next()
        properties = _properties_text(Message(topic, wait_stored=wait_stored), message_id)
        return OutgoingMessage(
            topic,
            body,
            properties,
            message_id,
            born_time_ms,
            sharding_key=sharding_key,
            is_batch=True,
        )

    def _check_topic(self, topic: str) -> None:
        reason = topic_error(topic)
        if reason is not None:
            raise MessageRejectedError(reason)
        if topic in NOT_SENDABLE_TOPICS:
            raise MessageRejectedError(f"only brokers may write to topic {topic!r}")
        self._good_topics.add(topic)

    def _check_size(self, what: str, size_bytes: int, topic: str) -> None:
        if size_bytes > self._message_size_bytes_max:
            raise MessageRejectedError(
                f"the {what} for {topic!r} has {size_bytes:,} bytes; "
                f"{self._message_size_bytes_max:,} are allowed",
                remedy="send less at once, or raise message_size_bytes_max here and "
                "maxMessageSize on the brokers",
            )


def _compress_if_smaller(body: bytes) -> bytes:
    """Return the compressed body, or the original if a sample of it does not become smaller."""
    if len(body) > APART_SIZE_BYTES:
        step = (len(body) - _SAMPLE_SIZE_BYTES) // (_SAMPLE_COUNT - 1)
        starts = range(0, _SAMPLE_COUNT * step, step)
        sample = b"".join(body[start : start + _SAMPLE_SIZE_BYTES] for start in starts)
        if len(compress_zlib(sample)) >= len(sample):
            return body
    return compress_zlib(body)


def _check_fits_frame(what: str, size_bytes: int, topic: str) -> None:
    if size_bytes > BODY_SIZE_BYTES_MAX:
        raise MessageRejectedError(
            f"the {what} for {topic!r} has {size_bytes:,} bytes on the wire; RocketMQ's protocol "
            f"allows {BODY_SIZE_BYTES_MAX:,}",
            remedy="send less at once: spread it over several messages",
        )


def count_utf8_bytes(text: str) -> int:
    """Return the size of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def _properties_text(
    message: Message, message_id: str, system: Mapping[str, str] | None = None
) -> str:
    if message.tags is not None and (reason := tag_error(message.tags)):
        raise MessageRejectedError(reason)
    properties = message.wire_properties(message_id)
    if system is not None:
        properties.update(system)
    try:
        text = encode_properties(properties)
    except ValueError as error:
        raise MessageRejectedError(str(error)) from error
    size_bytes = count_utf8_bytes(text)
    if size_bytes > PROPERTIES_SIZE_BYTES_MAX:
        raise MessageRejectedError(
            f"the properties of a message for {message.topic!r} have {size_bytes:,} bytes; "
            f"{PROPERTIES_SIZE_BYTES_MAX:,} are allowed",
            remedy="put large values into the body",
        )
    return text


def _check_body_and_flag(message: Message) -> None:
    if not isinstance(message.body, bytes | bytearray | memoryview):
        raise wrong_body(message.body)
    if not isinstance(message.flag, int):
        raise TypeError(f"flag is {message.flag!r}: it must be a whole number")
    if not -0x80000000 <= message.flag <= 0x7FFFFFFF:
        raise MessageRejectedError(
            f"flag is {message.flag}: it must fit into 32 bits, -2147483648 to 2147483647"
        )


def _check_batchable(message: Message, first: Message) -> None:
    if message.topic != first.topic:
        raise MessageRejectedError(
            f"all messages of a batch go to one topic, but this one has {first.topic!r} and "
            f"{message.topic!r}"
        )
    if message.is_delayed:
        raise MessageRejectedError("a batch cannot contain delayed messages: send them one by one")
    if is_retry_topic(message.topic):
        raise MessageRejectedError(
            "a batch cannot go to a retry topic: send the messages one by one"
        )
    if message.sharding_key != first.sharding_key:
        raise MessageRejectedError(
            "a batch goes to one queue, but its messages have different sharding keys"
        )
    if message.wait_stored != first.wait_stored:
        raise MessageRejectedError("all messages of a batch need the same wait_stored")
