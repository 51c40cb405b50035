"""Consumer and PullConsumer without `await`."""

from collections.abc import Callable
from typing import Any

from rockhopper.client import consumer, pull_consumer
from rockhopper.client.arguments import check_count, takes
from rockhopper.client.callbacks import make_plain_function
from rockhopper.client.consuming.face.pauses import Paused
from rockhopper.client.consuming.face.threads import HandlerThreads
from rockhopper.client.consuming.redelivery import RetryLater
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from rockhopper.client.sync.face import (
    Face,
    wrap_iterating,
    wrap_looking,
    wrap_waiting,
)

PlainHandler = Callable[[ReceivedMessage], object]


class Consumer(Face[consumer.Consumer]):
    """A member of a consumer group; see rockhopper.Consumer.

    A consumer opened before a fork belongs to the parent; the child creates its own.
    """

    @takes(consumer.Consumer)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(consumer.Consumer, *args, **kwargs)

    commit = wrap_waiting(consumer.Consumer.commit)
    retry_later = wrap_waiting(consumer.Consumer.retry_later)
    put_back = wrap_looking(consumer.Consumer.put_back)
    pause = wrap_looking(consumer.Consumer.pause)
    resume = wrap_looking(consumer.Consumer.resume)

    def stop(self) -> None:
        """End loops and `run` after the messages that are being processed.

        You may call it from any thread, in signal handlers, and before or during the start.
        """
        # A signal handler may call this in the thread that opens the consumer: no lock, no waiting.
        self._of_this_process().stop()

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._client.group

    @property
    def client_id(self) -> str:
        """The id of this member."""
        return self._client.client_id

    @property
    def assigned(self) -> list[MessageQueue]:
        """The queues that this member owns now."""
        return self._look(lambda client: client.assigned)

    @property
    def paused(self) -> list[Paused]:
        """The paused topics and queues; all topics of the consumer after `pause()`."""
        return self._look(lambda client: client.paused)

    __iter__ = wrap_iterating(consumer.Consumer.__aiter__)
    batches = wrap_iterating(consumer.Consumer.batches)

    def run(self, handler: PlainHandler, *, concurrency: int = 16) -> None:
        """Call `handler` for each message, in up to `concurrency` threads, until `stop` or `close`.

        A handler acknowledges a message by returning, and requests redelivery by raising. An
        interrupt (Ctrl-C, an exception in a signal handler) waits for running handlers. A second
        one does not: their messages are delivered again, and their threads run until the process
        ends. If a handler calls sys.exit(), its message is delivered again and `run` ends as after
        an interrupt.
        """
        plain = make_plain_function("handler", handler)
        check_count("concurrency", concurrency)
        client = self._opened()
        exits: list[BaseException] = []

        def handled(message: ReceivedMessage) -> BaseException | None:
            try:
                plain(message)
            except (SystemExit, KeyboardInterrupt) as error:
                return error  # in the event loop it would end the loop
            return None

        threads = HandlerThreads(concurrency)

        async def handle(message: ReceivedMessage) -> None:
            if (error := await threads.call(handled, message)) is not None:
                exits.append(error)
                client.stop()
                raise RetryLater(reason=repr(error)) from error

        running = client.run(handle, concurrency=concurrency)
        try:
            self._serving.call(running, interrupted=client.stop)
        finally:
            threads.stop()
        if exits:
            raise exits[0]


class PullConsumer(Face[pull_consumer.PullConsumer]):
    """Reads the queues that you select; see rockhopper.PullConsumer."""

    @takes(pull_consumer.PullConsumer)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(pull_consumer.PullConsumer, *args, **kwargs)

    queues = wrap_waiting(pull_consumer.PullConsumer.queues)
    assign = wrap_waiting(pull_consumer.PullConsumer.assign)
    find = wrap_waiting(pull_consumer.PullConsumer.find)
    pause = wrap_looking(pull_consumer.PullConsumer.pause)
    resume = wrap_looking(pull_consumer.PullConsumer.resume)
    seek = wrap_waiting(pull_consumer.PullConsumer.seek)
    position = wrap_looking(pull_consumer.PullConsumer.position)
    begin_offset = wrap_waiting(pull_consumer.PullConsumer.begin_offset)
    end_offset = wrap_waiting(pull_consumer.PullConsumer.end_offset)
    pull = wrap_waiting(pull_consumer.PullConsumer.pull)
    pull_from = wrap_waiting(pull_consumer.PullConsumer.pull_from)
    commit = wrap_waiting(pull_consumer.PullConsumer.commit)
    committed = wrap_waiting(pull_consumer.PullConsumer.committed)

    @property
    def assigned(self) -> list[MessageQueue]:
        """The queues that are being read."""
        return self._look(lambda client: client.assigned)

    @property
    def paused(self) -> list[Paused]:
        """The paused topics and queues; all topics of the consumer after `pause()`."""
        return self._look(lambda client: client.paused)

    __iter__ = wrap_iterating(pull_consumer.PullConsumer.__aiter__)
