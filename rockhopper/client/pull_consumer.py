"""PullConsumer: reads selected queues from selected positions."""

import asyncio
import logging
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from datetime import datetime
from functools import partial
from typing import Literal, Self

import msgspec

from rockhopper.client.arguments import check_count, check_queue, check_seconds
from rockhopper.client.consuming.assigned_readers import AssignedReaders
from rockhopper.client.consuming.face.patterns import (
    TopicFinder,
    TopicPattern,
    compile_pattern,
    is_pattern,
)
from rockhopper.client.consuming.face.pauses import Paused
from rockhopper.client.consuming.histories import Histories
from rockhopper.client.consuming.pulling import GroupPuller, PullResult
from rockhopper.client.consuming.queue_offsets import QueueOffsets
from rockhopper.client.consuming.subscriptions import Topic
from rockhopper.client.errors import ClientError, ClientStateError, RouteNotFoundError
from rockhopper.client.filters import Sql, make_subscription
from rockhopper.client.middleware.hooks import Hooks, Middleware, Receiving, wrap_in_hooks
from rockhopper.client.network.closing import ClosedAtEnd
from rockhopper.client.network.credentials import CredentialsChoice
from rockhopper.client.network.routing import TopicRoute
from rockhopper.client.network.session import Session
from rockhopper.client.network.sharing import SharedConnections
from rockhopper.client.network.tls import Tls
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from rockhopper.client.serializers import Serializer, check_serializer
from rockhopper.protocol.bodies import ConsumerData, SubscriptionData
from rockhopper.protocol.subscription import Subscription
from rockhopper.protocol.times import aware_ms
from rockhopper.tasks import end_tasks, keep_running, run_in_background

log = logging.getLogger(__name__)

FOUND_INTERVAL_S = 10.0
"""How often to look for topics that match the pattern."""

Position = int | datetime | Literal["earliest", "latest"]


