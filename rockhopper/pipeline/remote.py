"""Remote: access to brokers over the network for synchronous code.

Spark calls sources in plain functions, on the driver's host and in executors. Each process has one
background thread with an event loop, and one Remote for each name server. Both are created on first
use and are never closed, because Spark does not announce the end of a worker. A forked child
creates its own. So a Remote may outlive its brokers; it reports that only when a caller sends a
request.

Reads use BULK_PULL if possible (docs/request-codes.md). Apache's brokers do not know it, so for
them Remote sends ordinary pulls: 32 messages each, several at a time.
"""

import asyncio
import logging
import os
import threading
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

from rockhopper.client import Admin
from rockhopper.client.errors import ClientError, RequestRefusedError, RouteNotFoundError
from rockhopper.client.network.addresses import BrokerAddress
from rockhopper.client.network.routing import TopicRoute
from rockhopper.client.network.session import Session
from rockhopper.client.queues import MessageQueue
from rockhopper.client.sending.group_sender import GroupSender
from rockhopper.pipeline.access import Access, get_access
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.pulls import (
    BulkRead,
    OrdinaryPulls,
    QueuePull,
    make_bulk_read,
    read_answer,
)
from rockhopper.protocol.bodies import GetConsumerListByGroupBody
from rockhopper.protocol.bodies.log_history import (
    IDS_MAX,
    QUEUES_MAX,
    HistoryQuestion,
    decode_history_answer,
    encode_history,
)
from rockhopper.protocol.bodies.queue_ranges import (
    QueueRange,
    decode_queue_reads,
    encode_queue_ranges,
)
from rockhopper.protocol.bodies.topic_ids import decode_topic_ids, encode_topic_ids
from rockhopper.protocol.codes import PULL_ANSWERS, RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.requests import GetConsumerListByGroupRequest, encode_fields
from rockhopper.protocol.requests.extensions import BulkPullQueuesRequest, BulkPullRequest
from rockhopper.protocol.store.message_codec import decode_messages

_NOT_SUPPORTED = int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)

RANGES_AT_A_TIME = 1000
_BEYOND_ANY = 1 << 62

_Value = TypeVar("_Value")


class LogPasts(NamedTuple):
    """The history of brokers' logs, compared with known epochs."""

    epochs: dict[str, tuple[str, ...]]
    """Broker -> the ids of its newest epochs, newest first."""
    ends: dict[MessageQueue, int]
    """For logs truncated since they were read: up to which offset the queues are unchanged."""


