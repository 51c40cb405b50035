"""One queue of this consumer: messages waiting, messages in flight, and the offset to commit.

A message waits, then is in flight until its outcome is known. The offset to commit is that of the
oldest unfinished message: a slow message holds the commit back, even if later ones are finished.
Example: 5 is in flight, 6 and 7 are finished; the offset to commit is 5, and after a crash all
three are delivered again.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from rockhopper.client.consuming.pulling import Space
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage


class Room:
    """A limit on buffered messages and bytes; `free` is set while there is room.

    Everything in it also counts in `shared`, the room of all queues of a consumer, which is in no
    other.
    """

    __slots__ = ("bytes", "bytes_max", "count", "count_max", "free", "is_full", "shared")

    def __init__(self, count_max: int, bytes_max: int, shared: "Room | None" = None) -> None:
        self.shared = shared
        self.count = 0
        self.count_max = count_max
        self.bytes = 0
        self.bytes_max = bytes_max
        self.is_full = False
        self.free = asyncio.Event()
        self.free.set()

    def count_received(self, count: int, size_bytes: int) -> None:
        """Count received messages."""
        self.count += count
        self.bytes += size_bytes
        if self.count >= self.count_max or self.bytes >= self.bytes_max:
            self.is_full = True
            self.free.clear()
        if self.shared is not None:
            self.shared.count_received(count, size_bytes)

    def remove(self, count: int, size_bytes: int) -> None:
        """Stop counting finished or dropped messages."""
        self.count -= count
        self.bytes -= size_bytes
        if self.is_full:
            self.check_free()
        shared = self.shared
        if shared is not None:
            shared.count -= count
            shared.bytes -= size_bytes
            if shared.is_full:
                shared.check_free()

    def check_free(self) -> None:
        """Report that there is room, if there is."""
        if self.count < self.count_max and self.bytes < self.bytes_max:
            self.is_full = False
            self.free.set()

    async def wait_free(self) -> None:
        """Wait until there is room here, then until there is room for all queues."""
        await self.free.wait()
        if self.shared is not None:
            await self.shared.free.wait()

    @property
    def space(self) -> Space:
        """The room left for more messages, here and in all queues together."""
        count, size_bytes = self.count_max - self.count, self.bytes_max - self.bytes
        shared = self.shared
        if shared is None:
            return Space(count, size_bytes)
        return Space(
            min(count, shared.count_max - shared.count),
            min(size_bytes, shared.bytes_max - shared.bytes),
        )


class ProcessQueue:
    """The messages of one queue between the broker and the application."""

    __slots__ = (
        "_drained",
        "_in_flight",
        "_is_out_of_order",
        "_is_span_full",
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
        span_max: int = 2000,
    ) -> None:
        self.queue = queue
        self.fetch_offset = offset
        self.committed = offset
        self.is_dropped = False
        """The queue is being released: no more deliveries; in-flight messages may still finish."""
        self.is_lost = False
        """Another member may own the queue by now: outcomes no longer count."""
        self.is_paused = False
        """The application has paused the queue: see face/pauses.py."""
        self.wanted = asyncio.Event()
        self.wanted.set()
        self.is_collected = False
        """Orderly: a batch is being collected and may take more messages of this queue."""
        self.is_ready = False
        """Whether the queue is in the line for delivery."""
        self.is_suspended = False
        """Orderly: nothing is delivered until the failed message may be retried."""
        self.attempts = 0
        """Orderly: the number of failed deliveries of the first waiting message."""
        self.waiting: deque[ReceivedMessage] = deque()
        self.room = room
        self.span_max = span_max
        self.span_free = asyncio.Event()
        self.span_free.set()
        self._is_span_full = False
        self.last_fetch_ms = 0
        self.last_finish_ms = 0
        # Ordered by offset, unless a message was put back and taken again.
        self._in_flight: dict[int, ReceivedMessage] = {}
        self._is_out_of_order = False
        self._drained: asyncio.Future[None] | None = None

    @property
    def in_flight(self) -> int:
        """The number of delivered, unfinished messages."""
        return len(self._in_flight)

    @property
    def is_deliverable(self) -> bool:
        """Whether a message waits, and nothing holds the queue back."""
        return bool(self.waiting) and not (self.is_paused or self.is_suspended or self.is_dropped)

    @property
    def is_fetchable(self) -> bool:
        """Whether more messages may be fetched now; else `wait_fetchable` waits for it."""
        room = self.room
        is_full = room.is_full or (room.shared is not None and room.shared.is_full)
        return not (is_full or self._is_span_full or self.is_paused)

    async def wait_fetchable(self) -> None:
        """Wait until there is room, and until the application wants messages."""
        await self.room.wait_free()
        await self.span_free.wait()
        await self.wanted.wait()

    @property
    def position(self) -> int:
        """The offset to commit: that of the first unfinished message."""
        first = self.waiting[0].queue_offset if self.waiting else self.fetch_offset
        if not self._in_flight:
            return first
        if self._is_out_of_order:
            return min(first, min(self._in_flight))
        return next(iter(self._in_flight))

    def append_messages(self, messages: Iterable[ReceivedMessage], next_offset: int) -> None:
        """Add the messages of a pull; the next pull begins at `next_offset`."""
        self.fetch_offset = next_offset
        added = list(messages)
        if added:
            self.waiting.extend(added)
            size_bytes = sum([message.size_bytes for message in added])
            self.room.count_received(len(added), size_bytes)
            self._check_span()

    def next_message(self) -> ReceivedMessage:
        """Return the next waiting message and mark it as in flight."""
        message = self.waiting.popleft()
        if not self._in_flight:
            self._is_out_of_order = False
        self._in_flight[message.queue_offset] = message
        return message

    def next_messages(self, count_max: int) -> list[ReceivedMessage]:
        """Return up to `count_max` waiting messages and mark them as in flight."""
        if not self._in_flight:
            self._is_out_of_order = False
        popleft, in_flight = self.waiting.popleft, self._in_flight
        run = [popleft() for _ in range(min(count_max, len(self.waiting)))]
        for message in run:
            in_flight[message.queue_offset] = message
        return run

    def take_first(self, may: Callable[[ReceivedMessage], bool]) -> ReceivedMessage | None:
        """Return the first waiting message that `may` accepts, skipping the others."""
        for place, message in enumerate(self.waiting):
            if not may(message):
                continue
            if place == 0:
                return self.next_message()
            del self.waiting[place]
            self._is_out_of_order = True
            self._in_flight[message.queue_offset] = message
            return message
        return None

    def finish(self, message: ReceivedMessage) -> bool:
        """Mark a message as finished; return False if it is no longer in flight here."""
        offset, in_flight = message.queue_offset, self._in_flight
        if in_flight.get(offset) is not message:
            return False
        del in_flight[offset]
        # As `room.remove`: a loop calls this for each message.
        room, size_bytes = self.room, message.size_bytes
        room.count -= 1
        room.bytes -= size_bytes
        shared = room.shared
        if shared is not None:
            shared.count -= 1
            shared.bytes -= size_bytes
            if shared.is_full:
                shared.check_free()
        if room.is_full:
            room.check_free()
        if self._is_span_full or self._drained is not None:
            self._have_finished()
        return True

    def finish_run(self, run: Sequence[ReceivedMessage]) -> bool:
        """Mark messages as finished; return False if none of them is in flight here any more."""
        get = self._in_flight.get
        finished = [each for each in run if get(each.queue_offset) is each]
        if finished:
            for message in finished:
                del self._in_flight[message.queue_offset]
            self.room.remove(len(finished), sum([each.size_bytes for each in finished]))
            self._have_finished()
        return bool(finished)

    def _have_finished(self) -> None:
        if self._is_span_full:
            self._check_span()
        if not self._in_flight and self._drained is not None:
            self._settle()

    def pause(self, is_paused: bool) -> None:
        """Stop or resume delivery and fetching; waiting messages are kept."""
        self.is_paused = is_paused
        if is_paused:
            self.wanted.clear()
        else:
            self.wanted.set()

    def put_back(self, message: ReceivedMessage) -> bool:
        """Return a message to its place in the line; False if it is no longer in flight here."""
        if self._in_flight.get(message.queue_offset) is not message:
            return False
        del self._in_flight[message.queue_offset]
        if self.is_dropped:
            # It is not delivered again, but it holds the commit back.
            self.room.remove(1, message.size_bytes)
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
        """Drop the waiting messages: this or the next owner fetches them again."""
        if self.waiting:
            self.fetch_offset = self.waiting[0].queue_offset
            size_bytes = sum([message.size_bytes for message in self.waiting])
            self.room.remove(len(self.waiting), size_bytes)
            self.waiting.clear()
            self._check_span()

    def reset(self, offset: int) -> None:
        """Continue at `offset`; forget the messages in flight."""
        self.drop_waiting()
        for message in self._in_flight.values():
            self.room.remove(1, message.size_bytes)
        self._in_flight.clear()
        self.fetch_offset = offset
        self.attempts = 0
        self._check_span()
        self._settle()

    def drained(self) -> asyncio.Future[None]:
        """Return a future that is done when no message is in flight."""
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
        is_full = self.fetch_offset - self.position >= self.span_max
        if is_full != self._is_span_full:
            self._is_span_full = is_full
            if is_full:
                self.span_free.clear()
            else:
                self.span_free.set()
