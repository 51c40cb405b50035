"""A message as a consumer gets it."""

from collections.abc import Mapping

from rockhopper.client.queues import MessageQueue
from rockhopper.protocol.message import StoredMessage


class ReceivedMessage:
    """A message, and the queue it was read from; `stored` holds every field of its record."""

    __slots__ = ("_body", "queue", "stored")

    def __init__(self, queue: MessageQueue, stored: StoredMessage) -> None:
        self.queue = queue
        self.stored = stored
        self._body: bytes | None = None

    def __repr__(self) -> str:
        size = self.stored.size_bytes
        return (
            f"<message {self.message_id} at {self.queue} offset {self.queue_offset}, {size} bytes>"
        )

    @property
    def body(self) -> bytes:
        """The body, decompressed on first use. Raises protocol.errors.CompressionError."""
        if self._body is None:
            self._body = self.stored.decompressed_body()
        return self._body

    @property
    def topic(self) -> str:
        """Its topic; of a message that is delivered again, the one it was first sent to."""
        return self.stored.topic

    @property
    def broker_name(self) -> str:
        """The broker that it was read from."""
        return self.queue.broker_name

    @property
    def queue_id(self) -> int:
        """The number of its queue on that broker."""
        return self.queue.queue_id

    @property
    def queue_offset(self) -> int:
        """Its position in the queue."""
        return self.stored.queue_offset

    @property
    def message_id(self) -> str:
        """The id that the producer gave it."""
        return self.stored.message_id

    @property
    def offset_message_id(self) -> str:
        """The id that names its place in the broker's commit log."""
        return self.stored.offset_message_id

    @property
    def tags(self) -> str | None:
        """Its tag."""
        return self.stored.tags

    @property
    def keys(self) -> list[str]:
        """The keys it can be queried by."""
        return self.stored.keys

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties: the producer's and those that the broker added."""
        return self.stored.properties

    @property
    def reconsume_times(self) -> int:
        """How often it was delivered before, to a group that asked for it again."""
        return self.stored.reconsume_times

    @property
    def born_time_ms(self) -> int:
        """When the producer sent it, by the producer's clock."""
        return self.stored.born_time_ms

    @property
    def store_time_ms(self) -> int:
        """When the broker stored it, by the broker's clock."""
        return self.stored.store_time_ms
