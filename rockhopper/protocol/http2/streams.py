"""One request and its answer: how far each has come, and what waits to be sent."""

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
        """Whether the peer has said everything."""
        self.declared_bytes: int | None = None
        self.received_bytes = 0
        self.unsent: deque[memoryview] = deque()
        """What the peer's windows do not let out yet, one entry for each ``data``."""
        self.trailers: bytes | None = None
        """The block that ends the answer, once it is known."""

    @property
    def is_answered(self) -> bool:
        """Whether all of the answer is known, if not sent."""
        return self.trailers is not None
