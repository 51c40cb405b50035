"""Pull requests and the interpretation of their answers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, Protocol

import msgspec

from rockhopper.client.consuming.histories import Histories
from rockhopper.client.consuming.queue_offsets import QueueOffsets
from rockhopper.client.errors import ClientError, MalformedAnswerError, is_route_outdated
from rockhopper.client.filters import Sql, make_subscription
from rockhopper.client.network.connection import BrokerConnection
from rockhopper.client.network.session import Session
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage, receive
from rockhopper.protocol.codes import PULL_ANSWERS, RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.errors import FieldError, ProtocolError
from rockhopper.protocol.headers.header_json import begin_json_header
from rockhopper.protocol.names import TOOLS_CONSUMER_GROUP
from rockhopper.protocol.requests import (
    PullMessageRequest,
    PullMessageResponse,
    decode_fields,
    encode_fields,
)
from rockhopper.protocol.store.message_codec import decode_message, list_inner_messages
from rockhopper.protocol.subscription import Subscription
from rockhopper.protocol.sys_flags import (
    PULL_FLAG_BROWSE,
    PULL_FLAG_SUBSCRIPTION,
    PULL_FLAG_SUSPEND,
)
from rockhopper.tasks import let_go, start_request

log = logging.getLogger(__name__)

# A broker looks for expired long polls every 5 s, so an answer may be late by that much.
_HOLD_SLACK_S = 10.0
_AT_ONCE_MAX = 8
_PULL = int(RequestCode.PULL_MESSAGE)
_FILLED_IN = ("queueOffset", "maxMsgNums", "sysFlag", "suspendTimeoutMillis")


class PullResult(msgspec.Struct, frozen=True):
    """The result of one pull.

    `next_offset` may advance without messages, if the filter rejected them all.
    """

    messages: list[ReceivedMessage]
    next_offset: int
    min_offset: int
    max_offset: int
    has_moved: bool
    """The requested offset is not in the queue; `next_offset` is the nearest that is."""
    is_cut: bool = False
    """The log was truncated at `next_offset`: minimum and maximum offset are unknown."""


class Space(NamedTuple):
    """The room left in a buffer."""

    messages: int
    size_bytes: int


NO_SPACE = Space(0, 0)


Accept = Callable[[int, PullResult], bool]
"""Takes the offset of a pull and its result; returns whether to read on behind the result."""


class PullSource(Protocol):
    """The source of messages: a GroupPuller, or a stand-in of a test."""

    async def follow(
        self,
        queue: MessageQueue,
        offset: int,
        max_count: int,
        wait_s: float,
        space: Space,
        accept: Accept,
    ) -> None:
        """Read from `offset` on; each request waits up to `wait_s` for the first message.

        The results go to `accept`. If there is a backlog, a result may have more than `max_count`
        messages, within `space`. Returns after a result at the earliest, and once `accept` has
        returned False.
        """


class _Backlog(NamedTuple):
    """The last answer's information about a queue's next messages; `offset` is where they begin."""

    offset: int
    max_offset: int
    step: int
    step_bytes: int

    def times(self, offset: int, max_count: int, space: Space) -> int:
        """Return how many requests of the last answer's size may be sent at once."""
        if offset != self.offset or self.step > max_count:
            return 1
        waiting = (self.max_offset - offset) // self.step
        fitting = min(space.messages // self.step, space.size_bytes // max(self.step_bytes, 1))
        return max(min(waiting, fitting, _AT_ONCE_MAX), 1)


class GroupPuller:
    """Sends pull requests for one group.

    The filter of a topic is in `subscriptions`, else it is `wanted`: tags or an expression.

    A broker returns few messages per answer (32 by default). If the last answer was full and
    reported a large backlog, the next requests are sent concurrently, and their answers are joined
    into one result.
    """

    def __init__(
        self,
        session: Session,
        group: str | None,
        wanted: str | Sql = "*",
        subscriptions: Mapping[str, Subscription] | None = None,
        *,
        is_browsing: bool = False,
        histories: Histories | None = None,
    ) -> None:
        """Rockhopper brokers exclude reads with `is_browsing` from their delivery statistics.

        Without `histories`, offsets are not checked against the log's history.
        """
        self._flags = PULL_FLAG_SUBSCRIPTION | (PULL_FLAG_BROWSE if is_browsing else 0)
        self.group = group or TOOLS_CONSUMER_GROUP
        self._session = session
        self._offsets = QueueOffsets(session)
        self._histories = histories
        self._wanted = wanted
        self._given = subscriptions or {}
        self._subscriptions: dict[str, Subscription] = {}
        self._preferred_broker_ids: dict[MessageQueue, int] = {}
        self._backlogs: dict[MessageQueue, _Backlog] = {}
        self._headers: dict[MessageQueue, bytes] = {}

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_count: int,
        wait_s: float = 0.0,
        space: Space = NO_SPACE,
    ) -> PullResult:
        """Read up to `max_count` messages from `offset` on, or more of a backlog, up to `space`.

        With `wait_s`, the broker holds the request for that long if the queue has no newer message.
        The request goes to the replica that the last answer suggested; after a failure, to the
        master.
        """
        try:
            address, cut = await self._begin(queue, offset)
            return cut or await self._pull(address, queue, offset, max_count, wait_s, space)
        except ClientError as error:
            await self._failed(queue, error)
            raise

    async def follow(
        self,
        queue: MessageQueue,
        offset: int,
        max_count: int,
        wait_s: float,
        space: Space,
        accept: Accept,
    ) -> None:
        """See PullSource. Raises as `pull`.

        Without a backlog, an answer is handled and the next request is sent in the iteration of the
        event loop in which the answer arrives.
        """
        try:
            address, result = await self._begin(queue, offset)
            connection = self._session.ready(address)
            if (
                wait_s > 0
                and result is None
                and connection is not None
                and queue not in self._backlogs
            ):
                polls = _LongPolls(self, queue, max_count, wait_s, accept, connection)
                polls.ask(offset)
                await polls.end
                return
            if result is None:
                result = await self._pull(address, queue, offset, max_count, wait_s, space)
            accept(offset, result)
        except ClientError as error:
            await self._failed(queue, error)
            raise

    async def _failed(self, queue: MessageQueue, error: ClientError) -> None:
        self._preferred_broker_ids.pop(queue, None)
        if is_route_outdated(error):
            await self._session.routes.renew(queue.topic)

    async def _begin(self, queue: MessageQueue, offset: int) -> tuple[str, PullResult | None]:
        """Return where to read, and the result if the log was truncated before `offset`."""
        address = self._known_address(queue) or await self._offsets.address(queue)
        histories = self._histories
        if histories is not None and not histories.is_compared(queue, address):
            valid = await self._valid(histories, queue, offset, address)
            if valid < offset:
                return address, PullResult([], valid, valid, valid, has_moved=True, is_cut=True)
        return address, None

    async def _pull(
        self,
        address: str,
        queue: MessageQueue,
        offset: int,
        max_count: int,
        wait_s: float,
        space: Space,
    ) -> PullResult:
        backlog = self._backlogs.pop(queue, None)
        times = 1 if backlog is None else backlog.times(offset, max_count, space)
        if backlog is None or times == 1:
            answer = await self._ask(address, queue, offset, max_count, wait_s)
            return self.read_result(queue, offset, answer, address)
        starts = range(offset, offset + times * backlog.step, backlog.step)
        # The last request asks for `max_count`; its answer reports the current backlog.
        counts = [backlog.step] * (times - 1) + [max_count]
        asked = [
            start_request(self._ask(address, queue, start, count, 0.0))
            for start, count in zip(starts, counts, strict=True)
        ]
        try:
            result = self.read_result(queue, offset, await asked[0], address)
            for start, later in zip(starts[1:], asked[1:], strict=True):
                more = None
                if result.next_offset == start:
                    more = await self._continued(queue, start, later, address)
                if more is None:
                    break
                more.messages[:0] = result.messages
                result = more
        finally:
            for each in asked:
                let_go(each)
        return result

    async def _valid(
        self, histories: Histories, queue: MessageQueue, offset: int, address: str
    ) -> int:
        """Return `offset`, or the end of the common history if the log was truncated before it."""
        if not self._session.routes.has_master(address):
            return offset  # a slave has its master's log and no own history
        return await histories.compare(queue, offset, address)

    async def _continued(
        self, queue: MessageQueue, offset: int, asked: Awaitable[Command], address: str
    ) -> PullResult | None:
        """Return the result of a later concurrent pull; None on an error.

        The next pull reports the error.
        """
        try:
            answer = await asked
            if answer.code == ResponseCode.SUCCESS:
                return self.read_result(queue, offset, answer, address)
        except ClientError as error:
            log.debug("one of several pulls of %s failed: %s", queue, error)
        return None

    def _ask(
        self, address: str, queue: MessageQueue, offset: int, max_count: int, wait_s: float
    ) -> Awaitable[Command]:
        header = self.begin_header(queue, offset, max_count, wait_s)
        timeout_s = wait_s + _HOLD_SLACK_S if wait_s > 0 else self._session.request_timeout_s
        return self._session.request_json(address, _PULL, header, b"", timeout_s)

    def begin_header(
        self, queue: MessageQueue, offset: int, max_count: int, wait_s: float
    ) -> bytes:
        """Return the header's beginning of a pull, as for `BrokerConnection.request_json`."""
        sys_flag = self._flags | (PULL_FLAG_SUSPEND if wait_s > 0 else 0)
        header = self._headers.get(queue) or self._header(queue)
        return header % (offset, max_count, sys_flag, round(wait_s * 1000))

    def may_poll(self, queue: MessageQueue, connection: BrokerConnection) -> bool:
        """Whether the next pull can be sent as a long poll over the same connection."""
        return (
            queue not in self._backlogs
            and self._known_address(queue) == connection.address
            and self._session.pool.may_reuse(connection)
        )

    def _header(self, queue: MessageQueue) -> bytes:
        """Return the header's beginning, with %d for the four numbers that `_ask` fills in."""
        subscription = self._subscription(queue.topic)
        request = PullMessageRequest(
            consumer_group=self.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=0,
            max_msg_nums=0,
            sys_flag=0,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription=subscription.expression,
            sub_version=subscription.version,
            expression_type=subscription.expression_type,
            broker_name=queue.broker_name,
        )
        fields = encode_fields(request)
        for name in _FILLED_IN:
            del fields[name]
        start = begin_json_header(_PULL, fields).removesuffix(b"},")
        filled_in = "".join(f',"{name}":"%d"' for name in _FILLED_IN).encode()
        header = start.replace(b"%", b"%%") + filled_in + b"},"
        self._headers[queue] = header
        return header

    def _subscription(self, topic: str) -> Subscription:
        subscription = self._given.get(topic) or self._subscriptions.get(topic)
        if subscription is None:
            subscription = make_subscription(topic, self._wanted)
            self._subscriptions[topic] = subscription
        return subscription

    def _known_address(self, queue: MessageQueue) -> str | None:
        """Return the address of the replica that the last answer suggested, if it is known."""
        broker_id = self._preferred_broker_ids.get(queue)
        route = self._session.routes.known(queue.topic)
        if broker_id is None or route is None:
            return None
        return route.reader(queue.broker_name, broker_id)

    def read_result(
        self, queue: MessageQueue, offset: int, answer: Command, address: str
    ) -> PullResult:
        """Return what an answer contains. Raises ClientError."""
        if answer.code not in PULL_ANSWERS:
            raise self._session.refusal(address, _PULL, answer)
        try:
            header = decode_fields(PullMessageResponse, answer.ext)
            records = _records(queue, answer.body) if answer.body else []
        except FieldError as error:
            raise MalformedAnswerError(
                f"{address} answered a pull with an invalid header ({error})",
                address=address,
            ) from error
        except ProtocolError as error:
            raise MalformedAnswerError(
                f"{queue} has an unreadable message at or soon after offset {offset} ({error})",
                address=address,
                remedy="seek past it to continue",
            ) from error
        self._preferred_broker_ids[queue] = header.suggest_which_broker_id
        step = header.next_begin_offset - offset
        if step == len(records) and 0 < step < header.max_offset - offset:
            self._backlogs[queue] = _Backlog(
                header.next_begin_offset, header.max_offset, step, len(answer.body)
            )
        if records and records[0].queue_offset < offset:
            # A broker returns a whole inner batch, even if the requested offset is in its middle.
            records = [record for record in records if record.queue_offset >= offset]
        subscription = self._subscription(queue.topic)
        if not subscription.takes_any_tag:  # the broker filters tags by their hash only
            records = [each for each in records if subscription.matches_tag(each.tags)]
        return PullResult(
            records,
            header.next_begin_offset,
            header.min_offset,
            header.max_offset,
            has_moved=answer.code == ResponseCode.PULL_OFFSET_MOVED,
        )


