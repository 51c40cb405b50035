r"""Message trace: records each message's sends and deliveries in a topic of the broker.

Records are text in messages of RMQ_SYS_TRACE_TOPIC. The keys of these messages are the ids and keys
of the traced messages, so RocketMQ's tools find them (`mqadmin queryMsgTraceById`). Fields end with
\x01, a record with \x02:

    Pub             time, region, group, topic, message id, tag, keys, broker address, body size,
                    duration, kind of message, offset message id, success, client host
    SubBefore       time, region, group, request id, message id, retries, keys, client host
    SubAfter        request id, message id, duration, success, keys, result, time, group
    EndTransaction  time, region, group, topic, message id, tag, keys, broker address, kind of
                    message, transaction id, outcome, whether a check asked
    Recall          time, region, group, topic, message id, success

Times and durations are in ms. Tracing never fails or delays the traced operation: records wait in a
bounded buffer, are dropped when it is full, and are lost if they cannot be sent.
"""

import asyncio
import logging
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum

from rockhopper.client.errors import ClientError
from rockhopper.client.network.session import Session
from rockhopper.client.receipts import SendReceipt
from rockhopper.client.received import ReceivedMessage
from rockhopper.client.sending.group_sender import GroupSender
from rockhopper.client.sending.outgoing import OutgoingMessage, OutgoingPolicy
from rockhopper.client.sending.unique_id import make_unique_ids
from rockhopper.protocol.command import Command
from rockhopper.protocol.message import Message
from rockhopper.protocol.names import TRACE_TOPIC
from rockhopper.protocol.properties import (
    PROPERTY_DELAY_LEVEL,
    PROPERTY_KEYS,
    PROPERTY_MSG_REGION,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TRACE_SWITCH,
    PROPERTY_TRANSACTION_PREPARED,
    decode_properties,
)
from rockhopper.sockets import find_own_host
from rockhopper.tasks import end_tasks, keep_running

log = logging.getLogger(__name__)

TRACE_GROUP = "_INNER_TRACE_PRODUCER"
DEFAULT_REGION = "DefaultRegion"
_RECORDS_WAITING_MAX = 2048
_RECORDS_PER_MESSAGE_MAX = 20
_MESSAGE_SIZE_BYTES_MAX = 128_000
_KEYS_SIZE_MAX = 16_000
_COLLECT_S = 0.2
_CLOSE_TIMEOUT_S = 2.0
_FIELD = "\x01"
_RECORD = "\x02"
_SEPARATORS = str.maketrans({_FIELD: " ", _RECORD: " "})


class MessageKind(IntEnum):
    """RocketMQ's MessageType."""

    NORMAL = 0
    HALF = 1
    COMMITTED = 2
    DELAYED = 3
    ORDERED = 4


class ConsumeResult(IntEnum):
    """The result of consuming a message (ConsumeReturnType)."""

    SUCCESS = 0
    TIMED_OUT = 1
    EXCEPTION = 2
    RETURNED_NULL = 3
    FAILED = 4


class TraceRecord:
    """One record, and the keys for finding the message that carries it."""

    __slots__ = ("keys", "text")

    def __init__(self, kind: str, fields: Iterable[object], keys: Iterable[str]) -> None:
        self.text = _FIELD.join([kind, *(_text(field) for field in fields)]) + _RECORD
        self.keys = [key for text in keys for key in text.split() if key]


class Consumption:
    """A delivery of messages to the application, from its start until `done`."""

    def __init__(
        self, trace: "MessageTrace", group: str, messages: Sequence[ReceivedMessage]
    ) -> None:
        self._trace = trace
        self._group = group
        self._messages = [each for each in messages if is_traced(each.properties)]
        self._request_id = uuid.uuid4().hex.upper()
        self._started_ms = trace.now_ms()
        for message in self._messages:
            trace.buffer_record(
                TraceRecord(
                    "SubBefore",
                    (
                        self._started_ms,
                        message.properties.get(PROPERTY_MSG_REGION, DEFAULT_REGION),
                        group,
                        self._request_id,
                        message.message_id,
                        message.stored.reconsume_times,
                        " ".join(message.keys),
                        trace.client_host,
                    ),
                    (message.message_id, *message.keys),
                )
            )

    def done(self, result: ConsumeResult = ConsumeResult.SUCCESS) -> None:
        """Record the result."""
        if not self._messages:
            return
        now_ms = self._trace.now_ms()
        cost_ms = (now_ms - self._started_ms) // len(self._messages)
        for message in self._messages:
            self._trace.buffer_record(
                TraceRecord(
                    "SubAfter",
                    (
                        self._request_id,
                        message.message_id,
                        cost_ms,
                        result is ConsumeResult.SUCCESS,
                        " ".join(message.keys),
                        int(result),
                        now_ms,
                        self._group,
                    ),
                    (message.message_id, *message.keys),
                )
            )


