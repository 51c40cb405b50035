"""SendMessage and RecallMessage.

All messages from one socket read are written together, before anything else is served.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from rockhopper.broker.feature import RpcRow
from rockhopper.broker.gateways.grpc import permissions
from rockhopper.broker.gateways.grpc.activities.consistent_hash import consistent_hash
from rockhopper.broker.gateways.grpc.call import Call, reply_when_safe
from rockhopper.broker.gateways.grpc.converting import SendLimits, build_properties, send_of
from rockhopper.broker.gateways.grpc.resources import full_name, sendable_topic_of
from rockhopper.broker.gateways.grpc.sending_rules import check_type, type_of
from rockhopper.broker.gateways.grpc.statuses import (
    OK,
    GrpcStatusError,
    build_unconfirmed_status,
    status,
    status_of,
)
from rockhopper.broker.kernel.scheduled.timers.recall import TimerRecall
from rockhopper.broker.kernel.send.send_request import Send
from rockhopper.broker.kernel.send.sender import Diversion, Sender
from rockhopper.broker.kernel.tables.topic_attributes import ATTRIBUTE_MESSAGE_TYPE
from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.users.errors import TopicNotFound
from rockhopper.protocol.grpc_v2.codes import Code
from rockhopper.protocol.grpc_v2.messages import (
    METHODS,
)
from rockhopper.protocol.java_hash import java_string_hash
from rockhopper.protocol.properties import PROPERTY_SHARDING_KEY

DELAY_MS_MAX = 86_400_000
"""The limit of RocketMQ's proxy, whatever its brokers allow."""
_SendReply = METHODS["SendMessage"].reply
_RecallReply = METHODS["RecallMessage"].reply


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
        stats: BrokerStats,
    ) -> None:
        """*stats* counts staged messages that could not be written."""
        self._stats = stats
        self._owed: list[_Owed] = []
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
            "SendMessage": RpcRow(self.send, permissions.of_sending, promises_state=False),
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
        reply = _SendReply(status=OK)
        if len(messages) == 1:
            staged = self._stage(*self._check(call, messages[0], topic, limits), reply)
            placed = [] if staged is None else [staged]
        else:
            if any(full_name(each.topic) != topic for each in messages):
                raise GrpcStatusError(
                    Code.MESSAGE_CORRUPTED, "the messages are for different topics"
                )
            sends = [self._check(call, message, topic, limits) for message in messages]
            tried = [self._stage(send, message_id, reply) for send, message_id in sends]
            placed = [each for each in tried if each is not None]
        if not placed:
            _sum_up(reply)
            return reply
        self._owed.append(_Owed(call, reply, placed))
        return None

    def settle(self) -> None:
        """Store the staged messages, and reply to their senders once they are safe."""
        if not self._owed:
            return
        owed, self._owed = self._owed, []
        store = self._store
        try:
            end_offset = store.commit()
        except StoreError as error:
            end_offset = store.log.written_offset
            self._refuse(owed, end_offset, error)
        for each in owed:
            for staged in each.staged:
                if staged.diversion is not None and staged.log_offset < end_offset:
                    staged.diversion.stored()
        if end_offset <= store.safe_point.high_watermark:
            _answer(owed)
        else:
            store.safe_point.when(end_offset, lambda error: _answer(owed, error))

    def _refuse(self, owed: "list[_Owed]", end_offset: int, error: StoreError) -> None:
        """Mark the entries behind *end_offset* as not stored."""
        told = status_of(error)
        lost = [
            staged for each in owed for staged in each.staged if staged.log_offset >= end_offset
        ]
        for staged in lost:
            staged.entry.Clear()
            staged.entry.status.CopyFrom(told)
        self._stats.puts_refused(len(lost))

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

    def _stage(self, send: Send, message_id: str, reply: Any) -> "_StagedMessage | None":
        """Stage one message; return None if it is refused, with the reason in its entry."""
        entry, log_offset = reply.entries.add(), self._store.log.staged_offset
        try:
            placed = self._sender.stage(send)
        except Exception as error:
            entry.status.CopyFrom(status_of(error))
            return None
        entry.status.CopyFrom(OK)
        entry.message_id = message_id
        entry.offset = placed.queue_offset
        if placed.diversion is not None:
            placed.diversion.add_to_grpc_entry(entry, message_id)
        if placed.recall_handle:
            entry.recall_handle = placed.recall_handle
        return _StagedMessage(entry, log_offset, placed.diversion)

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
    log_offset: int
    diversion: Diversion | None


class _Owed(NamedTuple):
    """A call that receives its reply once its messages are stored."""

    call: Call
    reply: Any
    staged: list[_StagedMessage]


def _answer(owed: list[_Owed], error: StoreError | None = None) -> None:
    """Reply to calls whose messages are in the log, and replicated unless there is an *error*."""
    told = None if error is None else build_unconfirmed_status(error)
    for call, reply, _ in owed:
        if told is not None:
            for entry in reply.entries:
                if entry.status.code == Code.OK:
                    entry.status.CopyFrom(told)
        _sum_up(reply)
        call.reply(reply)


def _sum_up(reply: Any) -> None:
    """Set the status of a reply: the common one of all entries, or that they differ."""
    entries = reply.entries
    if len(entries) == 1:
        if entries[0].status.code != Code.OK:
            reply.status.CopyFrom(entries[0].status)
    elif len({entry.status.code for entry in entries}) == 1:
        reply.status.CopyFrom(entries[0].status)
    else:
        reply.status.CopyFrom(status(Code.MULTIPLE_RESULTS, "see the entries"))
