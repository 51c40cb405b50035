"""AssignedReaders: reads several queues at once, each queue in order.

The queues that have prefetched messages stand in a line. A message is taken from the first one,
which then goes to the end of the line: a full queue does not hold back the others.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Iterable

from rockhopper.client.consuming.face.pauses import Paused, Pauses
from rockhopper.client.consuming.pulling import PullSource
from rockhopper.client.consuming.queue_reader import QueueReader
from rockhopper.client.errors import ClientStateError
from rockhopper.client.network.outages import Outages
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from rockhopper.client.serializers import Serializer


class AssignedReaders:
    """The readers of the assigned queues. Nothing is fetched before `start_reading`."""

    def __init__(
        self,
        source: PullSource,
        outages: Outages,
        *,
        batch_size: int = 32,
        poll_s: float = 15.0,
        deserializer: Serializer | None = None,
    ) -> None:
        self._source = source
        self._outages = outages
        self._batch_size = batch_size
        self._poll_s = poll_s
        self._deserializer = deserializer
        self._pauses = Pauses(None)
        self._readers: dict[MessageQueue, QueueReader] = {}
        self.ready: deque[QueueReader] = deque()
        """The readers with messages, in the order in which they deliver."""
        self._progress = asyncio.Event()
        self.is_reading = False
        """Whether `start_reading` was called."""
        self._left: dict[MessageQueue, int] = {}

    @property
    def queues(self) -> list[MessageQueue]:
        """The assigned queues."""
        return list(self._readers)

    @property
    def positions(self) -> dict[MessageQueue, int]:
        """The offset of the next message to deliver from each queue."""
        return {queue: reader.position for queue, reader in self._readers.items()}

    def find(self, queue: MessageQueue) -> QueueReader:
        """Return the reader of a queue. Raises ClientStateError if the queue is not assigned."""
        reader = self._readers.get(queue)
        if reader is None:
            raise ClientStateError(f"{queue} is not assigned to this consumer")
        return reader

    def adopt(self, queue: MessageQueue, offset: int) -> None:
        """Read a queue from `offset` on."""
        reader = QueueReader(
            queue,
            offset,
            self._source,
            self._progressed,
            self._outages,
            batch_size=self._batch_size,
            poll_s=self._poll_s,
        )
        self._readers[queue] = reader
        self._start(reader)

    async def release(self, queues: Iterable[MessageQueue]) -> None:
        """Stop reading `queues` and remember the positions: a broker may return to the route."""
        readers = [self._readers.pop(queue) for queue in queues]
        self._left |= {reader.queue: reader.position for reader in readers}
        self.ready = deque(each for each in self.ready if each not in readers)
        await asyncio.gather(*(reader.stop() for reader in readers))

    def pop_left(self, queue: MessageQueue) -> int | None:
        """Return the position at which a queue was released, once; None if it was not."""
        return self._left.pop(queue, None)

    def start_reading(self) -> None:
        """Start prefetching from all queues, also from those assigned later."""
        self.is_reading = True
        for reader in self._readers.values():
            self._start(reader)

    def _start(self, reader: QueueReader) -> None:
        if self.is_reading and not self._pauses.cover(reader.queue):
            reader.start()

    def stop(self) -> Awaitable[object]:
        """Stop prefetching from all queues, and end the waiting; the result can be awaited."""
        self._progress.set()
        return asyncio.gather(*(reader.stop() for reader in self._readers.values()))

    def pause(self, *what: Paused) -> None:
        """Deliver and fetch no messages of these topics and queues; without arguments, of all."""
        self._pauses.pause(*what)
        self._heed_pauses()

    def resume(self, *what: Paused) -> None:
        """Resume these topics and queues; without arguments, all."""
        self._pauses.resume(*what)
        self._heed_pauses()

    @property
    def paused(self) -> list[Paused]:
        """The paused topics and queues; all assigned topics after `pause()`."""
        return self._pauses.list_paused(queue.topic for queue in self._readers)

    def _heed_pauses(self) -> None:
        for queue, reader in self._readers.items():
            if self._pauses.cover(queue):
                reader.stop()
            else:
                self._start(reader)
        ready = dict.fromkeys([*self.ready, *self._readers.values()])
        self.ready = deque(
            each for each in ready if each.has_message and not self._pauses.cover(each.queue)
        )
        self._progress.set()

    async def seek(self, reader: QueueReader, offset: int) -> None:
        """Continue at `offset` in the queue of `reader`, and drop its prefetched messages."""
        await reader.seek(offset)
        self.ready = deque(each for each in self.ready if each.has_message)

    def take_message(self) -> ReceivedMessage:
        """Take a message from the queue that has waited longest: round-robin over the queues."""
        reader = self.ready.popleft()
        message = reader.take()
        message.deserializer = self._deserializer
        if reader.has_message:
            self.ready.append(reader)
        return message

    def put_back(self, message: ReceivedMessage) -> None:
        """Deliver a message again, unless its queue was released or moved back before it."""
        reader = self._readers.get(message.queue)
        if reader is not None and message.queue_offset < reader.position:
            reader.put_back(message)
            self._progressed(reader)

    async def wait_for_progress(self) -> None:
        """Wait until a queue has a message or a failure, the pauses change, or `stop`."""
        self._progress.clear()
        await self._progress.wait()

    def raise_failure(self) -> None:
        """Raise the error of a queue that cannot be read; the queue is tried again in a second."""
        failures = [reader.take_failure() for reader in self._readers.values()]
        for failure in filter(None, failures):
            raise failure

    def _progressed(self, reader: QueueReader) -> None:
        if reader.has_message and reader not in self.ready:
            self.ready.append(reader)
        self._progress.set()