class _LongPolls:
    """Pulls of one queue over one connection, one after the other: the waiter of their answers.

    `end` is done when `accept` wants no more, when the next pull must be sent in another way, or
    with an error. Its cancellation ends the polls.
    """

    def __init__(
        self,
        puller: GroupPuller,
        queue: MessageQueue,
        max_count: int,
        wait_s: float,
        accept: Accept,
        connection: BrokerConnection,
    ) -> None:
        self._puller = puller
        self._queue = queue
        self._max_count = max_count
        self._wait_s = wait_s
        self._accept = accept
        self._connection = connection
        self._offset = 0
        self.end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def ask(self, offset: int) -> None:
        """Send a pull. Raises ClientError."""
        self._offset = offset
        wait_s = self._wait_s
        header = self._puller.begin_header(self._queue, offset, self._max_count, wait_s)
        self._connection.ask_json(self, _PULL, header, b"", wait_s + _HOLD_SLACK_S)

    def done(self) -> bool:
        """See AnswerWaiter."""
        return self.end.done()

    def set_result(self, answer: Command, /) -> None:
        """See AnswerWaiter."""
        puller, queue, connection = self._puller, self._queue, self._connection
        try:
            result = puller.read_result(queue, self._offset, answer, connection.address)
            wants_more = self._accept(self._offset, result)
            if self.end.done():
                return
            if wants_more and puller.may_poll(queue, connection):
                self.ask(result.next_offset)
            else:
                self.end.set_result(None)
        except Exception as error:
            self.set_exception(error)

    def set_exception(self, exception: BaseException, /) -> None:
        """See AnswerWaiter."""
        if not self.end.done():
            self.end.set_exception(exception)


def _records(queue: MessageQueue, body: bytes) -> list[ReceivedMessage]:
    """Return the messages of an answer. Raises ProtocolError."""
    topic = queue.topic.encode()
    messages: list[ReceivedMessage] = []
    start = 0
    while start < len(body):
        plain, start = receive(queue, body, start, topic)
        messages += plain
        if start < len(body):
            message = decode_message(body, start)
            start += message.size_bytes
            messages += [ReceivedMessage(queue, each) for each in list_inner_messages(message)]
    return messages