class Remote:
    """The brokers behind some name servers. Thread-safe; every method blocks.

    Every failure is a PipelineError with the client's message.
    """

    def __init__(
        self, nameserver: str, *, timeout_s: float = 30.0, access: Access | None = None
    ) -> None:
        self.nameserver = nameserver
        self._access = get_access() if access is None else access
        self._access.check()
        self._timeout_s = timeout_s
        self.without_bulk: set[str] = set()
        self.without_many: set[str] = set()
        self._masters: dict[str, str] = {}
        self._senders: dict[str, GroupSender] = {}
        self._loop = _background_loop()
        self.admin = self.run(self._start())

    async def _start(self) -> Admin:
        admin = Admin(
            self.nameserver,
            request_timeout_s=self._timeout_s,
            tls=self._access.tls,
            credentials=self._access.credentials,
        )
        return await admin.__aenter__()

    def run(self, coroutine: Coroutine[Any, Any, _Value]) -> _Value:
        """Run a coroutine of the client and return its result. Raises PipelineError."""
        return result(self.submit(coroutine))

    def submit(self, coroutine: Coroutine[Any, Any, _Value]) -> Future[_Value]:
        """Start a coroutine of the client; ``result`` waits for it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def topics(self) -> list[str]:
        """Return all topics that the name server knows, including system topics."""
        return self.run(self.admin.topics())

    def route(self, topic: str) -> TopicRoute | None:
        """Return the current route of a topic; None if the topic does not exist."""
        return self.run(self._route(topic))

    async def _route(self, topic: str) -> TopicRoute | None:
        try:
            return await self.admin.route(topic)
        except RouteNotFoundError:
            return None

    def queues_of(self, topics: Iterable[str]) -> dict[str, list[MessageQueue]]:
        """Return the readable queues of topics; an empty list for a missing topic."""
        names = list(topics)

        async def ask() -> dict[str, list[MessageQueue]]:
            routes = await asyncio.gather(*map(self._route, names))
            return {
                name: [] if route is None else list(route.read_queues)
                for name, route in zip(names, routes, strict=True)
            }

        return self.run(ask())

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of a topic; an empty list if it does not exist."""
        route = self.route(topic)
        return list(route.read_queues) if route is not None else []

    def brokers(self) -> list[BrokerAddress]:
        """Return every broker that the name server knows."""
        return self.run(self.admin.brokers())

    def away(self, wanted: Iterable[str] = ()) -> list[str]:
        """Return brokers that may have messages and are offline.

        These are the missing ones of *wanted*, and brokers that a Rockhopper name server has
        forgotten.
        """
        departed = self.run(self.admin.departed_brokers())
        return sorted({*wanted, *departed} - {each.name for each in self.brokers()})

    def topic_ids(self, places: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str | None]:
        """Return (topic, broker) -> the id of the topic, which a recreated topic does not share.

        The id is blank if the broker has no ids (Apache's), and None if it has no such topic.
        Brokers without a master, or that cannot answer, are left out.
        """
        by_broker: dict[str, list[str]] = {}
        for topic, broker in places:
            by_broker.setdefault(broker, []).append(topic)

        async def ask(broker: str, topics: list[str]) -> list[tuple[tuple[str, str], str | None]]:
            found: list[str | None] = [""] * len(topics)
            try:
                body = encode_topic_ids(topics)
                answer = await self._request(broker, RequestCode.TOPIC_IDS, {}, body, None)
                found = decode_topic_ids(answer.body)
            except ClientError as error:
                if not isinstance(error, RequestRefusedError) or error.code != _NOT_SUPPORTED:
                    return []
            return [((topic, broker), name) for topic, name in zip(topics, found, strict=True)]

        async def ask_all() -> dict[tuple[str, str], str | None]:
            answers = await asyncio.gather(*(ask(*each) for each in by_broker.items()))
            return dict(pair for answer in answers for pair in answer)

        return self.run(ask_all())

    def log_pasts(
        self, queues: Iterable[MessageQueue], known: Mapping[str, Sequence[str]]
    ) -> LogPasts:
        """Compare the state in which each broker's log was read with its current state.

        *known* holds the epochs in which a broker was read, newest first. Brokers without a history
        (Apache's), without a master, or that cannot answer are left out.
        """
        by_broker: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            by_broker[queue.broker_name].append(queue)

        async def ask(broker: str, held: list[MessageQueue]) -> LogPasts:
            found = LogPasts({}, {})
            ids = list(known.get(broker, ()))[:IDS_MAX]
            # A broker that was not read needs no comparison.
            for start in range(0, len(held) if ids else 1, QUEUES_MAX):
                some = held[start : start + QUEUES_MAX] if ids else []
                places = [(queue.topic, queue.queue_id) for queue in some]
                body = encode_history(HistoryQuestion(None, ids, places))
                try:
                    answer = await self._request(broker, RequestCode.LOG_HISTORY, {}, body, None)
                    past = decode_history_answer(answer.body)
                except ClientError:
                    return LogPasts({}, {})
                found.epochs[broker] = tuple(past.ids)
                ends = zip(some, past.ends, strict=True)
                found.ends.update((queue, end) for queue, end in ends if end is not None)
            return found

        async def ask_all() -> LogPasts:
            whole = LogPasts({}, {})
            for each in await asyncio.gather(*(ask(*each) for each in by_broker.items())):
                whole.epochs.update(each.epochs)
                whole.ends.update(each.ends)
            return whole

        return self.run(ask_all())

    def gone(self, places: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
        """Return the *places*, (topic, broker), whose broker is online and lacks the topic."""
        found = self.topic_ids(places)
        return {
            place
            for place, name in found.items()
            if name is None or (name == "" and not self._has_topic(*place))
        }

    def _has_topic(self, topic: str, broker: str) -> bool:
        try:
            self.request(broker, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
        except PipelineError as error:
            cause = error.__cause__
            return not (
                isinstance(cause, RequestRefusedError)
                and cause.code == ResponseCode.TOPIC_NOT_EXIST
            )
        return True

    def ranges(
        self, queues: list[MessageQueue], *, with_left: bool = False
    ) -> dict[MessageQueue, tuple[int, int]]:
        """Return the range of each queue: from (inclusive) and to (exclusive).

        *with_left* adds queues that still hold messages after their topic got fewer queues.
        """
        return self.run(self._about(queues, self._ranges(queues, with_left)))

    def ends(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """Return the ends of queues, even if their topic no longer has them; 0 if missing."""

        async def ask(queue: MessageQueue) -> int:
            try:
                return await self.admin.offsets.max_offset(queue)
            except RequestRefusedError:
                return 0

        async def ask_all(asked: list[MessageQueue]) -> dict[MessageQueue, int]:
            return dict(zip(asked, await asyncio.gather(*map(ask, asked)), strict=True))

        return self.run(ask_all(list(queues)))

    async def _ranges(
        self, queues: list[MessageQueue], with_left: bool
    ) -> dict[MessageQueue, tuple[int, int]]:
        by_topic: dict[tuple[str, str], list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            by_topic[queue.broker_name, queue.topic].append(queue)
        pieces = [
            same[start : start + RANGES_AT_A_TIME]
            for same in by_topic.values()
            for start in range(0, len(same), RANGES_AT_A_TIME)
        ]
        found: dict[MessageQueue, tuple[int, int]] = {}
        left: set[MessageQueue] = set()
        for some in await asyncio.gather(
            *(self._ranges_of(piece, left if with_left else None) for piece in pieces)
        ):
            found |= some
        left -= found.keys()
        return found | (await self._ranges(sorted(left), False) if left else {})

    async def _ranges_of(
        self, queues: list[MessageQueue], left: set[MessageQueue] | None
    ) -> dict[MessageQueue, tuple[int, int]]:
        """Return the ranges of queues of one topic on one broker; any read reports the range."""
        reads = None
        if len(queues) > 1 or left is not None:
            beyond = [QueuePull(queue, _BEYOND_ANY, _BEYOND_ANY + 1) for queue in queues]
            reads = await self._read_many(beyond, left)
        if reads is None or len(reads) < len(queues):
            held = await asyncio.gather(*(self.admin.range(queue) for queue in queues))
            return {
                queue: (each.min_offset, each.max_offset)
                for queue, each in zip(queues, held, strict=True)
            }
        return {
            queue: (read.min_offset, read.max_offset)
            for queue, read in zip(queues, reads, strict=True)
        }

    def offsets_at(self, queues: list[MessageQueue], time_ms: int) -> dict[MessageQueue, int]:
        """Return the first offset of each queue stored at *time_ms* or later, else its end."""

        async def ask() -> dict[MessageQueue, int]:
            at = self.admin.offsets.offset_at
            found = await asyncio.gather(*(at(queue, time_ms) for queue in queues))
            return dict(zip(queues, found, strict=True))

        return self.run(self._about(queues, ask()))

    def store_times(self, offsets: dict[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Return the store times of the messages at *offsets* that exist."""

        async def ask_one(queue: MessageQueue, at: int) -> tuple[MessageQueue, int] | None:
            address = await self.admin.offsets.address(queue)
            pulls = OrdinaryPulls(self.admin, address, self._timeout_s)
            read = await pulls.read(QueuePull(queue, at, at + 1, bytes_max=1))
            if read.has_moved or not read.body:
                return None
            return queue, decode_messages(read.body)[0].store_time_ms

        async def ask() -> dict[MessageQueue, int]:
            found = await asyncio.gather(*(ask_one(*each) for each in offsets.items()))
            return dict(each for each in found if each is not None)

        return self.run(self._about(offsets, ask()))

    def committed(self, group: str, queues: list[MessageQueue]) -> dict[MessageQueue, int | None]:
        """Return the committed offset of a group in each queue; None if it has never committed."""

        async def ask() -> dict[MessageQueue, int | None]:
            committed = self.admin.offsets.committed
            found = await asyncio.gather(*(committed(group, queue) for queue in queues))
            return dict(zip(queues, found, strict=True))

        return self.run(self._about(queues, ask()))

    def members(self, group: str, broker_names: Iterable[str]) -> list[str]:
        """Return the ids of the clients that consume for a group, as the brokers know them."""
        ext = encode_fields(GetConsumerListByGroupRequest(consumer_group=group))
        code = RequestCode.GET_CONSUMER_LIST_BY_GROUP

        async def ask(broker_name: str) -> list[str]:
            try:
                answer = await self._request(broker_name, code, ext, b"", None)
            except RequestRefusedError as error:
                if error.code == ResponseCode.SYSTEM_ERROR:  # the group has no members
                    return []
                raise
            return GetConsumerListByGroupBody.decode(answer.body).consumer_id_list

        async def ask_all() -> list[str]:
            found = await asyncio.gather(*map(ask, broker_names))
            return sorted({each for ids in found for each in ids})

        return self.run(ask_all())

    def commit(self, group: str, offsets: dict[MessageQueue, int]) -> None:
        """Commit offsets for a group."""

        async def tell() -> None:
            commit = self.admin.offsets.commit
            await asyncio.gather(*(commit(group, queue, at) for queue, at in offsets.items()))

        async def introduce() -> None:
            # Brokers accept commits only of known groups, and learn about a group from its pulls.
            queue, at = next(iter(offsets.items()))
            address = await self.admin.offsets.address(queue)
            pulls = OrdinaryPulls(self.admin, address, self._timeout_s)
            await pulls.read(QueuePull(queue, at, at + 1, bytes_max=1, group=group))

        async def tell_or_introduce() -> None:
            try:
                await tell()
            except RequestRefusedError as error:
                if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                    raise
                await introduce()
                await tell()

        if offsets:
            self.run(self._about(offsets, tell_or_introduce()))

    async def _about(
        self, queues: Iterable[MessageQueue], answer: Coroutine[Any, Any, _Value]
    ) -> _Value:
        """Wait for an answer; if there is none, forget the routes of *queues*."""
        try:
            return await answer
        except RequestRefusedError:
            raise
        except ClientError:
            # The brokers may have other addresses when they come back.
            for topic in {queue.topic for queue in queues}:
                self.admin.forget_route(topic)
            raise

    def read(self, wanted: QueuePull) -> BulkRead:
        """Read messages. Raises PipelineError."""
        return result(self.begin_read(wanted))

    def begin_read(self, wanted: QueuePull) -> Future[BulkRead]:
        """Start ``read``; ``result`` waits for it."""
        return self.submit(self._about([wanted.queue], self._read(wanted)))

    def begin_reads(self, wanted: Sequence[QueuePull]) -> Future[list[BulkRead]]:
        """Start to read many queues of one topic on one broker; maybe only the first are answered.

        There is at least one answer. Filters are ignored.
        """
        queues = [each.queue for each in wanted]
        return self.submit(self._about(queues, self._read_queues(wanted)))

    async def _read_queues(self, wanted: Sequence[QueuePull]) -> list[BulkRead]:
        reads = await self._read_many(wanted) if len(wanted) > 1 else None
        return reads or [await self._read(wanted[0])]

    async def _read_many(
        self, wanted: Sequence[QueuePull], left: set[MessageQueue] | None = None
    ) -> list[BulkRead] | None:
        """Read the first of *wanted*; return None if the broker reads only one queue at a time.

        Queues that the topic no longer has, but that hold messages, are added to *left*.
        """
        first = wanted[0]
        address = await self.admin.offsets.address(first.queue)
        if address in self.without_many:
            return None
        fields = BulkPullQueuesRequest(
            topic=first.queue.topic,
            max_bytes=first.bytes_max,
            consumer_group=first.group,
            topic_id=first.topic_id or None,
        )
        answer = await self.admin.request(
            address,
            RequestCode.BULK_PULL_QUEUES,
            encode_fields(fields),
            encode_queue_ranges(
                [QueueRange(each.queue.queue_id, each.offset, each.end) for each in wanted]
            ),
            accept=frozenset({ResponseCode.SUCCESS, _NOT_SUPPORTED}),
            timeout_s=self._timeout_s,
        )
        if answer.code == _NOT_SUPPORTED:
            self.without_many.add(address)
            return None
        numbers = (answer.ext or {}).get("leftQueues")
        if left is not None and numbers:
            left.update(first.queue._replace(queue_id=int(each)) for each in numbers.split(","))
        return [make_bulk_read(each) for each in decode_queue_reads(answer.body)]

    async def _read(self, wanted: QueuePull) -> BulkRead:
        queue = wanted.queue
        address = await self.admin.offsets.address(queue)
        if address not in self.without_bulk:
            fields = BulkPullRequest(
                topic=queue.topic,
                queue_id=queue.queue_id,
                offset=wanted.offset,
                end_offset=wanted.end,
                max_bytes=wanted.bytes_max,
                consumer_group=wanted.group,
                expression=wanted.expression,
                expression_type=wanted.expression_type,
                topic_id=wanted.topic_id or None,
            )
            answer = await self.admin.request(
                address,
                RequestCode.BULK_PULL,
                encode_fields(fields),
                accept=PULL_ANSWERS | {_NOT_SUPPORTED},
                timeout_s=self._timeout_s,
            )
            if answer.code != _NOT_SUPPORTED:
                return read_answer(answer)
            self.without_bulk.add(address)
        return await OrdinaryPulls(self.admin, address, self._timeout_s).read(wanted)

    def request(
        self,
        broker_name: str,
        code: RequestCode,
        ext: dict[str, str],
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
    ) -> Command:
        """Send any request to the master of a broker; return the answer. Raises PipelineError."""
        return self.run(self._request(broker_name, code, ext, body, timeout_s))

    async def _request(
        self,
        broker_name: str,
        code: RequestCode,
        ext: dict[str, str],
        body: bytes,
        timeout_s: float | None,
    ) -> Command:
        address = self._masters.get(broker_name)
        if address is None:
            address = (await self.admin.masters(broker_name))[0].address
            self._masters[broker_name] = address
        try:
            return await self.admin.request(
                address, code, ext, body, timeout_s=timeout_s or self._timeout_s
            )
        except RequestRefusedError:
            raise
        except ClientError:
            # The broker may have another address when it comes back.
            self._masters.pop(broker_name, None)
            raise

    def begin_request(
        self,
        broker_name: str,
        code: RequestCode,
        ext: dict[str, str],
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
    ) -> Future[Command]:
        """Start ``request``; ``result`` waits for it."""
        return self.submit(self._request(broker_name, code, ext, body, timeout_s))

    def sender(self, group: str) -> GroupSender:
        """Return the sender of a producer group."""
        sender = self._senders.get(group)
        if sender is None:
            sender = self._senders[group] = self.run(self._start_sender(group))
        return sender

    async def _start_sender(self, group: str) -> GroupSender:
        session = Session(
            self.nameserver,
            request_timeout_s=self._timeout_s,
            upkeep_log_level=logging.DEBUG,
            tls=self._access.tls,
            credentials=self._access.credentials,
        )
        session.producer_groups.add(group)
        await session.start()
        return GroupSender(session, group, timeout_s=self._timeout_s, retries=2)


def result(answer: Future[_Value]) -> _Value:
    """Wait for the result of ``submit``. Raises PipelineError."""
    try:
        return answer.result()
    except ClientError as error:
        raise PipelineError(str(error)) from error


_lock = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}
_remotes: dict[tuple[int, str, float, Access], Remote] = {}


def connect(nameserver: str, *, timeout_s: float = 30.0, access: Access | None = None) -> Remote:
    """Return this process's Remote for some name servers. Raises PipelineError.

    Without *access*, the running job or the environment sets TLS and credentials.
    """
    access = get_access() if access is None else access
    key = (os.getpid(), nameserver, timeout_s, access)
    remote = _remotes.get(key)
    if remote is None:
        remote = Remote(nameserver, timeout_s=timeout_s, access=access)
        _remotes[key] = remote
    return remote


def _background_loop() -> asyncio.AbstractEventLoop:
    with _lock:
        loop = _loops.get(os.getpid())
        if loop is None:
            loop = _loops[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="pipeline-client", daemon=True).start()
        return loop
