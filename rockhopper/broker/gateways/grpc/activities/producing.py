"""SendMessage and RecallMessage.

All messages from one socket read are written together, before anything else is served.

Compiled code (``_plain_calls.c``) reads requests with one plain message, to the properties as they
are stored. ``send`` serves every other request, and all without a compiler; it is the oracle.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from rockhopper.broker.feature import RpcRow
from rockhopper.broker.gateways.grpc import permissions
from rockhopper.broker.gateways.grpc.call import Call, reply_when_safe
from rockhopper.broker.gateways.grpc.converting import SendLimits, build_properties, send_of
from rockhopper.broker.gateways.grpc.resources import (
    NAMES_REMEMBERED_MAX,
    full_name,
    sendable_topic_of,
)
from rockhopper.broker.gateways.grpc.sending_rules import check_type, get_accepted_types, type_of
from rockhopper.broker.gateways.grpc.statuses import (
    OK,
    GrpcStatusError,
    build_unconfirmed_status,
    status,
    status_of,
)
from rockhopper.broker.kernel.scheduled.timers.recall import TimerRecall
from rockhopper.broker.kernel.send.send_request import PlainSend, Send
from rockhopper.broker.kernel.send.sender import Placed, Sender
from rockhopper.broker.kernel.tables.topic_attributes import ATTRIBUTE_MESSAGE_TYPE
from rockhopper.broker.kernel.tables.topics import TopicConfig, TopicTable
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.users.errors import TopicNotFound
from rockhopper.protocol.compiled import import_compiled
from rockhopper.protocol.grpc_v2.codes import Code
from rockhopper.protocol.grpc_v2.messages import METHODS, MessageType
from rockhopper.protocol.java_hash import java_string_hash
from rockhopper.protocol.names import is_system_topic
from rockhopper.protocol.properties import PROPERTY_SHARDING_KEY, SYSTEM_PROPERTIES

DELAY_MS_MAX = 86_400_000
"""The limit of RocketMQ's proxy, whatever its brokers allow."""
_SendReply = METHODS["SendMessage"].reply
_RecallReply = METHODS["RecallMessage"].reply
_STORED: bytes = _SendReply(status=OK, entries=[{"status": OK}]).SerializeToString()
"""The reply to one stored message, without its id and offset; protobuf parses faster than it
builds."""
_OK_CODE = int(Code.OK)
_OK: bytes = OK.SerializeToString()
_plain_calls = import_compiled("rockhopper.broker.gateways.grpc._plain_calls")
read_send: Callable[..., tuple[Any, ...] | None] | None = getattr(_plain_calls, "read_send", None)
"""Return the fields of PlainSend, of an encoded request; None if ``Producing.send`` must serve it.
Arguments: the request, the host of its client, the size of a body, and names of properties that no
user may choose."""
encode_sent: Callable[[bytes, str, int], bytes] | None = getattr(_plain_calls, "encode_sent", None)
"""Encode the reply to one stored message, as a frame: of its status, id and queue offset."""
_MULTIPLIER = 2_862_933_555_777_941_757
_MASK = (1 << 64) - 1


