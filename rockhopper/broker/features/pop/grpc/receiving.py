"""ReceiveMessage: pop messages, or wait for some.

The stream contains the status, then the messages, then their delivery time. Messages that a client
reads too slowly, or that it leaves behind by disconnecting, become visible again at once.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from rockhopper.broker.features.pop.extra_info import real_topic
from rockhopper.broker.features.pop.grpc.handles import RENEWED_INVISIBLE_MS, Handles, HeldMessage
from rockhopper.broker.features.pop.processors.checks import PopChecks
from rockhopper.broker.features.pop.reading import FoundMessages, PopAnswer, PopRequest
from rockhopper.broker.features.pop.service import PopService
from rockhopper.broker.gateways.grpc.call import Call
from rockhopper.broker.gateways.grpc.converting import encode_delivery
from rockhopper.broker.gateways.grpc.resources import group_of, topic_of
from rockhopper.broker.gateways.grpc.sessions import ClientSession, Sessions
from rockhopper.broker.gateways.grpc.statuses import OK, GrpcStatusError, millis_of, status
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroupTable
from rockhopper.broker.server.loop.cooperative_work import CooperativeWork
from rockhopper.broker.users.errors import SubscriptionNotParsed, TooManyWait
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.grpc_v2.codes import Code
from rockhopper.protocol.grpc_v2.messages import FILTER_SQL, METHODS
from rockhopper.protocol.grpc_v2.receipt_handle import ReceiptHandle
from rockhopper.protocol.store.record_head import head_struct
from rockhopper.protocol.subscription import TYPE_SQL92, TYPE_TAG, ExactSubscription, Subscription

MESSAGES_MAX = 32
POLLING_S_MIN, POLLING_S_MAX = 5.0, 20.0
INVISIBLE_MS_MIN, INVISIBLE_MS_MAX = 10_000, 12 * 3_600_000
REQUEST_TIMEOUT_S = 3.0
EXPRESSION_LENGTH_MAX = 65_536
SUBSCRIPTIONS_CACHED_MAX = 4096
ANY_QUEUE = -1
EVERYTHING = ("", "*")

_LOG_OFFSET = head_struct("log_offset")
_Reply = METHODS["ReceiveMessage"].reply


class PopReceiving:
    """Serves consumers that pop."""

    def __init__(
        self,
        broker_name: str,
        pop: PopService,
        groups: SubscriptionGroupTable,
        checks: PopChecks,
        sessions: Sessions,
        handles: Handles,
        now_ms: Callable[[], int],
    ) -> None:
        self._broker_name = broker_name
        self._pop = pop
        self._groups = groups
        self._checks = checks
        self._sessions = sessions
        self._handles = handles
        self._now_ms = now_ms
        self._subscriptions: dict[tuple[str, str, str], Subscription | None] = {}

    def receive(self, call: Call, request: Any) -> None:
        """ReceiveMessage: pop now, or later if filters have used up their time budget."""
        budget = self._pop.turns.budget
        if request.filter_expression.expression not in EVERYTHING and not budget.has_room():
            call.run_later(self._receive_in_turn(call, request))
        else:
            self._receive(call, request)

    async def _receive_in_turn(self, call: Call, request: Any) -> None:
        if not await self._pop.turns.turn(call.connection):
            raise TooManyWait("too many calls with a filter wait")
        if not call.is_over:
            call.check_access()
            self._receive(call, request)

    def _receive(self, call: Call, request: Any) -> None:
        session = self._sessions.find(call)
        topic, group = topic_of(request.message_queue.topic), group_of(request.group)
        wait_s = _polling_s(call, request, session)
        invisible_ms = _invisible_ms(request)
        subscription = self._subscription(topic, request.filter_expression)
        self._checks.broker_is_readable("pop")
        self._checks.may_read(call.connection.peer, topic, group, ANY_QUEUE)
        wanted = PopRequest(
            group,
            topic,
            ANY_QUEUE,
            min(max(request.batch_size, 1), MESSAGES_MAX),
            invisible_ms,
            True,
            subscription,
            self._is_orderly(group),
            request.attempt_id or None,
        )
        namespace = request.message_queue.topic.resource_namespace
        receipt = _Receipt(self, call, session, wanted, request.auto_renew, namespace)
        self._pop_or_wait(receipt, wait_s)

    def _pop_or_wait(self, receipt: "_Receipt", wait_s: float) -> None:
        pop, wanted = self._pop, receipt.wanted
        work = CooperativeWork(pop.pop_steps(wanted))
        is_over = work.step()
        if is_over and work.result.count:
            receipt.write(work.result)
            return
        # A waiting call searches the queues once it is notified, so no message is missed in
        # between.
        call = receipt.call
        check = partial(self._check_again, call, wanted)
        if not pop.wait(call.waiting(), wanted, wait_s, receipt.write, call.refuse, check):
            raise TooManyWait("too many calls wait for this group and topic")
        # Clients time the first bytes separately from the messages.
        if not is_over or work.result.is_unfinished:
            pop.polling.ring((wanted.group, wanted.topic))

    def _check_again(self, call: Call, wanted: PopRequest) -> None:
        """Raise an error if a call that has waited may no longer be served in this way."""
        call.check_access()
        self._checks.broker_is_readable("pop")
        self._checks.may_read(call.connection.peer, wanted.topic, wanted.group, ANY_QUEUE)
        if self._is_orderly(wanted.group) != wanted.order:
            raise GrpcStatusError(Code.MESSAGE_NOT_FOUND, "the ordering of this group has changed")

    def _is_orderly(self, group: str) -> bool:
        settings = self._groups.get(group)
        return settings is not None and settings.consume_message_orderly

    def _subscription(self, topic: str, asked: Any) -> Subscription | None:
        kind = TYPE_SQL92 if asked.type == FILTER_SQL else TYPE_TAG
        key = topic, asked.expression, kind
        if key in self._subscriptions:
            return self._subscriptions[key]
        try:
            if len(asked.expression) > EXPRESSION_LENGTH_MAX:
                raise ValueError(f"{EXPRESSION_LENGTH_MAX} characters are allowed")
            parsed = ExactSubscription(topic, asked.expression, kind)
            # Refuse here an expression that does not compile.
            with self._pop.turns.budget.pays():
                _ = parsed.sql
        except (ProtocolError, ValueError) as error:
            raise SubscriptionNotParsed(f"the filter cannot be parsed: {error}") from None
        if len(self._subscriptions) >= SUBSCRIPTIONS_CACHED_MAX:
            self._subscriptions.clear()
        is_everything = parsed.matches_all and not parsed.is_sql
        subscription = self._subscriptions[key] = None if is_everything else parsed
        return subscription

    def list_handed_out(
        self, receipt: "_Receipt", answer: PopAnswer
    ) -> list[tuple[bytes, HeldMessage]]:
        """Return an encoded reply for each message of *answer*, with its in-flight record."""
        records = iter(answer.records)
        return [
            self._encode_reply(receipt, answer, found, offset, next(records))
            for found in answer.found
            for offset in found.offsets
        ]

    def _encode_reply(
        self,
        receipt: "_Receipt",
        answer: PopAnswer,
        found: FoundMessages,
        offset: int,
        record: bytes,
    ) -> tuple[bytes, HeldMessage]:
        wanted = receipt.wanted
        (log_offset,) = _LOG_OFFSET.unpack_from(record)
        handle = ReceiptHandle(
            found.start,
            answer.pop_ms,
            answer.invisible_ms,
            answer.revive_queue_id,
            found.retry_flag,
            self._broker_name,
            found.queue_id,
            offset,
            log_offset,
        )
        frame = encode_delivery(
            record,
            wanted.topic,
            receipt.namespace,
            str(handle),
            answer.invisible_ms,
            answer.order_counts.get((found.queue_id, offset), -1),
        )
        topic = real_topic(wanted.group, wanted.topic, found.retry_flag)
        return frame, HeldMessage(wanted.group, topic, handle)

    def give_back(self, received: list[HeldMessage]) -> None:
        """Make messages visible again that the client did not receive; on failure they time out."""
        for each in received:
            self._handles.change(each, 0)

    def renew(self, session: ClientSession, received: list[HeldMessage]) -> None:
        """Renew the messages that a push consumer has received, so that they do not return."""
        for each in received:
            self._handles.renew(session, each)


class _Receipt:
    """One ReceiveMessage call, until its messages are written."""

    def __init__(
        self,
        receiving: PopReceiving,
        call: Call,
        session: ClientSession | None,
        wanted: PopRequest,
        auto_renew: bool,
        namespace: str,
    ) -> None:
        self._receiving = receiving
        self.call = call
        self._session = session
        self.wanted = wanted
        self._auto_renew = auto_renew
        self.namespace = namespace
        self._received: list[HeldMessage] = []

    def lost(self, unsent: int) -> None:
        """Give back the messages that were not sent, the delivery time apart."""
        sent_count = max(len(self._received) - max(unsent - 1, 0), 0)
        self._receiving.give_back(self._received[sent_count:])

    def write(self, answer: PopAnswer) -> None:
        """Send the messages, or the status that none arrived in time."""
        call = self.call
        if not answer.count:
            call.write(_Reply(status=status(Code.MESSAGE_NOT_FOUND, "no new message")))
            call.end_call()
            return
        handed_out = self._receiving.list_handed_out(self, answer)
        received = [each for _, each in handed_out]
        if call.is_over:
            self._receiving.give_back(received)
            return
        if self._auto_renew and self._session is not None and not self._session.closed:
            self._receiving.renew(self._session, received)
        # One more message follows: the delivery time.
        call.delivery = self
        self._received = received
        call.write(_Reply(status=OK))
        for frame, _ in handed_out:
            call.write_frame(frame)
        last = _Reply()
        last.delivery_timestamp.FromMilliseconds(answer.pop_ms)
        call.write(last)
        call.end_call()


def _polling_s(call: Call, request: Any, session: ClientSession | None) -> float:
    """Return how long the client waits for messages. Raises GrpcStatusError."""
    remaining_s, wait_s = call.remaining_s(), POLLING_S_MAX
    if request.HasField("long_polling_timeout"):
        wait_s = (
            millis_of(request.long_polling_timeout, Code.ILLEGAL_POLLING_TIME, "the polling time")
            / 1000
        )
    elif remaining_s is not None:
        timeout_s = REQUEST_TIMEOUT_S
        if session is not None and session.settings is not None:
            timeout_s = session.settings.request_timeout.ToMilliseconds() / 1000 or timeout_s
        wait_s = remaining_s - timeout_s / 2
    wait_s = min(max(wait_s, POLLING_S_MIN), POLLING_S_MAX)
    if remaining_s is not None and wait_s > remaining_s:
        if remaining_s < POLLING_S_MIN:
            version = call.fields.get("x-mq-client-version", "")
            is_old = version < "5.0.3"
            raise GrpcStatusError(
                Code.BAD_REQUEST if is_old else Code.ILLEGAL_POLLING_TIME,
                f"the client waits for only {remaining_s:.1f} s more, but polling needs at least "
                f"{POLLING_S_MIN:.0f} s",
            )
        wait_s = remaining_s
    return wait_s


def _invisible_ms(request: Any) -> int:
    """Return how long the messages stay invisible. Raises GrpcStatusError."""
    if request.auto_renew:
        return RENEWED_INVISIBLE_MS
    invisible_ms = millis_of(
        request.invisible_duration, Code.ILLEGAL_INVISIBLE_TIME, "the invisible time"
    )
    if not INVISIBLE_MS_MIN <= invisible_ms <= INVISIBLE_MS_MAX:
        raise GrpcStatusError(
            Code.ILLEGAL_INVISIBLE_TIME,
            f"invisible for {invisible_ms} ms; {INVISIBLE_MS_MIN} to {INVISIBLE_MS_MAX} are "
            "allowed",
        )
    return invisible_ms
