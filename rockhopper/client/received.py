"""ReceivedMessage: a message as delivered to a consumer."""

from collections.abc import Mapping
from typing import Any

from rockhopper.client.errors import ClientStateError
from rockhopper.client.queues import MessageQueue
from rockhopper.client.serializers import Serializer, decode_body
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.store.message_codec import PlainRecord, decode_message
from rockhopper.protocol.store.record_head import HEAD_SIZE_BYTES


class ReceivedMessage:
    """A message, and the queue it was read from.

    The record is decoded on the first access to a field other than the body and the position.
    """

    __slots__ = (
        "_body",
        "_body_size",
        "_record",
        "_stored",
        "_value",
        "deserializer",
        "queue",
        "queue_offset",
        "size_bytes",
    )

    def __init__(self, queue: MessageQueue, source: StoredMessage | PlainRecord) -> None:
        self.queue = queue
        self.deserializer: Serializer | None = None
        """Decodes the body for `value`; set by the consumer."""
        self._body: bytes | None = None
        self._record: bytes | None
        self._stored: StoredMessage | None
        self.queue_offset: int
        """Its position in the queue."""
        self.size_bytes: int
        """The size of its record."""
        if type(source) is tuple:
            self.queue_offset, self._body_size, self._record = source
            self.size_bytes = len(self._record)
            self._stored = None
        else:
            assert isinstance(source, StoredMessage)
            self.queue_offset, self._body_size, self._record = source.queue_offset, 0, None
            self.size_bytes = source.size_bytes
            self._stored = source

    def __repr__(self) -> str:
        return (
            f"<message {self.message_id} at {self.queue} offset {self.queue_offset}, "
            f"a record of {self.size_bytes} bytes>"
        )

    @property
    def stored(self) -> StoredMessage:
        """All fields of the record."""
        stored = self._stored
        if stored is None:
            assert self._record is not None
            stored = self._stored = decode_message(self._record)
            self._record = None
        return stored

    @property
    def body(self) -> bytes:
        """The body, decompressed on first use. Raises protocol.errors.CompressionError."""
        body = self._body
        if body is None:
            record = self._record
            if record is not None:
                body = record[HEAD_SIZE_BYTES : HEAD_SIZE_BYTES + self._body_size]
            else:
                body = self.stored.decompressed_body()
            self._body = body
        return body

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
