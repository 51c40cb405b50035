"""Producer: sends messages, and request messages that are replied to."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Self, TypedDict, Unpack

from rockhopper.client.arguments import (
    check_count,
    check_message,
    check_seconds,
    check_send_options,
)
from rockhopper.client.errors import MalformedAnswerError, MessageRejectedError, RouteNotFoundError
from rockhopper.client.middleware.hooks import Hooks, Middleware, Sending, SendOperation
from rockhopper.client.network.closing import ClosedAtEnd
from rockhopper.client.network.connection import BrokerConnection
from rockhopper.client.network.credentials import CredentialsChoice
from rockhopper.client.network.session import Session
from rockhopper.client.network.sharing import SharedConnections
from rockhopper.client.network.tls import Tls
from rockhopper.client.queues import MessageQueue
from rockhopper.client.receipts import SENT_CODES, SendReceipt
from rockhopper.client.received import ReceivedMessage
from rockhopper.client.sending.group_sender import GroupSender
from rockhopper.client.sending.key_lanes import find_lane
from rockhopper.client.sending.lingering import Linger, Lingering, must_go_ahead
from rockhopper.client.sending.many_sends import ManySends
from rockhopper.client.sending.outgoing import APART_SIZE_BYTES, OutgoingMessage, OutgoingPolicy
from rockhopper.client.sending.pending_sends import PendingSends
from rockhopper.client.sending.recall import read_broker_of_handle, read_topic_and_handle
from rockhopper.client.sending.request_reply import PendingRequests, find_reply_address
from rockhopper.client.sending.send_headers import send_fields
from rockhopper.client.sending.trace import MessageTrace
from rockhopper.client.sending.unique_id import make_unique_ids
from rockhopper.client.serializers import Serializer, check_serializer, encode_value
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.message import Message
from rockhopper.protocol.names import TRACE_TOPIC, group_error, surrogate_error
from rockhopper.protocol.requests import RecallMessageRequest, encode_fields

DEFAULT_GROUP = "DEFAULT_PRODUCER"


class MessageFields(TypedDict, total=False):
    """The fields of a Message besides its topic and body; see Message."""

    tags: str | None
    keys: str | Iterable[str]
    properties: Mapping[str, str] | None
    flag: int
    delay_level: int | None
    delay_s: float | None
    deliver_at_ms: int | None
    deliver_at: datetime | None
    sharding_key: str | None
    priority: int | None
    wait_stored: bool


class Producer(ClosedAtEnd):
    """Sends messages. Any number of sends may run concurrently.

    Use it with `async with`. A failed send is retried within its timeout, so in rare cases a
    message is stored twice, with the same message id. It is retried `retries` times on another
    broker of the topic. If a broker cannot be reached or accepts no messages, it is retried without
    a limit until one of the broker's replicas accepts it. With `retries=0` a message that may have
    been stored is never sent again. A cancelled send may or may not have been stored.

    Messages with the same `sharding_key` are stored in one queue, in the order of the calls. Each
    waits for the previous one; if that fails, the waiting messages raise EarlierSendFailedError.
    """

    def __init__(
        self,
        nameserver: str | None = None,
        *,
        group: str = DEFAULT_GROUP,
        timeout_s: float = 3.0,
        retries: int = 2,
        compress_above_bytes: int | None = 4096,
        message_size_bytes_max: int = 4 * 1024 * 1024,
        trace: bool | str = False,
        linger: Linger | None = None,
        serializer: Serializer | None = None,
        deserializer: Serializer | None = None,
        middleware: Iterable[Middleware] = (),
        tls: Tls = None,
        credentials: CredentialsChoice = None,
        connections: SharedConnections | None = None,
    ) -> None:
        """`nameserver` is "host:port;host:port"; by default NAMESRV_ADDR, else 127.0.0.1:9876.

        `timeout_s` is the maximum duration of a send in seconds, including retries.
        `compress_above_bytes=None` disables compression. `message_size_bytes_max` should equal the
        brokers' maxMessageSize. `trace` records every send in the trace topic, or in the topic it
        names. With `linger` concurrent sends share batches. `serializer` encodes the body when you
        send a topic and a value; bytes are sent unchanged. `deserializer` decodes the `value` of
        replies. `middleware` is called around every send. `tls` is True or TlsOptions;
        `credentials` are Credentials or the path of a credentials file; by default the environment
        decides. Raises ValueError, TypeError, ClientStateError.
        """
        reason = group_error(group)
        if reason is not None:
            raise ValueError(reason)
        check_seconds("timeout_s", timeout_s, may_be_zero=True)
        check_count("retries", retries, 0)
        check_serializer("serializer", serializer, "encode")
        check_serializer("deserializer", deserializer, "decode")
        self._group = group
        self._serializer = serializer
        self._deserializer = deserializer
        self._hooks = Hooks(middleware)
        self._timeout_s = timeout_s
        self._policy = OutgoingPolicy(
            make_unique_ids(),
            compress_above_bytes=compress_above_bytes,
            message_size_bytes_max=message_size_bytes_max,
        )
        self.session = Session(
            nameserver,
            request_timeout_s=timeout_s,
            handle_request=self._take_request,
            tls=tls,
            credentials=credentials,
            connections=connections,
        )
        """The connections, and the cached routes."""
        self.session.producer_groups.add(group)
        self.sender = GroupSender(self.session, group, timeout_s=timeout_s, retries=retries)
        self._lingering = (
            None if linger is None else Lingering(linger, self._policy, self.sender, timeout_s)
        )
        self._pending = PendingSends()
        self.requests = PendingRequests(self.session)
        self.trace: MessageTrace | None = None
        if trace:
            trace_topic = trace if isinstance(trace, str) else TRACE_TOPIC
            self.trace = MessageTrace(self.session, topic=trace_topic)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def start(self) -> Self:
        """Open the producer; it connects when it first needs a connection."""
        await self.session.start()
        if self.trace is not None:
            self.trace.start()
            self.sender.on_sent = self._trace_sent
        return self

    async def close(self) -> None:
        """Send everything that is pending, then close.

        Lingering messages are sent at once. `close` waits for the outcome of every send.
        """
        self.session.check_loop()
        lingering, self._lingering = self._lingering, None
        try:
            if not self.session.is_inherited:
                if lingering is not None:
                    await lingering.close()
                await self._pending.wait_until_none()
            if self.trace is not None and not self.session.is_inherited:
                await self.trace.close()
        finally:
            await self.session.close()

    async def send(
        self,
        message: Message | str,
        body: object = b"",
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        queue: MessageQueue | int | None = None,
        timeout_s: float | None = None,
    ) -> SendReceipt:
        """Send one message, given as a Message or as a topic and its parts; return the receipt.

        The message goes to `queue`, else to the queue of its sharding key, else to the queues in
        turn. `keys` is one key, several keys separated by blanks, or a sequence of keys. Raises
        MessageRejectedError, RouteNotFoundError, RequestRefusedError, BrokerUnreachableError,
        RequestTimeoutError.
        """
        lingering = self._lingering
        if queue is not None or timeout_s is not None:
            check_send_options(queue, timeout_s)
        if (
            type(message) is str
            and type(body) is bytes
            and keys == ()
            and tags is None
            and properties is None
            and not self._hooks.send
        ):
            with self._pending:
                is_odd = len(body) > APART_SIZE_BYTES or queue is not None
                if is_odd and self._policy.must_wait(body, queue):
                    prepared = await self._policy.prepare_plain_apart(message, body, queue)
                    lingering = self._lingering
                else:
                    prepared = self._policy.prepare_plain(message, body)
                if lingering is not None:
                    return await lingering.send(prepared, queue, timeout_s)
                return (await self.sender.send(prepared, [prepared], queue, timeout_s))[0]
        whole = _as_message(message, encode_value(self._serializer, body), tags, keys, properties)
        deliver = partial(self._send_whole, queue, timeout_s)  # a closure would cost every call
        return (await self._through_hooks("send", [whole], deliver))[0]

    async def _send_whole(
        self,
        queue: MessageQueue | int | None,
        timeout_s: float | None,
        messages: list[Message],
    ) -> Sequence[SendReceipt]:
        (whole,) = messages
        if self._lingering is None or must_go_ahead(whole):
            return await self._send_alone(whole, queue, timeout_s)
        prepared = await self._policy.prepare_apart(whole, queue)
        if (lingering := self._lingering) is None:  # closing
            return await self.sender.send(prepared, [prepared], queue, timeout_s)
        return [await lingering.send(prepared, queue, timeout_s)]

    async def _send_alone(
        self,
        message: Message,
        queue: MessageQueue | int | None,
        timeout_s: float | None,
        system: Mapping[str, str] | None = None,
        sys_flag: int = 0,
    ) -> list[SendReceipt]:
        """Prepare a message and send it, after the earlier ones of its sharding key."""

        async def prepare() -> tuple[OutgoingMessage, list[OutgoingMessage]]:
            prepared = await self._policy.prepare_apart(
                message, queue, system=system, sys_flag=sys_flag
            )
            return prepared, [prepared]

        return await self.sender.send_in_turn(find_lane(message), prepare, queue, timeout_s)

    def message(self, topic: str, value: object, **fields: Unpack[MessageFields]) -> Message:
        """Return a Message with the serialized *value* as its body and the given fields.

        Use it for options that `send(topic, value)` does not have: delays, order, batches,
        requests, transactions. Raises as Message does, and MessageRejectedError if the value is
        invalid.
        """
        return Message(topic, _as_bytes(encode_value(self._serializer, value)), **fields)

    async def send_batch(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | int | None = None,
        timeout_s: float | None = None,
    ) -> list[SendReceipt]:
        """Send several messages of one topic to one queue in one request; all are stored or none.

        Only a power cut before the answer (with ASYNC_FLUSH: up to half a second after it) may
        store some of them only.

        Returns a receipt for each message, in order. A batch cannot contain delayed messages, and
        is not compressed. Raises as `send` does.
        """
        check_send_options(queue, timeout_s)
        batch = _list_messages(messages)
        if not batch:
            return []

        async def deliver(messages: list[Message]) -> Sequence[SendReceipt]:
            async def prepare() -> tuple[OutgoingMessage, Sequence[OutgoingMessage]]:
                return self._policy.prepare_batch(messages)

            lane = find_lane(messages[0])
            return await self.sender.send_in_turn(lane, prepare, queue, timeout_s)

        return list(await self._through_hooks("send_batch", batch, deliver))

    async def send_many(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | int | None = None,
        timeout_s: float | None = None,
    ) -> list[SendReceipt]:
        """Send messages as `send` would, each with its own receipt, but far more per second.

        They leave in batches, several at a time, and may have several topics. Those with the same
        topic and sharding key are stored in order. `timeout_s` is for each batch. Returns a receipt
        for each message, in order.

        Raises NotAllSentError if some messages failed, after the outcome of each is known, and
        TypeError, ValueError, ClientStateError before any is sent. If the call is cancelled, each
        message may or may not have been stored.
        """
        check_send_options(queue, timeout_s)
        batch = _list_messages(messages)
        if not batch:
            return []

        async def deliver(messages: list[Message]) -> Sequence[SendReceipt]:
            return await ManySends(self._policy, self.sender, queue, timeout_s).send(messages)

        return list(await self._through_hooks("send_many", batch, deliver))

    async def send_oneway(
        self,
        message: Message | str,
        body: object = b"",
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        queue: MessageQueue | int | None = None,
    ) -> None:
        """Send one message without an answer from the broker: it may not have been stored."""
        check_send_options(queue, None)

        async def deliver(messages: list[Message]) -> Sequence[SendReceipt]:
            (whole,) = messages

            async def prepare() -> tuple[OutgoingMessage, list[OutgoingMessage]]:
                prepared = await self._policy.prepare_apart(whole, queue)
                return prepared, [prepared]

            await self.sender.send_oneway(find_lane(whole), prepare, queue)
            return ()

        whole = _as_message(message, encode_value(self._serializer, body), tags, keys, properties)
        await self._through_hooks("send_oneway", [whole], deliver)

    async def _through_hooks(
        self,
        operation: SendOperation,
        messages: list[Message],
        deliver: Callable[[list[Message]], Awaitable[Sequence[SendReceipt]]],
    ) -> Sequence[SendReceipt]:
        with self._pending:
            if not self._hooks.send:
                return await deliver(messages)
            sending = Sending(messages, operation, self._group, self.session.client_id)
            return await self._hooks.sent(sending, lambda sending: deliver(sending.messages))

    async def request(
        self,
        message: Message,
        *,
        timeout_s: float | None = None,
        queue: MessageQueue | int | None = None,
    ) -> ReceivedMessage:
        """Send a message, wait for a consumer's reply, and return the reply.

        `timeout_s` covers the send and the reply. Raises ReplyTimeoutError if no reply arrives in
        time, else as `send` does. Cancelling only stops waiting.
        """
        check_message(message)
        check_send_options(queue, None)
        self.session.check_open()
        allowed_s = self._timeout_s if timeout_s is None else timeout_s
        check_seconds("timeout_s", allowed_s, may_be_zero=True, is_finite=True)
        deadline_s = asyncio.get_running_loop().time() + allowed_s
        correlation_id, properties = self.requests.register(allowed_s)
        try:
            route = await self.sender.route(message.topic)
            try:
                async with asyncio.timeout_at(deadline_s):
                    await self.requests.introduce(route)
            except TimeoutError:
                pass  # the send reports the broker that does not answer

            async def deliver(messages: list[Message]) -> Sequence[SendReceipt]:
                (whole,) = messages
                left_s = max(deadline_s - asyncio.get_running_loop().time(), 0.001)
                return await self._send_alone(whole, queue, left_s, properties)

            await self._through_hooks("request", [message], deliver)
            reply = await self.requests.reply(correlation_id, route, deadline_s)
            reply.deserializer = self._deserializer
            return reply
        finally:
            self.requests.forget(correlation_id)

    async def reply(
        self,
        request: ReceivedMessage,
        body: object = b"",
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Reply to a consumed request message.

        Raises MessageRejectedError if the message is not a request, RequestRefusedError if the
        requester has disconnected, else as `send` does.
        """
        check_send_options(None, timeout_s)
        topic, addressing = find_reply_address(request)

        async def deliver(messages: list[Message]) -> Sequence[SendReceipt]:
            (whole,) = messages
            prepared = await self._policy.prepare_apart(whole, system=addressing)
            queue = MessageQueue(topic, request.broker_name, 0)
            await self.session.request(
                await self._broker_address(request.broker_name, request.queue.topic, topic),
                RequestCode.SEND_REPLY_MESSAGE_V2,
                send_fields(self._group, prepared, queue),
                prepared.body,
                timeout_s=self._timeout_s if timeout_s is None else timeout_s,
                accept=SENT_CODES,
            )
            return ()

        message = _as_message(topic, encode_value(self._serializer, body), tags, keys, properties)
        await self._through_hooks("reply", [message], deliver)

    async def recall(self, recalled: SendReceipt | tuple[str, str]) -> str:
        """Cancel the delivery of a message with a delay or a delivery time; return its message id.

        `recalled` is the receipt, or the topic and the recall handle. Raises MessageRejectedError
        if there is no handle, RequestRefusedError if the message was already delivered or the
        broker does not allow recalls (recallMessageEnable).
        """
        topic, handle = read_topic_and_handle(recalled)
        address = await self._broker_address(read_broker_of_handle(handle), topic)
        fields = RecallMessageRequest(producer_group=self._group, topic=topic, recall_handle=handle)
        answer = await self.session.request(
            address, RequestCode.RECALL_MESSAGE, encode_fields(fields)
        )
        message_id = (answer.ext or {}).get("msgId")
        if message_id is None:
            raise MalformedAnswerError(
                f"{address} recalled a message of {topic!r} but does not say which",
                address=address,
            )
        if self.trace is not None:
            self.trace.recalled(self._group, topic, message_id)
        return message_id

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return a topic's writable queues, in the order used for sharding keys."""
        return list((await self.sender.route(topic)).write_queues)

    async def _broker_address(self, broker_name: str, *topics: str) -> str:
        """Return the address of a broker's master, from the first topic's route that has it."""
        self.session.check_open()
        for topic in topics:
            try:
                route = await self.session.routes.route(topic)
            except RouteNotFoundError:
                continue
            address = route.master(broker_name)
            if address is not None:
                return address
        raise RouteNotFoundError(
            f"no route of {' or '.join(topics)} names a master of broker {broker_name!r}",
            address=str(self.session.name_services),
            remedy="check that this broker runs and is registered at the name server",
        )

    def _take_request(self, connection: BrokerConnection, command: Command) -> Command | None:
        """Handle a broker's request to a producer."""
        if command.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
            return self.requests.take_reply(command)
        return None

    def _trace_sent(
        self,
        messages: Sequence[OutgoingMessage],
        receipts: Sequence[SendReceipt],
        answer: Command,
        address: str,
        started_s: float,
    ) -> None:
        assert self.trace is not None
        cost_s = asyncio.get_running_loop().time() - started_s
        self.trace.sent(self._group, messages, receipts, answer, address, cost_s)


