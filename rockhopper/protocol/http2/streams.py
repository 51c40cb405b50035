"""A stream: one request and its answer, with their states and the data waiting to be sent."""

from collections import deque


class Stream:
    """A stream that is open in at least one direction."""

    __slots__ = (
        "declared_bytes",
        "id",
        "is_heard",
        "receive_window",
        "received_bytes",
        "send_window",
        "trailers",
        "unsent",
    )

    def __init__(self, stream_id: int, send_window: int, receive_window: int) -> None:
        self.id = stream_id
        self.send_window = send_window
        self.receive_window = receive_window
        self.is_heard = False
        """Whether the request is complete."""
        self.declared_bytes: int | None = None
        self.received_bytes = 0
        self.unsent: deque[memoryview] = deque()
        """Data held back by the peer's flow control, one entry for each call of ``data``."""
        self.trailers: bytes | None = None
        """The block that ends the answer, once known."""

    @property
    def is_answered(self) -> bool:
        """Whether the whole answer is known, even if not yet sent."""
        return self.trailers is not None
