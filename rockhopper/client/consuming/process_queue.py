"""One queue that this consumer holds: what waits, what is handed out, and how far it is finished.

A message is waiting, then in flight until its outcome is known. What may be committed is the offset
of the oldest message that is not finished: a message that takes long holds the commit back,
whatever comes after it.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable

from rockhopper.client.consuming.pulling import Space
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage


class Room:
    """How many messages and bytes may be held at once; `free` is set while there is room."""

    __slots__ = ("bytes", "bytes_max", "count", "count_max", "free")

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self.count = 0
        self.count_max = count_max
        self.bytes = 0
        self.bytes_max = bytes_max
        self.free = asyncio.Event()
        self.free.set()

    def add(self, count: int, size_bytes: int) -> None:
        """Count messages that have come."""
        self.count += count
        self.bytes += size_bytes
        if self.count >= self.count_max or self.bytes >= self.bytes_max:
            self.free.clear()

    def remove(self, count: int, size_bytes: int) -> None:
        """Count messages that are done with."""
        self.count -= count
        self.bytes -= size_bytes
        if self.count < self.count_max and self.bytes < self.bytes_max and not self.free.is_set():
            self.free.set()


class ProcessQueue:
    """The messages of one queue between the broker and the application."""

    __slots__ = (
        "_drained",
        "_in_flight",
        "_is_out_of_order",
        "_shared_room",
        "attempts",
        "committed",
        "fetch_offset",
        "is_collected",
        "is_dropped",
        "is_lost",
        "is_paused",
        "is_ready",
        "is_suspended",
        "last_fetch_ms",
        "last_finish_ms",
        "queue",
        "room",
        "span_free",
        "span_max",
        "waiting",
        "wanted",
    )

    def __init__(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        room: Room,
        shared_room: Room,
        span_max: int = 2000,
    ) -> None:
        self.queue = queue
        self.fetch_offset = offset
        self.committed = offset
        self.is_dropped = False
        """Given up: nothing is handed out; what is in flight may still be finished."""
        self.is_lost = False
        """Another member may have it by now: outcomes do not count any more."""
        self.is_paused = False
        """The application wants nothing of it now: see face/pauses.py."""
        self.wanted = asyncio.Event()
        self.wanted.set()
        self.is_collected = False
        """Orderly: a batch that is being collected may take more of it."""
        self.is_ready = False
        """Whether it stands in line to hand out."""
        self.is_suspended = False
        """Orderly: nothing is handed out until a failed message may be tried again."""
        self.attempts = 0
        """Orderly: how often the first waiting message was handed out in vain."""
        self.waiting: deque[ReceivedMessage] = deque()
        self.room = room
        self.span_max = span_max
        self.span_free = asyncio.Event()
        self.span_free.set()
        self.last_fetch_ms = 0
        self.last_finish_ms = 0
        self._shared_room = shared_room
        # In the order of their offsets, unless one was put back and taken again.
        self._in_flight: OrderedDict[int, ReceivedMessage] = OrderedDict()
        self._is_out_of_order = False
        self._drained: asyncio.Future[None] | None = None

    @property
    def in_flight(self) -> int:
        """How many messages are handed out and not finished."""
        return len(self._in_flight)

    @property
    def position(self) -> int:
        """The offset to commit: that of the first message which is not finished."""
        first = self.waiting[0].queue_offset if self.waiting else self.fetch_offset
        if not self._in_flight:
            return first
        if self._is_out_of_order:
            return min(first, min(self._in_flight))
        return next(iter(self._in_flight))

    @property
    def space(self) -> Space:
        """How much more may be held, here and in all queues."""
        own, shared = self.room, self._shared_room
        return Space(
            min(own.count_max - own.count, shared.count_max - shared.count),
            min(own.bytes_max - own.bytes, shared.bytes_max - shared.bytes),
        )

    def add(self, messages: Iterable[ReceivedMessage], next_offset: int) -> None:
        """Take what a pull brought; the next one begins at `next_offset`."""
        self.fetch_offset = next_offset
        added = list(messages)
        if added:
            self.waiting.extend(added)
            size_bytes = sum([message.size_bytes for message in added])
            self.room.add(len(added), size_bytes)
            self._shared_room.add(len(added), size_bytes)
            self._check_span()

    def take(self) -> ReceivedMessage:
        """Hand out the next waiting message."""
        message = self.waiting.popleft()
        if not self._in_flight:
            self._is_out_of_order = False
        self._in_flight[message.queue_offset] = message
        return message

    def take_first(self, may: Callable[[ReceivedMessage], bool]) -> ReceivedMessage | None:
        """Hand out the first waiting message that `may` be, past those that may not."""
        for place, message in enumerate(self.waiting):
            if not may(message):
                continue
            if place == 0:
                return self.take()
            del self.waiting[place]
            self._is_out_of_order = True
            self._in_flight[message.queue_offset] = message
            return message
        return None

    def finish(self, message: ReceivedMessage) -> bool:
        """Count a message as done; False if it is none of ours any more."""
        if self._in_flight.pop(message.queue_offset, None) is not message:
            return False
        size_bytes = message.size_bytes
        self.room.remove(1, size_bytes)
        self._shared_room.remove(1, size_bytes)
        if not self.span_free.is_set():
            self._check_span()
        if not self._in_flight and self._drained is not None:
            self._settle()
        return True

    def pause(self, is_paused: bool) -> None:
        """Hand out and fetch nothing, keeping what is here; or go on."""
        self.is_paused = is_paused
        if is_paused:
            self.wanted.clear()
        else:
            self.wanted.set()

    def put_back(self, message: ReceivedMessage) -> bool:
        """Let a message wait again, in its place; False if it is none of ours any more."""
        if self._in_flight.get(message.queue_offset) is not message:
            return False
        del self._in_flight[message.queue_offset]
        if self.is_dropped:
            # It is not handed out again, but it holds the commit back.
            self.room.remove(1, message.size_bytes)
            self._shared_room.remove(1, message.size_bytes)
        self._insert(message)
        if not self._in_flight and self._drained is not None:
            self._settle()
        return True

    def _insert(self, message: ReceivedMessage) -> None:
        offset = message.queue_offset
        place = 0
        for other in self.waiting:
            if other.queue_offset > offset:
                break
            place += 1
        self.waiting.insert(place, message)
        self._is_out_of_order = bool(self._in_flight)

    def drop_waiting(self) -> None:
        """Let go of what was not handed out: it will be fetched again, by whoever comes next."""
        if self.waiting:
            self.fetch_offset = self.waiting[0].queue_offset
            size_bytes = sum([message.size_bytes for message in self.waiting])
            self.room.remove(len(self.waiting), size_bytes)
            self._shared_room.remove(len(self.waiting), size_bytes)
            self.waiting.clear()
            self._check_span()

    def reset(self, offset: int) -> None:
        """Go on at `offset`; what is in flight does not count any more."""
        self.drop_waiting()
        for message in self._in_flight.values():
            self.room.remove(1, message.size_bytes)
            self._shared_room.remove(1, message.size_bytes)
        self._in_flight.clear()
        self.fetch_offset = offset
        self.attempts = 0
        self._check_span()
        self._settle()

    def drained(self) -> asyncio.Future[None]:
        """Return a future that is done when nothing is in flight."""
        if self._drained is None or self._drained.done():
            self._drained = asyncio.get_running_loop().create_future()
        if not self._in_flight:
            self._settle()
        assert self._drained is not None
        return self._drained

    def _settle(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def _check_span(self) -> None:
        if self.fetch_offset - self.position < self.span_max:
            self.span_free.set()
        else:
            self.span_free.clear()