class Producing:
    """Serves producers."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        sender: Sender,
        timer_recall: TimerRecall,
        now_ms: Callable[[], int],
    ) -> None:
        self._owed: list[_Owed] = []
        self._owed_plain: list[_OwedPlain] = []
        self._plain_topics: dict[str, TopicConfig] = {}
        """Topics that accept plain messages, as long as their settings stay the same."""
        self._live_store = config.store.live
        self._delay_ms_max = min(config.timer_max_delay_s * 1000, DELAY_MS_MAX)
        self._store = store
        self._topics = topics
        self._sender = sender
        self._timer_recall = timer_recall
        self._now_ms = now_ms

    def rpcs(self) -> dict[str, RpcRow]:
        """Return the row of each RPC."""
        return {
            "SendMessage": RpcRow(
                self.send, permissions.of_sending, promises_state=False, is_gathered=True
            ),
            "RecallMessage": RpcRow(self.recall, permissions.of_producing),
        }

    def send(self, call: Call, request: Any) -> Any:
        """SendMessage: stage the messages.

        ``settle`` stores them, and replies once they are safe.
        """
        _ = call.client_id
        messages = request.messages
        if not messages:
            raise GrpcStatusError(Code.MESSAGE_CORRUPTED, "the request contains no message")
        topic = sendable_topic_of(messages[0].topic)
        live = self._live_store
        limits = SendLimits(live.message_size_max_bytes, self._delay_ms_max, self._now_ms())
        if len(messages) == 1:
            reply = _SendReply.FromString(_STORED)
            staged = self._stage(*self._check(call, messages[0], topic, limits), reply.entries[0])
            placed = [] if staged is None else [staged]
        else:
            reply = _SendReply(status=OK)
            if any(full_name(each.topic) != topic for each in messages):
                raise GrpcStatusError(
                    Code.MESSAGE_CORRUPTED, "the messages are for different topics"
                )
            sends = [self._check(call, message, topic, limits) for message in messages]
            tried = [
                self._stage(send, message_id, reply.entries.add(status=OK))
                for send, message_id in sends
            ]
            placed = [each for each in tried if each is not None]
        if not placed:
            _sum_up(reply)
            return reply
        self._owed.append(_Owed(call, reply, placed))
        return None

    def read_plain(self, call: Call, message: bytes) -> PlainSend | None:
        """Return the plain message of an encoded request; None if ``send`` must serve it."""
        if read_send is None:
            return None
        fields = read_send(
            message,
            call.connection.addresses.peer_host,
            self._live_store.message_size_max_bytes,
            SYSTEM_PROPERTIES,
        )
        if fields is None or self._find_plain_topic(fields[0]) is None:
            return None
        return PlainSend(*fields)

    def send_plain(self, call: Call, send: PlainSend) -> bool:
        """Stage a plain message as ``send`` does; return False if that must serve it.

        Raises:
            GrpcStatusError: the client does not state its id.
        """
        topic = self._find_plain_topic(send.topic)
        if topic is None:
            return False
        _ = call.client_id
        placed = self._sender.stage_plain(send, topic, call.connection.addresses.born_host)
        if placed is None:
            return False
        self._owed_plain.append(_OwedPlain(call, send.message_id, placed))
        return True

    def _find_plain_topic(self, name: str) -> TopicConfig | None:
        """Return a topic that accepts plain messages; None if ``send`` must decide."""
        topic = self._topics.get(name)
        if topic is None or self._plain_topics.get(name) is topic:
            return topic
        declared = topic.attributes.get(ATTRIBUTE_MESSAGE_TYPE)
        if (
            MessageType.NORMAL not in get_accepted_types(declared)
            or is_system_topic(name)
            or not self._sender.accepts_plain(topic)
        ):
            return None
        if len(self._plain_topics) >= NAMES_REMEMBERED_MAX:
            self._plain_topics.clear()
        self._plain_topics[name] = topic
        return topic

    def settle(self) -> None:
        """Store the staged messages, and reply to their senders once they are safe."""
        if not (self._owed or self._owed_plain):
            return
        owed, self._owed = self._owed, []
        plain, self._owed_plain = self._owed_plain, []
        safe_point = self._store.safe_point
        placed = [staged.placed for each in owed for staged in each.staged]
        placed += [each.placed for each in plain]
        end_offset, error = self._sender.commit(placed)
        if error is not None:
            owed, plain = [*owed, *map(_build_owed, plain)], []
            _refuse(owed, end_offset, error)
        if end_offset <= safe_point.high_watermark:
            _answer_all(owed, plain, None)
        else:
            safe_point.when(end_offset, partial(_answer_all, owed, plain))

    def _check(self, call: Call, message: Any, topic: str, limits: SendLimits) -> tuple[Send, str]:
        properties = build_properties(message, topic, call.connection.addresses.peer_host, limits)
        config = self._topics.get(topic)
        declared = config.attributes.get(ATTRIBUTE_MESSAGE_TYPE) if config is not None else None
        if config is not None:
            check_type(topic, declared, type_of(properties))
        queue_id = -1
        group = properties.get(PROPERTY_SHARDING_KEY)
        if group is not None and config is not None and config.write_queue_nums > 0:
            queue_id = consistent_hash(java_string_hash(group), config.write_queue_nums)
        send = send_of(message, topic, queue_id, properties, call.connection.addresses.born_host)
        return send, message.system_properties.message_id

    def _stage(self, send: Send, message_id: str, entry: Any) -> "_StagedMessage | None":
        """Stage one message; return None if it is refused, with the reason in its *entry*."""
        try:
            placed = self._sender.stage(send)
        except Exception as error:
            entry.status.CopyFrom(status_of(error))
            return None
        entry.message_id = message_id
        entry.offset = placed.queue_offset
        if placed.diversion is not None:
            placed.diversion.add_to_grpc_entry(entry, message_id)
        if placed.recall_handle:
            entry.recall_handle = placed.recall_handle
        return _StagedMessage(entry, placed)

    def recall(self, call: Call, request: Any) -> Any:
        """RecallMessage."""
        _ = call.client_id
        topic = sendable_topic_of(request.topic)
        config = self._topics.get(topic)
        if config is None:
            raise TopicNotFound(f"recall failed, the topic[{topic}] not exist")
        recalled = self._timer_recall.recall(
            topic, request.recall_handle, call.connection.addresses.born_host
        )
        reply = _RecallReply(status=OK, message_id=recalled.unique_key)
        return reply_when_safe(self._store, call, reply, recalled.end_offset)


class _StagedMessage(NamedTuple):
    """A staged message, and its entry in the reply."""

    entry: Any
    placed: Placed


class _OwedPlain(NamedTuple):
    """A call with one plain message, which receives its reply once that is stored."""

    call: Call
    message_id: str
    placed: Placed


class _Owed(NamedTuple):
    """A call that receives its reply once its messages are stored."""

    call: Call
    reply: Any
    staged: list[_StagedMessage]


def _build_owed(plain: _OwedPlain) -> _Owed:
    reply = _SendReply.FromString(_STORED)
    entry = reply.entries[0]
    entry.message_id, entry.offset = plain.message_id, plain.placed.queue_offset
    return _Owed(plain.call, reply, [_StagedMessage(entry, plain.placed)])


def _refuse(owed: "list[_Owed]", end_offset: int, error: StoreError) -> None:
    """Mark the entries from *end_offset* on as not stored."""
    told = status_of(error)
    for each in owed:
        for staged in each.staged:
            if staged.placed.log_offset >= end_offset:
                staged.entry.Clear()
                staged.entry.status.CopyFrom(told)


def _answer_all(owed: list[_Owed], plain: list[_OwedPlain], error: StoreError | None) -> None:
    if error is not None:
        owed, plain = [*owed, *map(_build_owed, plain)], []
    _answer(owed, error)
    for call, message_id, placed in plain:
        assert encode_sent is not None
        call.reply_stored(encode_sent(_OK, message_id, placed.queue_offset))


def _answer(owed: list[_Owed], error: StoreError | None) -> None:
    """Reply to calls whose messages are in the log, and replicated unless there is an *error*."""
    told = None if error is None else build_unconfirmed_status(error)
    for call, reply, _ in owed:
        if told is not None:
            for entry in reply.entries:
                if entry.status.code == _OK_CODE:
                    entry.status.CopyFrom(told)
        _sum_up(reply)
        call.reply(reply)


def _sum_up(reply: Any) -> None:
    """Set the status of a reply: the common one of all entries, or that they differ."""
    entries = reply.entries
    if len(entries) == 1:
        if entries[0].status.code != _OK_CODE:
            reply.status.CopyFrom(entries[0].status)
    elif len({entry.status.code for entry in entries}) == 1:
        reply.status.CopyFrom(entries[0].status)
    else:
        reply.status.CopyFrom(status(Code.MULTIPLE_RESULTS, "see the entries"))


def consistent_hash(value: int, buckets: int) -> int:
    """Return the bucket of *value*, a Java int or long, among *buckets*.

    RocketMQ's proxy chooses the queue of a message group by it. This is Guava's
    Hashing.consistentHash: if a queue is added, each group either stays or moves to the new one.
    Its random numbers come from a linear congruential generator.
    """
    state, candidate = value & _MASK, 0
    while True:
        state = (_MULTIPLIER * state + 1) & _MASK
        # A Java int: the highest 31 bits, with a sign that is never set.
        following = int((candidate + 1) / (((state >> 33) + 1) / 2.0**31))
        if not 0 <= following < buckets:
            return candidate
        candidate = following
