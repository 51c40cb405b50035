"""The pop family: 200050 to 200055 and 200151. The checks, their order and codes are RocketMQ's.

RocketMQ's binary header truncates codes beyond 16 bits (200050 arrives as 3442), so the table
contains both.
"""

import base64
import binascii
from collections.abc import Awaitable, Callable, Generator, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import structlog

from rockhopper.broker.features.pop.extra_info import ExtraInfo, parse_extra_info, real_topic
from rockhopper.broker.features.pop.polling import Waiter
from rockhopper.broker.features.pop.processors.checks import PopChecks, no_message
from rockhopper.broker.features.pop.reading import PopAnswer, PopRequest
from rockhopper.broker.features.pop.service import PopService
from rockhopper.broker.features.pop.sources import Queue
from rockhopper.broker.kernel.members.consumer_groups import ConsumerGroups
from rockhopper.broker.server.loop.cooperative_work import (
    CooperativeWork,
    next_slice,
    run_in_slices,
)
from rockhopper.broker.server.remoting.dispatcher import (
    Request,
    RequestError,
    Response,
    Row,
    error_response,
    serves,
)
from rockhopper.broker.server.remoting.json_bodies import (
    SHORT_BODY_SIZE_BYTES_MAX,
    names_in_body,
    with_body,
)
from rockhopper.broker.server.remoting.permissions import (
    CONSUME,
    Names,
    on_topic_and_group,
    on_topics_and_groups,
)
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.users.access import Action
from rockhopper.broker.users.errors import (
    InvalidParameter,
    Refusal,
    SubscriptionNotParsed,
    TooManyWait,
)
from rockhopper.protocol.bodies.popping import BatchAck, BatchAckMessageRequestBody
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.errors import FieldError, ProtocolError
from rockhopper.protocol.requests import encode_fields
from rockhopper.protocol.requests.popping import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    ChangeInvisibleTimeResponse,
    NotificationRequest,
    NotificationResponse,
    PeekMessageRequest,
    PollingInfoRequest,
    PollingInfoResponse,
    PopMessageRequest,
)
from rockhopper.protocol.subscription import TYPE_SQL92, Subscription

log = structlog.get_logger("broker.pop")

MESSAGES_MAX = 32
LATE_MS = 500
LATE_CLIENTS_MAX = 10_000
INIT_MAX = 1
INVISIBLE_MS_MAX = 10 * 365 * 86_400_000
EXPRESSION_LENGTH_MAX = 65_536
SUBSCRIPTIONS_CACHED_MAX = 4096
# The cost of acknowledgements in a long batch between pauses for other requests.
ACK_COST = 32
ACK_COST_PER_TURN = 8192


def _get_acknowledged(topics_or_groups: str) -> Names:
    return names_in_body(
        BatchAckMessageRequestBody,
        lambda body: [getattr(ack, topics_or_groups) for ack in body.acks],
    )


ACKNOWLEDGED = on_topics_and_groups(
    Action.SUB, _get_acknowledged("topic"), _get_acknowledged("group")
)