def _list_messages(messages: Iterable[Message]) -> list[Message]:
    if isinstance(messages, Message) or not isinstance(messages, Iterable):
        raise TypeError(
            f"messages is {messages!r}: it must be a list of Messages; send takes a single one"
        )
    batch = list(messages)
    for each in batch:
        if not isinstance(each, Message):
            raise TypeError(
                f"a batch consists of Messages, not {type(each).__name__}: Message(topic, body) "
                "creates one"
            )
    return batch


def _as_message(
    message: Message | str,
    body: bytes | str,
    tags: str | None,
    keys: str | Iterable[str],
    properties: Mapping[str, str] | None,
) -> Message:
    if isinstance(message, Message):
        if body or tags or properties or keys:
            raise MessageRejectedError(
                "a Message has its own body, tags, keys and properties: pass those to Message(...)"
            )
        return message
    if not isinstance(message, str):
        raise TypeError(
            f"pass a Message or the name of a topic, not {type(message).__name__}; send_batch "
            "accepts several messages"
        )
    return Message(message, _as_bytes(body), tags=tags, keys=keys, properties=properties)


def _as_bytes(body: bytes | str) -> bytes:
    if not isinstance(body, str):
        return body
    try:
        return body.encode()
    except UnicodeEncodeError:
        raise MessageRejectedError(f"the body {surrogate_error(body)}") from None