class MessageTrace:
    """Collects the trace records of one client and sends them, from `start` to `close`."""

    def __init__(
        self,
        session: Session,
        *,
        topic: str = TRACE_TOPIC,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.now_ms = now_ms
        self.client_host = find_own_host()
        self.dropped_count = 0
        self._topic = topic
        self._delivery = GroupSender(session, TRACE_GROUP, timeout_s=3.0, retries=1)
        self._policy = OutgoingPolicy(make_unique_ids())
        self._waiting: deque[TraceRecord] = deque()
        self._arrived = asyncio.Event()
        self._is_closing = asyncio.Event()
        self.sender: asyncio.Task[None] | None = None
        self._has_warned = False

    def start(self) -> None:
        """Start sending."""
        self.sender = keep_running(self._send_records, "sending the trace")

    async def close(self) -> None:
        """Send the waiting records for at most 2 s; call this before the session is closed."""
        sender, self.sender = self.sender, None
        if sender is None:
            return
        self._is_closing.set()
        self._arrived.set()
        try:
            await asyncio.wait([sender], timeout=_CLOSE_TIMEOUT_S)
        finally:
            await end_tasks([sender])

    def buffer_record(self, record: TraceRecord) -> None:
        """Add a record to the buffer; never waits and never fails."""
        if len(self._waiting) >= _RECORDS_WAITING_MAX:
            self.dropped_count += 1
            return
        self._waiting.append(record)
        self._arrived.set()

    def consuming(self, group: str, messages: Sequence[ReceivedMessage]) -> Consumption:
        """Record the start of a delivery to the application; call `done` on the result."""
        return Consumption(self, group, messages)

    def sent(
        self,
        group: str,
        messages: Sequence[OutgoingMessage],
        receipts: Sequence[SendReceipt],
        answer: Command,
        address: str,
        cost_s: float,
    ) -> None:
        """Record that messages were stored."""
        ext = answer.ext or {}
        if not is_traced(ext):
            return
        region = ext.get(PROPERTY_MSG_REGION, DEFAULT_REGION)
        cost_ms = round(cost_s * 1000)
        started_ms = self.now_ms() - cost_ms
        for message, receipt in zip(messages, receipts, strict=True):
            properties = decode_properties(message.properties)
            keys = properties.get(PROPERTY_KEYS, "")
            self.buffer_record(
                TraceRecord(
                    "Pub",
                    (
                        started_ms,
                        region,
                        group,
                        message.topic,
                        message.message_id,
                        properties.get(PROPERTY_TAGS, ""),
                        keys,
                        address,
                        len(message.body),
                        cost_ms,
                        int(_kind(properties)),
                        receipt.offset_message_id,
                        True,
                        self.client_host,
                    ),
                    (message.message_id, keys),
                )
            )

    def ended_transaction(
        self,
        group: str,
        message: Message | ReceivedMessage,
        message_id: str,
        transaction_id: str,
        outcome: str,
        address: str,
        *,
        from_check: bool,
    ) -> None:
        """Record the outcome of a transaction: COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW."""
        keys = " ".join(message.keys)
        self.buffer_record(
            TraceRecord(
                "EndTransaction",
                (
                    self.now_ms(),
                    DEFAULT_REGION,
                    group,
                    message.topic,
                    message_id,
                    message.tags or "",
                    keys,
                    address,
                    int(MessageKind.COMMITTED),
                    transaction_id,
                    outcome,
                    from_check,
                ),
                (message_id, keys),
            )
        )

    def recalled(self, group: str, topic: str, message_id: str) -> None:
        """Record that a message was recalled."""
        fields = (self.now_ms(), DEFAULT_REGION, group, topic, message_id, True)
        self.buffer_record(TraceRecord("Recall", fields, (message_id,)))

    async def _send_records(self) -> None:
        while self._waiting or not self._is_closing.is_set():
            await self._arrived.wait()
            await self._collect()
            self._arrived.clear()
            while self._waiting:
                await self._send(self._next_batch())

    async def _collect(self) -> None:
        """Wait for more records, so that fewer messages carry them."""
        if len(self._waiting) >= _RECORDS_PER_MESSAGE_MAX:
            return
        try:
            async with asyncio.timeout(_COLLECT_S):
                await self._is_closing.wait()
        except TimeoutError:
            pass

    def _next_batch(self) -> list[TraceRecord]:
        batch: list[TraceRecord] = []
        size_bytes = keys_size = 0
        while self._waiting and len(batch) < _RECORDS_PER_MESSAGE_MAX:
            record = self._waiting[0]
            size_bytes += len(record.text.encode())
            keys_size += sum(len(key.encode()) + 1 for key in record.keys)
            if batch and (size_bytes > _MESSAGE_SIZE_BYTES_MAX or keys_size > _KEYS_SIZE_MAX):
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _send(self, batch: list[TraceRecord]) -> None:
        keys = dict.fromkeys(key for record in batch for key in record.keys)
        body = "".join(record.text for record in batch).encode()
        try:
            outgoing = self._policy.prepare(Message(self._topic, body, keys=keys))
            await self._delivery.send(outgoing, [outgoing])
        except (ClientError, ValueError) as error:
            self.dropped_count += len(batch)
            level = logging.DEBUG if self._has_warned else logging.WARNING
            self._has_warned = True
            log.log(level, "the trace of %d events is lost: %s", len(batch), error)


def is_traced(properties: Mapping[str, str]) -> bool:
    """Whether the broker wants traces, according to the properties of its message or answer."""
    return properties.get(PROPERTY_TRACE_SWITCH) != "false"


def _kind(properties: dict[str, str]) -> MessageKind:
    if PROPERTY_TRANSACTION_PREPARED in properties:
        return MessageKind.HALF
    delays = (PROPERTY_DELAY_LEVEL, PROPERTY_TIMER_DELAY_MS, PROPERTY_TIMER_DELIVER_MS)
    if any(name in properties for name in delays):
        return MessageKind.DELAYED
    if PROPERTY_SHARDING_KEY in properties:
        return MessageKind.ORDERED
    return MessageKind.NORMAL


def _text(field: object) -> str:
    if isinstance(field, bool):
        return "true" if field else "false"
    return str(field).translate(_SEPARATORS)
