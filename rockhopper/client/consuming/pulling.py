"""Pull requests and the interpretation of their answers."""

import logging
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from rockhopper.client.consuming.histories import Histories
from rockhopper.client.consuming.queue_offsets import QueueOffsets
from rockhopper.client.errors import ClientError, MalformedAnswerError, is_route_outdated
from rockhopper.client.filters import Sql, make_subscription
from rockhopper.client.network.session import Session
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
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
from rockhopper.protocol.store.message_codec import (
    decode_message,
    list_inner_messages,
    split_plain_records,
)
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


@dataclass(frozen=True, slots=True)
class PullResult:
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


class PullSource(Protocol):
    """The source of messages: a GroupPuller, or a stand-in of a test."""

    async def pull(
        self, queue: MessageQueue, offset: int, max_count: int, wait_s: float, space: Space
    ) -> PullResult:
        """Read from `offset` on, waiting up to `wait_s` for the first message.

        If there is a backlog, the result may have more than `max_count` messages, within `space`.
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
            return await self._pull(queue, offset, max_count, wait_s, space)
        except ClientError as error:
            self._preferred_broker_ids.pop(queue, None)
            if is_route_outdated(error):
                await self._session.routes.renew(queue.topic)
            raise

    async def _pull(
        self, queue: MessageQueue, offset: int, max_count: int, wait_s: float, space: Space
    ) -> PullResult:
        backlog = self._backlogs.pop(queue, None)
        times = 1 if backlog is None else backlog.times(offset, max_count, space)
        address = await self._address(queue)
        valid = await self._valid(queue, offset, address)
        if valid < offset:
            return PullResult([], valid, valid, valid, has_moved=True, is_cut=True)
        if backlog is None or times == 1:
            answer = await self._ask(address, queue, offset, max_count, wait_s)
            return self._result(queue, offset, answer, address)
        starts = range(offset, offset + times * backlog.step, backlog.step)
        # The last request asks for `max_count`; its answer reports the current backlog.
        counts = [backlog.step] * (times - 1) + [max_count]
        asked = [
            start_request(self._ask(address, queue, start, count, 0.0))
            for start, count in zip(starts, counts, strict=True)
        ]
        try:
            result = self._result(queue, offset, await asked[0], address)
            for start, later in zip(starts[1:], asked[1:], strict=True):
                more = None
                if result.next_offset == start:
                    more = await self._continued(queue, start, later, address)
                if more is None:
                    break
                result = PullResult(
                    result.messages + more.messages,
                    more.next_offset,
                    more.min_offset,
                    more.max_offset,
                    has_moved=False,
                )
        finally:
            for each in asked:
                let_go(each)
        return result

    async def _valid(self, queue: MessageQueue, offset: int, address: str) -> int:
        """Return `offset`, or the end of the common history if the log was truncated before it."""
        histories = self._histories
        if histories is None or histories.is_compared(queue, address):
            return offset
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
                return self._result(queue, offset, answer, address)
        except ClientError as error:
            log.debug("one of several pulls of %s failed: %s", queue, error)
        return None

    def _ask(
        self, address: str, queue: MessageQueue, offset: int, max_count: int, wait_s: float
    ) -> Awaitable[Command]:
        sys_flag = self._flags | (PULL_FLAG_SUSPEND if wait_s > 0 else 0)
        header = self._headers.get(queue) or self._header(queue)
        header %= (offset, max_count, sys_flag, round(wait_s * 1000))
        timeout_s = wait_s + _HOLD_SLACK_S if wait_s > 0 else self._session.request_timeout_s
        return self._session.request_json(address, _PULL, header, b"", timeout_s)

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

    async def _address(self, queue: MessageQueue) -> str:
        broker_id = self._preferred_broker_ids.get(queue)
        if broker_id is not None:
            route = self._session.routes.known(queue.topic)
            address = route.reader(queue.broker_name, broker_id) if route else None
            if address is not None:
                return address
        return await self._offsets.address(queue)

    def _result(
        self, queue: MessageQueue, offset: int, answer: Command, address: str
    ) -> PullResult:
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
        subscription = self._subscription(queue.topic)
        return PullResult(
            # A broker returns a whole inner batch, even if the requested offset is in its middle.
            # It filters tags by their hash only.
            [
                record
                for record in records
                if record.queue_offset >= offset
                and (subscription.takes_any_tag or subscription.matches_tag(record.tags))
            ],
            header.next_begin_offset,
            header.min_offset,
            header.max_offset,
            has_moved=answer.code == ResponseCode.PULL_OFFSET_MOVED,
        )


def _records(queue: MessageQueue, body: bytes) -> list[ReceivedMessage]:
    """Return the messages of an answer. Raises ProtocolError."""
    topic = queue.topic.encode()
    messages: list[ReceivedMessage] = []
    start = 0
    while start < len(body):
        plain, start = split_plain_records(body, start, topic)
        messages += [ReceivedMessage(queue, record) for record in plain]
        if start < len(body):
            message = decode_message(body, start)
            start += message.size_bytes
            messages += [ReceivedMessage(queue, each) for each in list_inner_messages(message)]
    return messages
