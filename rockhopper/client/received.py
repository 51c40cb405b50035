"""ReceivedMessage: a message as delivered to a consumer.

The record that arrived is kept in two parts: its body, and the rest, which is the head with what
follows the body (protocol.store.message_codec.record). Most applications read bodies only, so the
rest is decoded on the first access to another field.
"""

from collections.abc import Callable, Mapping
from typing import Any

from rockhopper.client.errors import ClientStateError
from rockhopper.client.queues import MessageQueue
from rockhopper.client.serializers import Serializer, decode_body
from rockhopper.protocol.compiled import import_compiled
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.store.message_codec import (
    PlainRecord,
    decode_message,
    split_plain_records,
)
from rockhopper.protocol.store.record_head import HEAD_SIZE_BYTES


class ReceivedMessage:
    """A message, and the queue it was read from."""

    __slots__ = (
        "_body",
        "_rest",
        "_stored",
        "_value",
        "deserializer",
        "queue",
        "queue_offset",
        "size_bytes",
    )

    # Compiled code fills the same slots: _messages.c. A slot without a value is decoded on use.
    def __init__(self, queue: MessageQueue, source: StoredMessage | PlainRecord) -> None:
        self.queue = queue
        self.deserializer: Serializer | None = None
        """Decodes the body for `value`; set by the consumer."""
        self.queue_offset: int
        """Its position in the queue."""
        self.size_bytes: int
        """The size of its record."""
        if isinstance(source, StoredMessage):
            self.queue_offset = source.queue_offset
            self.size_bytes = source.size_bytes
            self._stored = source
        else:
            self.queue_offset, body_size, record = source
            body_end = HEAD_SIZE_BYTES + body_size
            self.size_bytes = len(record)
            self._body = record[HEAD_SIZE_BYTES:body_end]
            self._rest = record[:HEAD_SIZE_BYTES] + record[body_end:]

    def __repr__(self) -> str:
        return (
            f"<message {self.message_id} at {self.queue} offset {self.queue_offset}, "
            f"a record of {self.size_bytes} bytes>"
        )

    @property
    def stored(self) -> StoredMessage:
        """All fields of the record."""
        try:
            return self._stored
        except AttributeError:
            pass
        head, tail = self._rest[:HEAD_SIZE_BYTES], self._rest[HEAD_SIZE_BYTES:]
        self._stored = decode_message(head + self._body + tail)
        del self._rest
        return self._stored

    @property
    def body(self) -> bytes:
        """The body, decompressed on first use. Raises protocol.errors.CompressionError."""
        try:
            return self._body
        except AttributeError:
            self._body = self._stored.decompressed_body()
            return self._body

    @property
    def value(self) -> Any:
        """The body as decoded by the client's deserializer, cached. Raises BodyError."""
        try:
            return self._value
        except AttributeError:
            pass
        if self.deserializer is None:
            raise ClientStateError(
                "message.value needs a deserializer: pass one to the client, as in Consumer(…, "
                "deserializer=JSON()), or Producer(deserializer=JSON()) for replies"
            )
        self._value: Any = decode_body(self.deserializer, self.body, repr(self))
        return self._value

    @property
    def topic(self) -> str:
        """The topic; for a redelivered message, its original topic."""
        return self.stored.topic

    @property
    def broker_name(self) -> str:
        """The broker it was read from."""
        return self.queue.broker_name

    @property
    def queue_id(self) -> int:
        """The number of its queue on that broker."""
        return self.queue.queue_id

    @property
    def message_id(self) -> str:
        """The id that the producer assigned."""
        return self.stored.message_id

    @property
    def offset_message_id(self) -> str:
        """The id that encodes its position in the broker's commit log."""
        return self.stored.offset_message_id

    @property
    def tags(self) -> str | None:
        """The tag."""
        return self.stored.tags

    @property
    def keys(self) -> list[str]:
        """The keys by which it can be queried."""
        return self.stored.keys

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties: the producer's and those added by the broker."""
        return self.stored.properties

    @property
    def reconsume_times(self) -> int:
        """How often the group has retried it."""
        return self.stored.reconsume_times

    @property
    def born_time_ms(self) -> int:
        """When the producer sent it, by the producer's clock."""
        return self.stored.born_time_ms

    @property
    def store_time_ms(self) -> int:
        """When the broker stored it, by the broker's clock."""
        return self.stored.store_time_ms


def receive_in_python(
    queue: MessageQueue, buffer: bytes, start: int, topic: bytes
) -> tuple[list[ReceivedMessage], int]:
    """Replaces `receive` if `_messages.c` could not be compiled."""
    records, end = split_plain_records(buffer, start, topic)
    return [ReceivedMessage(queue, record) for record in records], end


_messages = import_compiled("rockhopper.client._messages")
receive: Callable[[MessageQueue, bytes, int, bytes], tuple[list[ReceivedMessage], int]]
if _messages is None:
    receive = receive_in_python
else:
    _messages.set_received(ReceivedMessage)
    receive = _messages.receive
"""Returns the messages of the plain records from a place of an answer on, and where they end.

The record that is there, if any, is not plain: decode_message reads it, or refuses it.
"""