class PullConsumer(ClosedAtEnd):
    """Reads messages from several queues at once, each queue in order.

    Opened with a topic, it reads all queues of that topic, including queues added later; with a
    pattern, those of all matching topics. `assign` selects other queues. It starts at the group's
    committed offset, else at `start_from`. Without a group it can read but not commit. It commits
    only when you call `commit`.

        async with PullConsumer("orders", nameserver="127.0.0.1:9876") as consumer:
            async for message in consumer:
                print(message.body)
    """

    def __init__(
        self,
        topic: Topic | None = None,
        *,
        nameserver: str | None = None,
        group: str | None = None,
        tags: str = "*",
        filter: Sql | None = None,
        start_from: Position = "earliest",
        batch_size: int = 32,
        poll_s: float = 15.0,
        request_timeout_s: float = 3.0,
        deserializer: Serializer | None = None,
        middleware: Iterable[Middleware] = (),
        tls: Tls = None,
        credentials: CredentialsChoice = None,
        connections: SharedConnections | None = None,
    ) -> None:
        """`tags` is an expression such as "new || paid"; `filter` is an Sql expression instead.

        A regular expression ("orders_.*", or one from re.compile) matches all topics by their whole
        name, except system topics; new topics are found within 10 s and read from their beginning.
        `deserializer` decodes `message.value`. `poll_s` is how long a broker may hold a request
        without new messages. `middleware` is called around every `pull`, `pull_from` and the
        waiting of loops. `tls` is True or TlsOptions; `credentials` are Credentials or the path of
        a credentials file; by default the environment decides.
        """
        check_seconds("request_timeout_s", request_timeout_s)
        check_seconds("poll_s", poll_s, may_be_zero=True, is_finite=True)
        check_count("batch_size", batch_size)
        check_serializer("deserializer", deserializer, "decode")
        self._group = group
        self._hooks = Hooks(middleware)
        if filter is not None and tags != "*":
            raise ValueError(
                f"tags={tags!r} and a filter cannot be combined: a filter can name the property "
                "TAGS"
            )
        self._wanted: str | Sql = tags if filter is None else filter
        self._start_from = _check_position(start_from)
        self.session = Session(
            nameserver,
            request_timeout_s=request_timeout_s,
            tls=tls,
            credentials=credentials,
            connections=connections,
        )
        """The connections, and the cached routes."""
        self._topics: dict[str, Subscription] = {}
        self._finder: TopicFinder | None = None
        if topic is not None and is_pattern(topic):
            patterns = [TopicPattern(compile_pattern(topic), self._wanted)]
            self._finder = TopicFinder(self.session, patterns, self._topics, 0)
        elif topic is not None:
            name = str(topic)
            self._topics[name] = make_subscription(name, self._wanted)
        self.session.routes.on_change.append(self._route_changed)
        self._offsets = QueueOffsets(self.session)
        self._histories = Histories(self.session, group)
        self._puller = GroupPuller(self.session, group, self._wanted, histories=self._histories)
        self._readers = AssignedReaders(
            self._puller,
            self.session.outages,
            batch_size=batch_size,
            poll_s=poll_s,
            deserializer=deserializer,
        )
        self._committed: dict[MessageQueue, int] = {}
        self._is_automatic = topic is not None
        # Topics whose queues were assigned, even if all have left the route for a while.
        self._followed: set[str] = set()
        self.adoptions: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def start(self) -> Self:
        """Open the consumer; with a topic, find its queues and where to start in each.

        Raises RouteNotFoundError if the topic does not exist. With a pattern, the consumer waits
        for a matching topic.
        """
        await self.session.start()
        if self._is_automatic:
            try:
                if self._finder is not None:
                    await self._finder.look()
                await self._assign(await self.queues(), self._start_from)
                if self._finder is not None:
                    self.adoptions.add(keep_running(self._find_regularly, "looking for topics"))
            except BaseException:
                await self.close()
                raise
        return self

    async def find(self) -> None:
        """Look for topics that match the pattern now; the consumer also does this every 10 s."""
        self.session.check_open()
        if self._finder is None or not self._is_automatic:
            return
        await self._finder.look()
        if set(self._topics) != {queue.topic for queue in self._readers.queues}:
            await self._assign(await self.queues(), "earliest")

    async def _find_regularly(self) -> None:
        while self._is_automatic:
            await asyncio.sleep(FOUND_INTERVAL_S)
            try:
                await self.find()
            except ClientError as error:
                log.debug("topics could not be looked up, will retry: %s", error)

    async def close(self) -> None:
        """Stop reading and close the connections, without a commit.

        Loops end, and a `pull` that waits raises ClientStateError.
        """
        self.session.check_loop()
        if self.session.is_inherited:  # the tasks belong to the parent process
            await self.session.close()
            return
        ending = asyncio.gather(end_tasks(self.adoptions), self._readers.stop())
        try:
            await self.session.close()  # closed already when the readers' waiters run
        finally:
            await ending

    async def queues(self, topic: str | None = None) -> list[MessageQueue]:
        """Return the readable queues of a topic, by default the consumer's own topic."""
        if topic is None and not self._topics and self._finder is None:
            raise ClientStateError("this consumer was opened without a topic: pass one")
        queues: list[MessageQueue] = []
        for name in [topic] if topic else list(self._topics):
            try:
                queues += (await self.session.routes.route(name)).read_queues
            except RouteNotFoundError:
                if topic is not None or self._finder is None:
                    raise  # a topic found by a pattern may be deleted, or not quite created
        return queues

    @property
    def assigned(self) -> list[MessageQueue]:
        """The queues that are being read."""
        return self._readers.queues

    async def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read exactly these queues; a queue that was already read continues at its position."""
        self._is_automatic = False
        await self._assign(list(queues), self._start_from)

    def pause(self, *what: Paused) -> None:
        """Deliver and fetch no messages of these topics and queues; without arguments, of all.

        Prefetched messages are kept, and a queue that is unassigned and assigned again is still
        paused.
        """
        self._readers.pause(*what)

    def resume(self, *what: Paused) -> None:
        """Resume these topics and queues; without arguments, all."""
        self._readers.resume(*what)

    @property
    def paused(self) -> list[Paused]:
        """The paused topics and queues; all topics of the consumer after `pause()`."""
        return self._readers.paused

    async def seek(self, queue: MessageQueue, position: Position) -> None:
        """Continue at an offset, "earliest", "latest", or the first message since a time."""
        check_queue(queue)
        reader = self._readers.find(queue)
        await self._readers.seek(reader, await self._resolve(queue, _check_position(position)))

    def position(self, queue: MessageQueue) -> int:
        """Return the offset of the next message that this consumer will deliver from `queue`."""
        check_queue(queue)
        return self._readers.find(queue).position

    async def begin_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the oldest message in `queue`."""
        check_queue(queue)
        return await self._offsets.min_offset(queue)

    async def end_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the next message in `queue` will get."""
        check_queue(queue)
        return await self._offsets.max_offset(queue)

    async def pull(
        self, max_count: int = 32, *, timeout_s: float | None = None
    ) -> list[ReceivedMessage]:
        """Return up to `max_count` messages as soon as at least one is available.

        If none arrives within `timeout_s`, the list is empty; None waits for ever. Messages of one
        queue are in order. Cancelling loses no message. Raises the error that made a queue
        unreadable; the consumer tries that queue again a second later. Raises ClientStateError if
        the consumer is closed, also while it waits.
        """
        check_count("max_count", max_count)
        if timeout_s is not None:
            check_seconds("timeout_s", timeout_s, may_be_zero=True)
        return await self._receive(partial(self._pull, max_count, timeout_s))

    async def _receive(
        self, take: Callable[[], Awaitable[list[ReceivedMessage]]]
    ) -> list[ReceivedMessage]:
        """Take messages from the readers; put them back if a hook is cancelled afterwards."""
        if not self._hooks.receive:
            return await take()
        taken: list[ReceivedMessage] = []

        async def noted() -> list[ReceivedMessage]:
            taken.extend(messages := await take())
            return messages

        try:
            return await self._through_hooks(noted)
        except Exception:
            raise
        except BaseException:
            for message in reversed(taken):
                self._readers.put_back(message)
            raise

    async def _pull(self, max_count: int, timeout_s: float | None) -> list[ReceivedMessage]:
        try:
            async with asyncio.timeout(timeout_s):
                first = await self._next()
        except TimeoutError:
            return []
        messages = [first]
        while len(messages) < max_count and self._readers.ready:
            messages.append(self._readers.take_message())
        return messages

    async def pull_from(
        self, queue: MessageQueue, offset: int, max_count: int = 32, *, wait_s: float = 0.0
    ) -> PullResult:
        """Read from a queue at an offset with a single request, independent of the assignment.

        With `wait_s` the broker waits up to that time for a first message.
        """
        check_queue(queue)
        check_count("offset", offset, -1)
        check_count("max_count", max_count)
        check_seconds("wait_s", wait_s, may_be_zero=True, is_finite=True)
        if not self._hooks.receive:
            return await self._puller.pull(queue, offset, max_count, wait_s)
        results: list[PullResult] = []

        async def take() -> list[ReceivedMessage]:
            results.append(await self._puller.pull(queue, offset, max_count, wait_s))
            return results[-1].messages

        messages = await self._through_hooks(take)
        return msgspec.structs.replace(results[-1], messages=messages)

    async def _through_hooks(
        self, take: Callable[[], Awaitable[list[ReceivedMessage]]]
    ) -> list[ReceivedMessage]:
        async def last(_receiving: Receiving) -> Sequence[ReceivedMessage]:
            return await take()

        receiving = Receiving(self._group, self.session.client_id)
        return list(await wrap_in_hooks(self._hooks.receive, last)(receiving))

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Deliver one message after the other, until `close`."""
        self.session.check_open()
        return _PullIterator(self._receive_one if self._hooks.receive else self._next_of_loop)

    async def _next_of_loop(self) -> ReceivedMessage:
        try:
            return await self._next()
        except ClientStateError as error:
            if self.session.is_closed:
                raise StopAsyncIteration from error
            raise

    async def _receive_one(self) -> ReceivedMessage:
        async def take() -> list[ReceivedMessage]:
            try:
                return [await self._next_of_loop()]
            except StopAsyncIteration:
                return []

        while not self.session.is_closed:
            if messages := await self._receive(take):
                return messages[0]
        raise StopAsyncIteration

    async def commit(
        self, offsets: Mapping[MessageQueue, int] | ReceivedMessage | None = None
    ) -> None:
        """Commit the offsets of all delivered messages, or of one message.

        A mapping gives the next offset for each queue.
        """
        if self._group is None:
            raise ClientStateError("a consumer without a group cannot commit: pass group=...")
        if isinstance(offsets, ReceivedMessage):
            offsets = {offsets.queue: offsets.queue_offset + 1}
        elif offsets is None:
            offsets = {
                queue: position
                for queue, position in self._readers.positions.items()
                if self._committed.get(queue) != position
            }
        group = self._group
        await asyncio.gather(
            *(self._commit(group, queue, offset) for queue, offset in offsets.items())
        )
        self._committed.update(offsets)

    async def _commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        offset = await self._histories.committable(queue, offset)
        await self._offsets.commit(group, queue, offset)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the offset that the group has committed for `queue`, or None."""
        check_queue(queue)
        if self._group is None:
            return None
        return await self._offsets.committed(self._group, queue)

    async def _next(self) -> ReceivedMessage:
        self.session.check_open()
        readers = self._readers
        if not readers.is_reading:
            readers.start_reading()
        readers.raise_failure()
        while not readers.ready:
            if not readers.queues and not self._is_automatic:
                raise ClientStateError("no queue is assigned: call assign, or open it with a topic")
            await readers.wait_for_progress()
            self.session.check_open()
            readers.raise_failure()
        return readers.take_message()

    async def _assign(self, queues: list[MessageQueue], start: Position) -> None:
        held = set(self._readers.queues)
        added = [queue for queue in queues if queue not in held]
        await self._register({queue.topic for queue in queues})
        offsets = await asyncio.gather(*(self._start_offset(queue, start) for queue in added))
        await self._readers.release(set(self._readers.queues).difference(queues))
        for queue, offset in zip(added, offsets, strict=True):
            self._readers.adopt(queue, offset)
        self._followed = {queue.topic for queue in queues}

    async def _register(self, topics: set[str]) -> None:
        """Register the group with every broker of `topics`; otherwise it could not commit there."""
        if self._group is None:
            return
        self.session.consumers[self._group] = ConsumerData(
            group_name=self._group,
            consume_type="CONSUME_ACTIVELY",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_LAST_OFFSET",
            subscription_data_set=[
                SubscriptionData.from_subscription(make_subscription(topic, self._wanted))
                for topic in sorted(topics)
            ],
        )
        routes = [await self.session.routes.route(topic) for topic in sorted(topics)]
        addresses = {address for route in routes for address in route.masters.values()}
        await asyncio.gather(*(self.session.heartbeat(address) for address in addresses))

    async def _start_offset(self, queue: MessageQueue, start: Position) -> int:
        left = self._readers.pop_left(queue)
        if left is not None:
            return left
        committed = await self.committed(queue)
        if committed is not None:
            self._committed[queue] = committed
            return committed
        return await self._resolve(queue, start)

    async def _resolve(self, queue: MessageQueue, position: Position) -> int:
        if isinstance(position, datetime):
            return await self._offsets.offset_at(queue, round(position.timestamp() * 1000))
        if position == "earliest":
            return await self._offsets.min_offset(queue)
        if position == "latest":
            return await self._offsets.max_offset(queue)
        return position

    def _route_changed(self, route: TopicRoute) -> None:
        if self._is_automatic and route.topic in self._followed:
            task = run_in_background(self._follow(route), f"following {route.topic}")
            self.adoptions.add(task)
            task.add_done_callback(self.adoptions.discard)

    async def _follow(self, route: TopicRoute) -> None:
        """Read the current queues of the topic, new ones from their beginning."""
        known = {queue for queue in self._readers.queues if queue.topic == route.topic}
        await self._readers.release(known.difference(route.read_queues))
        held = set(self._readers.queues)
        for queue in route.read_queues:
            if queue not in held:
                self._readers.adopt(queue, self._readers.pop_left(queue) or 0)


class _PullIterator:
    """An iterator of `async for`; cancelling a step does not end it, as it would a generator."""

    def __init__(self, receive: Callable[[], Awaitable[ReceivedMessage]]) -> None:
        self._receive = receive

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        return await self._receive()

    async def aclose(self) -> None:
        """Do nothing; exists for contextlib.aclosing."""


def _check_position(position: Position) -> Position:
    if isinstance(position, datetime):
        aware_ms("a position", position)
        return position
    if isinstance(position, int) and not isinstance(position, bool):
        if not 0 <= position < 1 << 63:
            raise ValueError(
                f'{position} is not an offset of a queue: use one from 0 on, "earliest" or "latest"'
            )
        return position
    if position in ("earliest", "latest"):
        return position
    raise ValueError(
        f'{position!r} is not a position: use an offset, a datetime, "earliest" or "latest"'
    )
