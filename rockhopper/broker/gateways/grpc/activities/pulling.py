"""PullMessage, and the offsets of pull consumers: UpdateOffset, GetOffset and QueryOffset.

RocketMQ's proxy supports none of them.
"""

from typing import Any

from rockhopper.broker.feature import RpcRow
from rockhopper.broker.gateways.grpc import permissions
from rockhopper.broker.gateways.grpc.call import Call
from rockhopper.broker.gateways.grpc.converting import fill_message
from rockhopper.broker.gateways.grpc.resources import group_of, topic_of
from rockhopper.broker.gateways.grpc.statuses import OK, GrpcStatusError, millis_of, status
from rockhopper.broker.kernel.pull.puller import Pull, Puller, PullOutcome
from rockhopper.broker.kernel.tables.consumer_offsets import ConsumerOffsetTable
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroupTable
from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.reading.get_result import GetResult
from rockhopper.broker.users.errors import (
    GroupNotFound,
    InvalidParameter,
    Refusal,
    TopicNotFound,
)
from rockhopper.protocol.grpc_v2.codes import Code
from rockhopper.protocol.grpc_v2.messages import (
    FILTER_SQL,
    METHODS,
    OFFSET_BEGINNING,
    OFFSET_END,
)
from rockhopper.protocol.store.message_codec import decode_messages
from rockhopper.protocol.subscription import TYPE_SQL92, TYPE_TAG, Subscription
from rockhopper.protocol.sys_flags import PULL_FLAG_SUBSCRIPTION, PULL_FLAG_SUSPEND

MESSAGES_MAX = 32
POLLING_MS_MAX = 20_000

_PullReply = METHODS["PullMessage"].reply
_UpdateReply = METHODS["UpdateOffset"].reply
_GetReply = METHODS["GetOffset"].reply
_QueryReply = METHODS["QueryOffset"].reply


class _CallReply:
    """Replies to the pull of one call."""

    def __init__(
        self, call: Call, topic: str, namespace: str, expression: str, expression_type: str
    ) -> None:
        self._call = call
        self._place = topic, namespace
        self._expression = expression, expression_type

    def answer(self, outcome: PullOutcome, result: GetResult) -> None:
        """Send the status, the messages, and the next offset."""
        call = self._call
        if outcome is PullOutcome.FOUND:
            # The store compares only hashes of tags, and these clients do not filter.
            wanted = Subscription(self._place[0], *self._expression)
            messages = decode_messages(result.body)
            call.write(_PullReply(status=OK))
            for stored in messages:
                if wanted.matches_tag(stored.tags):
                    reply = _PullReply()
                    fill_message(reply.message, stored, *self._place)
                    call.write(reply)
        elif outcome is PullOutcome.MOVED:
            moved = status(Code.ILLEGAL_OFFSET, "the queue no longer has this offset")
            call.write(_PullReply(status=moved))
        else:
            call.write(_PullReply(status=status(Code.MESSAGE_NOT_FOUND, "no new message")))
        call.write(_PullReply(next_offset=result.next_offset))
        call.end_call()

    def refuse(self, error: Refusal) -> None:
        """See PullReply."""
        self._call.refuse(error)

    def check_access(self) -> None:
        """See PullReply."""
        self._call.check_access()