@dataclass(eq=False, repr=False)
class PopProcessors:
    """Serves pop consumers."""

    _config: BrokerConfig
    _pop: PopService
    _checks: PopChecks
    _consumers: ConsumerGroups
    _now_ms: Callable[[], int]
    _late_clients: set[str] = field(default_factory=set)
    """The clients that were logged, by id; by host before their first heartbeat."""
    _subscriptions: dict[tuple[str, str, str], Subscription | None] = field(default_factory=dict)

    def rows(self) -> dict[int, Row]:
        """Return the row of each request code, also by the lower 16 bits of the code.

        A new master delivers popped messages again, unless they are acknowledged.
        """
        rows: dict[int, Row] = {
            Code.POP_MESSAGE: serves(self.pop, *CONSUME, promises_state=False, may_wait=True),
            Code.ACK_MESSAGE: serves(self.ack, *CONSUME),
            Code.BATCH_ACK_MESSAGE: serves(self.batch_ack, *ACKNOWLEDGED),
            Code.PEEK_MESSAGE: serves(self.peek, *CONSUME, promises_state=False),
            Code.CHANGE_MESSAGE_INVISIBLETIME: serves(self.change_invisible, *CONSUME),
            Code.NOTIFICATION: serves(
                self.notification, *CONSUME, promises_state=False, may_wait=True
            ),
            Code.POLLING_INFO: serves(
                self.polling_info, *on_topic_and_group(Action.GET), promises_state=False
            ),
        }
        return rows | {code & 0xFFFF: row for code, row in rows.items()}

    def pop(self, request: Request) -> Response | Awaitable[Response | None] | None:
        """200050: return messages, or wait for some."""
        fields = request.fields(PopMessageRequest)
        if fields.exp_type == TYPE_SQL92 and not self._pop.turns.budget.has_room():
            return self._pop_in_turn(request)
        return self._pop_now(request)

    async def _pop_in_turn(self, request: Request) -> Response | None:
        if not await self._pop.turns.turn(request.connection):
            raise TooManyWait("[OVERLOAD]system busy: too many pops with a filter are waiting")
        if request.connection.closed:
            return None
        request.check_access()
        served = self._pop_now(request)
        return await served if isinstance(served, Awaitable) else served

    def _pop_now(self, request: Request) -> Response | Awaitable[Response] | None:
        fields = request.fields(PopMessageRequest)
        name, now_ms = self._config.broker_name, self._now_ms()
        born_ms = fields.born_time or now_ms
        if now_ms - born_ms - fields.poll_time > LATE_MS:
            self._log_late(request, fields, now_ms - born_ms)
            raise RequestError(
                ResponseCode.POLLING_TIMEOUT,
                f"the broker[{name}] pop message is timeout too much",
                PopAnswer(fields.topic, 0, 0, 0).ext(),
            )
        self._checks.broker_is_readable("pop")
        if not self._config.timer_wheel_enable:
            raise Refusal(
                f"the broker[{name}] pop message is forbidden because timerWheelEnable is false"
            )
        if fields.max_msg_nums > MESSAGES_MAX:
            raise InvalidParameter(
                f"the broker[{name}] pop message's num is greater than {MESSAGES_MAX}"
            )
        self._checks.may_read(
            request.connection.peer, fields.topic, fields.consumer_group, fields.queue_id
        )
        if fields.invisible_time < 0 or fields.max_msg_nums < 1:
            raise InvalidParameter(
                f"maxMsgNums is {fields.max_msg_nums} and invisibleTime {fields.invisible_time}: "
                "request at least one message, and a time of 0 or more"
            )
        wanted = PopRequest(
            fields.consumer_group,
            fields.topic,
            fields.queue_id,
            fields.max_msg_nums,
            min(fields.invisible_time, INVISIBLE_MS_MAX),
            fields.init_mode == INIT_MAX,
            self._subscription(fields.topic, fields.exp, fields.exp_type),
            fields.order,
            fields.attempt_id,
        )
        wait_ms = born_ms + fields.poll_time - now_ms
        waits = fields.poll_time > 0 and wait_ms > 0
        work = CooperativeWork(self._pop.pop_steps(wanted))
        is_over = work.step()
        if is_over and work.result.count:
            return _build_found(work.result)
        # A waiting pop searches the queues once it is notified, so no message is missed in between.
        if waits and self._park(request, wanted, wait_ms / 1000):
            if not is_over or work.result.is_unfinished:
                self._pop.polling.ring((wanted.group, wanted.topic))
            return None
        code = ResponseCode.POLLING_FULL if waits else ResponseCode.POLLING_TIMEOUT
        return _answer(work, lambda answer: _build_popped(answer, code))

    def _log_late(self, request: Request, fields: PopMessageRequest, behind_ms: int) -> None:
        connection = request.connection
        online = self._consumers.get(fields.consumer_group)
        member = None if online is None else online.members.get(connection)
        client_id = connection.addresses.peer_host if member is None else member.client_id
        if client_id in self._late_clients:
            return
        if len(self._late_clients) >= LATE_CLIENTS_MAX:
            self._late_clients.clear()
        self._late_clients.add(client_id)
        log.warning(
            "a pop timed out before it was served and got nothing: is the client's clock behind?",
            peer=connection.peer,
            client=client_id,
            group=fields.consumer_group,
            behind_ms=behind_ms,
        )

    def _park(self, request: Request, wanted: PopRequest, wait_s: float) -> bool:
        def tell(answer: PopAnswer) -> None:
            request.answer(_build_popped(answer, ResponseCode.POLLING_TIMEOUT))

        def fail(error: Exception) -> None:
            request.answer(_error(error))

        check = partial(self._check_again, request, wanted, "pop")
        return self._pop.wait(request.connection, wanted, wait_s, tell, fail, check)

    def _check_again(self, request: Request, wanted: PopRequest, what: str) -> None:
        """Raise a Refusal if a request that has waited may no longer be served."""
        request.check_access()
        self._checks.broker_is_readable(what)
        self._checks.may_read(request.connection.peer, wanted.topic, wanted.group, wanted.queue_id)

    def _subscription(
        self, topic: str, expression: str | None, expression_type: str | None
    ) -> Subscription | None:
        if not expression:
            return None
        key = (topic, expression, expression_type or "TAG")
        if key in self._subscriptions:
            return self._subscriptions[key]
        try:
            if len(expression) > EXPRESSION_LENGTH_MAX:
                raise ValueError(f"{EXPRESSION_LENGTH_MAX} characters are allowed")
            parsed = Subscription(*key)
            # Refuse here an expression that does not compile.
            with self._pop.turns.budget.pays():
                _ = parsed.sql
        except (ProtocolError, ValueError) as error:
            raise SubscriptionNotParsed(
                f"parse the consumer's subscription failed: {error}"
            ) from None
        is_everything = parsed.matches_all and parsed.expression_type == "TAG"
        if len(self._subscriptions) >= SUBSCRIPTIONS_CACHED_MAX:
            self._subscriptions.clear()
        subscription = self._subscriptions[key] = None if is_everything else parsed
        return subscription

    def peek(self, request: Request) -> Response | Awaitable[Response]:
        """200052: return the messages that a pop would return, without popping them."""
        fields = request.fields(PeekMessageRequest)
        self._checks.broker_is_readable("peek")
        self._checks.may_read(
            request.connection.peer, fields.topic, fields.consumer_group, fields.queue_id
        )
        if not 0 < fields.max_msg_nums <= MESSAGES_MAX:
            raise InvalidParameter(
                f"maxMsgNums is {fields.max_msg_nums}; 1 to {MESSAGES_MAX} can be peeked at"
            )
        wanted = PopRequest(
            fields.consumer_group, fields.topic, fields.queue_id, fields.max_msg_nums, 0, False
        )
        work = CooperativeWork(self._pop.peek_steps(wanted))
        work.step()
        return _answer(work, lambda answer: _build_popped(answer, ResponseCode.PULL_NOT_FOUND))

    def ack(self, request: Request) -> Response:
        """200051: acknowledge a message.

        Returns success even if it is too late; then the message is delivered again.
        """
        fields = request.fields(AckMessageRequest)
        info = parse_extra_info(fields.extra_info)
        topic = real_topic(fields.consumer_group, fields.topic, info.retry_flag)
        low, high = self._checks.queue_range(request.connection.peer, topic, fields.queue_id)
        if not low <= fields.offset <= high:
            raise no_message(
                fields.consumer_group, topic, fields.queue_id, fields.offset, low, high
            )
        self._pop.ack(fields.consumer_group, topic, fields.queue_id, [fields.offset], info)
        return Response()

    def batch_ack(self, request: Request) -> Response | Awaitable[Response]:
        """200151: acknowledge many messages; ignore missing ones."""
        return with_body(request, BatchAckMessageRequestBody, self._batch_ack)

    def _batch_ack(
        self, request: Request, body: BatchAckMessageRequestBody
    ) -> Response | Awaitable[Response]:
        if not body.acks:
            raise RequestError(ResponseCode.NO_MESSAGE, "the request names no message")
        if len(request.body) > SHORT_BODY_SIZE_BYTES_MAX:
            return self._ack_in_turns(body.acks)
        for ack in body.acks:
            self._ack_named(ack)
        return Response()

    async def _ack_in_turns(self, acks: list[BatchAck]) -> Response:
        cost = 0
        for ack in acks:
            cost += ACK_COST + len(ack.bits)
            if cost > ACK_COST_PER_TURN:
                cost = 0
                await next_slice()
            self._ack_named(ack)
        return Response()

    def _ack_named(self, ack: BatchAck) -> None:
        info = ExtraInfo(
            ack.start_offset, ack.pop_ms, ack.invisible_ms, ack.revive_queue_id, ack.retry_flag
        )
        topic = real_topic(ack.group, ack.topic, ack.retry_flag)
        offsets = self._list_offsets(ack, topic, info)
        if offsets:
            self._pop.ack(ack.group, topic, ack.queue_id, offsets, info)

    def _list_offsets(self, ack: BatchAck, topic: str, info: ExtraInfo) -> list[int]:
        """Return the offsets of a batch that may be in flight; its bit set can be of any size."""
        lane = self._pop.lanes.get(ack.group, topic, ack.queue_id)
        if lane is None:
            return []
        try:
            bits = base64.b64decode(ack.bits, validate=True)
        except (binascii.Error, ValueError):
            raise FieldError("b", "is not base64") from None
        start = ack.start_offset
        candidates: Iterable[int]
        if info.is_orderly:
            candidates = lane.batch.offsets if lane.batch is not None else []
        elif 8 * len(bits) < len(lane.entries):
            candidates = range(start, start + 8 * len(bits))
        else:
            candidates = list(lane.entries)
        return [
            offset
            for offset in candidates
            if 0 <= (index := offset - start) < 8 * len(bits)
            and bits[index >> 3] >> (index & 7) & 1
        ]

    def change_invisible(self, request: Request) -> Response:
        """200053: change when a message becomes visible again; 0 ms means at once.

        Returns 208 if that pop no longer has it in flight: it becomes visible again anyway.
        """
        fields = request.fields(ChangeInvisibleTimeRequest)
        info = parse_extra_info(fields.extra_info)
        group = fields.consumer_group
        topic = real_topic(group, fields.topic, info.retry_flag)
        low, high = self._checks.queue_range(request.connection.peer, topic, fields.queue_id)
        if not low <= fields.offset < high:
            raise no_message(group, topic, fields.queue_id, fields.offset, low, high)
        if fields.invisible_time < 0:
            raise InvalidParameter(f"invisibleTime is {fields.invisible_time}")
        changed = self._pop.change_invisible(
            group,
            topic,
            fields.queue_id,
            fields.offset,
            info,
            min(fields.invisible_time, INVISIBLE_MS_MAX),
            suspend=fields.suspend,
        )
        if changed is None:
            raise RequestError(
                ResponseCode.NO_MESSAGE,
                f"message {fields.offset} of queue {fields.queue_id} of topic {topic} is not in "
                f"flight by the pop at {info.pop_ms}: it was acknowledged or redelivered",
            )
        pop_ms, invisible_ms = changed
        answer = ChangeInvisibleTimeResponse(
            pop_time=pop_ms, invisible_time=invisible_ms, revive_qid=info.revive_queue_id
        )
        return Response(ext=encode_fields(answer))

    def notification(self, request: Request) -> Response | Awaitable[Response] | None:
        """200054: answer once there is a message to pop."""
        fields = request.fields(NotificationRequest)
        self._checks.broker_is_readable("notification")
        self._checks.may_read(
            request.connection.peer, fields.topic, fields.consumer_group, fields.queue_id
        )
        wanted = PopRequest(
            fields.consumer_group,
            fields.topic,
            fields.queue_id,
            1,
            0,
            False,
            None,
            fields.order,
            fields.attempt_id,
        )
        work = CooperativeWork(self._pop.look_steps(wanted))
        is_over = work.step()
        if is_over and work.result:
            return _notice(has_message=True)
        now_ms = self._now_ms()
        wait_ms = (fields.born_time or now_ms) + fields.poll_time - now_ms
        waits = fields.poll_time > 0 and wait_ms > 0
        if waits and self._park_notification(request, wanted, wait_ms / 1000):
            if not is_over:
                self._pop.polling.ring((wanted.group, wanted.topic))
            return None
        return _answer(work, lambda found: _notice(has_message=found, is_full=waits and not found))

    def _park_notification(self, request: Request, wanted: PopRequest, wait_s: float) -> bool:
        pop = self._pop

        def attempt(waiter: Waiter, near: Queue | None) -> Generator[None, None, bool]:
            has_message = False
            try:
                if not pop.polling.is_closed:
                    self._check_again(request, wanted, "notification")
                    has_message = yield from pop.look_steps(wanted, near)
            except Exception as error:
                request.answer(_error(error))
                return True
            if has_message or waiter.is_last:
                request.answer(_notice(has_message=has_message))
                return True
            return False

        waiter = Waiter(
            request.connection,
            (wanted.group, wanted.topic),
            wanted.queue_id,
            pop.sources.list_waited_queues(wanted),
            ("notification", wanted.queue_id, wanted.order),
            attempt,
            attempt_id=wanted.attempt_id,
        )
        return pop.polling.park(waiter, wait_s)

    def polling_info(self, request: Request) -> Response:
        """200055: return the number of waiting requests."""
        fields = request.fields(PollingInfoRequest)
        self._checks.broker_is_readable("polling info")
        self._checks.may_read(
            request.connection.peer, fields.topic, fields.consumer_group, fields.queue_id
        )
        count = self._pop.polling.count(fields.consumer_group, fields.topic, fields.queue_id)
        return Response(ext=encode_fields(PollingInfoResponse(polling_num=count)))


def _build_found(answer: PopAnswer) -> Response:
    return Response(ResponseCode.SUCCESS, "FOUND", answer.ext(), answer.body())


def _build_popped(answer: PopAnswer, code: int) -> Response:
    """Return the response with messages, or with *code* if there are none."""
    if answer.count:
        return _build_found(answer)
    return Response(code, "NO_MESSAGE_IN_QUEUE", answer.ext())


_Result = TypeVar("_Result")


def _answer(
    work: CooperativeWork[_Result], respond: Callable[[_Result], Response]
) -> Response | Awaitable[Response]:
    """Return the response to the result of *work*, which has started; at once if it is done."""

    async def later() -> Response:
        return respond(await run_in_slices(work))

    return respond(work.result) if work.is_done else later()


def _notice(*, has_message: bool, is_full: bool = False) -> Response:
    return Response(
        ext=encode_fields(NotificationResponse(has_msg=has_message, polling_full=is_full))
    )


def _error(error: Exception) -> Response:
    response = error_response(error)
    if response is not None:
        return response
    log.error("waiting pop failed", exc_info=error)
    return Response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