class Pulling:
    """Serves consumers that manage their own offsets."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        offsets: ConsumerOffsetTable,
        puller: Puller,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._puller = puller

    def rpcs(self) -> dict[str, RpcRow]:
        """Return the row of each RPC."""
        return {
            "PullMessage": RpcRow(self.pull, permissions.of_queue, promises_state=False),
            "UpdateOffset": RpcRow(self.update_offset, permissions.of_queue),
            "GetOffset": RpcRow(self.get_offset, permissions.of_queue, promises_state=False),
            "QueryOffset": RpcRow(self.query_offset, permissions.of_looking, promises_state=False),
        }

    def pull(self, call: Call, request: Any) -> None:
        """PullMessage: send the status, the messages, and the next offset."""
        _ = call.client_id
        topic, group = topic_of(request.message_queue.topic), group_of(request.group)
        if request.offset < 0:
            raise GrpcStatusError(Code.ILLEGAL_OFFSET, f"the offset is {request.offset}")
        polling = millis_of(request.long_polling_timeout, Code.BAD_REQUEST, "the polling time")
        wait_ms = min(polling, POLLING_MS_MAX)
        expression = request.filter_expression
        namespace = request.message_queue.topic.resource_namespace

        kind = TYPE_SQL92 if expression.type == FILTER_SQL else TYPE_TAG
        reply = _CallReply(call, topic, namespace, expression.expression, kind)
        pulled = self._puller.pull(
            Pull(
                connection=call.waiting(),
                is_lite=False,
                group=group,
                topic=topic,
                queue_id=request.message_queue.id,
                offset=request.offset,
                count_max=min(max(request.batch_size, 1), MESSAGES_MAX),
                sys_flag=PULL_FLAG_SUBSCRIPTION | (PULL_FLAG_SUSPEND if wait_ms > 0 else 0),
                commit_offset=-1,
                suspend_ms=wait_ms,
                expression=expression.expression,
                expression_type=kind,
                version=0,
                reply=reply,
            )
        )
        if pulled is not None:
            reply.answer(*pulled)

    def update_offset(self, call: Call, request: Any) -> Any:
        """UpdateOffset: commit a group's offset."""
        _ = call.client_id
        topic, group = topic_of(request.message_queue.topic), group_of(request.group)
        if request.offset < 0:
            raise GrpcStatusError(Code.ILLEGAL_OFFSET, f"the offset is {request.offset}")
        self._check_queue(topic, request.message_queue.id)
        if self._groups.get(group) is None:
            raise GroupNotFound(f"the group {group} does not exist")
        self._offsets.commit(topic, group, request.message_queue.id, request.offset, backward=True)
        return _UpdateReply(status=OK)

    def get_offset(self, call: Call, request: Any) -> Any:
        """GetOffset: return a group's offset."""
        _ = call.client_id
        topic, group = topic_of(request.message_queue.topic), group_of(request.group)
        queue_id = request.message_queue.id
        self._check_queue(topic, queue_id)
        offset = self._offsets.pending_reset(topic, group, queue_id)
        if offset is None:
            offset = self._offsets.get(topic, group, queue_id)
        if offset is None:
            raise GrpcStatusError(
                Code.OFFSET_NOT_FOUND, f"the group {group} has committed no offset in this queue"
            )
        return _GetReply(status=OK, offset=offset)

    def query_offset(self, call: Call, request: Any) -> Any:
        """QueryOffset.

        Return the oldest offset, one past the newest, or the first from a time on.
        """
        _ = call.client_id
        topic, queue_id = topic_of(request.message_queue.topic), request.message_queue.id
        self._check_queue(topic, queue_id)
        low, high = self._store.reading.queue_range(topic, queue_id)
        if request.query_offset_policy == OFFSET_BEGINNING:
            offset = low
        elif request.query_offset_policy == OFFSET_END:
            offset = high
        else:
            time_ms = millis_of(request.timestamp, Code.BAD_REQUEST, "the requested time")
            found = self._store.reading.offset_by_time(topic, queue_id, time_ms, upper=False)
            offset = min(max(found, low), high)
        return _QueryReply(status=OK, offset=offset)

    def _check_queue(self, topic: str, queue_id: int) -> None:
        config = self._topics.get(topic)
        if config is None:
            raise TopicNotFound(f"the topic {topic} does not exist")
        if not 0 <= queue_id < max(config.read_queue_nums, config.write_queue_nums):
            raise InvalidParameter(f"the topic {topic} has no queue {queue_id}")
