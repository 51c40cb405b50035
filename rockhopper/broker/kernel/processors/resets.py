"""Resets of a group's offsets: INVOKE_BROKER_TO_RESET_OFFSET (222), CLONE_GROUP_OFFSET (314).

With useServerSideResetOffset, the default, each queue returns its new offset with the next pull
(21), or with the pull that waits there. Until then, commits are ignored. The group may be offline.
Without this setting the new offsets are pushed (220) to the online clients, which commit them.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from rockhopper.broker.kernel.events import KernelListener
from rockhopper.broker.kernel.members.consumer_groups import Client, ConsumerGroups
from rockhopper.broker.kernel.processors.offsets import check_queue
from rockhopper.broker.kernel.pull.puller import Puller
from rockhopper.broker.kernel.tables.consumer_offsets import ConsumerOffsetTable
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroupTable
from rockhopper.broker.kernel.tables.topics import TopicConfig, TopicTable
from rockhopper.broker.server.loop.cooperative_work import next_slice, run_in_thread
from rockhopper.broker.server.remoting.connection import connection_of
from rockhopper.broker.server.remoting.dispatcher import (
    Request,
    RequestError,
    Response,
    Row,
    administers,
)
from rockhopper.broker.server.remoting.json_bodies import long_json_response
from rockhopper.broker.server.remoting.permissions import (
    Names,
    RequiredPermission,
    name_field,
    name_optional_field,
    on_group,
    on_topic_and_group,
    on_topics_and_groups,
)
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.users.access import Action, ResourceKind
from rockhopper.broker.users.errors import GroupNotFound, Refusal, TopicNotFound
from rockhopper.protocol import fastjson
from rockhopper.protocol.bodies import MessageQueueKey
from rockhopper.protocol.codes import LanguageCode, RequestCode, ResponseCode
from rockhopper.protocol.fastjson import CachedText, map_of, queue_text
from rockhopper.protocol.requests import ResetOffsetRequest
from rockhopper.protocol.requests.administration import QueryCorrectionOffsetRequest
from rockhopper.protocol.requests.groups import CloneGroupOffsetRequest

log = structlog.get_logger("broker.admin")

# The number of queues to read or copy between pauses for other requests.
QUEUES_PER_TURN = 32
# The offset value that means no offset.
TIME_DECIDES = -1
# V3_0_7_SNAPSHOT: older clients do not know request 220.
VERSION_WITH_PUSHED_RESET = 28


def _split_names(field: str) -> Names:
    """Return a function for the names in a field, separated by commas; none if it is missing."""
    return lambda request: filter(None, request.ext.get(field, "").split(","))


CORRECTED = (
    *on_topics_and_groups(Action.GET, name_field("topic"), name_optional_field("compareGroup")),
    RequiredPermission((Action.GET,), ResourceKind.GROUP, _split_names("filterGroups")),
)
CLONED = (
    RequiredPermission((Action.UPDATE,), ResourceKind.TOPIC, name_optional_field("topic")),
    on_group(Action.GET, field="srcGroup"),
    on_group(Action.UPDATE, field="destGroup"),
)


@dataclass(eq=False, repr=False)
class ResetProcessors:
    """Serves the requests that move groups."""

    _config: BrokerConfig
    _store: MessageStore
    _topics: TopicTable
    _groups: SubscriptionGroupTable
    _offsets: ConsumerOffsetTable
    _consumers: ConsumerGroups
    _puller: Puller
    _listeners: Sequence[KernelListener]

    def rows(self) -> dict[int, Row]:
        """Return the row of each request code."""
        return {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: administers(
                self.reset_offsets, *on_topic_and_group(Action.UPDATE, group_field="group")
            ),
            RequestCode.QUERY_CORRECTION_OFFSET: administers(
                self.correction_offsets, *CORRECTED, promises_state=False
            ),
            RequestCode.CLONE_GROUP_OFFSET: administers(self.clone_offsets, *CLONED),
        }

    async def correction_offsets(self, request: Request) -> Response:
        """308: return the smallest offset of any group in each queue, except filterGroups.

        RocketMQ deletes the offsets of filterGroups with this request; here a query changes
        nothing.
        """
        fields = request.fields(QueryCorrectionOffsetRequest)
        left_out = set((fields.filter_groups or "").split(","))
        store, found = self._store, dict[int, int]()
        entries = await run_in_thread("answers", lambda: list(self._offsets.entries()))
        for topic, group, queues in entries:
            if topic != fields.topic or group in left_out:
                continue
            for number, (queue_id, offset) in enumerate(list(queues.items())):
                if number % QUEUES_PER_TURN == QUEUES_PER_TURN - 1:
                    await next_slice()
                if offset >= store.reading.queue_range(topic, queue_id)[0]:
                    found[queue_id] = min(offset, found.get(queue_id, offset))
        return await long_json_response(lambda: {"correctionOffsets": found})

    async def reset_offsets(self, request: Request) -> Response:
        """222: set a group's offsets to a time or to a number. A negative time means the end."""
        fields = request.fields(ResetOffsetRequest)
        topic = self._topics.get(fields.topic)
        if topic is None:
            raise TopicNotFound(f"Topic {fields.topic} does not exist")
        if self._groups.get(fields.group) is None:
            raise GroupNotFound(f"Group {fields.group} does not exist")
        targets = await self._targets(topic, fields)
        is_ours = self._config.live.server_side_reset
        if not is_ours:
            targets = self._select_moving(topic.name, fields, targets)
        queues: list[str] = []
        for queue_id, offset in targets.items():
            if queue_id % QUEUES_PER_TURN == QUEUES_PER_TURN - 1:
                await next_slice()
            if is_ours:
                self._offsets.reset(topic.name, fields.group, queue_id, offset)
                self._puller.look_at_resets(topic.name, queue_id)
            key = MessageQueueKey(topic.name, self._config.broker_name, queue_id)
            queues.append(queue_text(key, offset))
        body = {"offsetTable": map_of(queues)}
        if is_ours:
            for listener in self._listeners:
                listener.group_reset(fields.group, topic.name)
        else:
            self._push(fields, targets, body)
        log.info(
            "offsets reset by an administrator",
            topic=topic.name,
            group=fields.group,
            by=request.principal.user or "nobody",
            host=request.principal.host,
        )
        return await long_json_response(lambda: body)

    async def _targets(self, topic: TopicConfig, fields: ResetOffsetRequest) -> dict[int, int]:
        """Return the target offset of each queue id."""
        if fields.queue_id >= 0:
            check_queue(self._topics, self._store, topic.name, fields.queue_id)
            wanted = None if fields.offset in (None, TIME_DECIDES) else fields.offset
            return {fields.queue_id: self._target(topic.name, fields, fields.queue_id, wanted)}
        targets = {}
        for queue_id in range(topic.read_queue_nums):
            if queue_id % QUEUES_PER_TURN == QUEUES_PER_TURN - 1:
                await next_slice()
            targets[queue_id] = self._target(topic.name, fields, queue_id, None)
        return targets

    def _target(
        self, topic: str, fields: ResetOffsetRequest, queue_id: int, wanted: int | None
    ) -> int:
        store = self._store
        low, high = store.reading.queue_range(topic, queue_id)
        if wanted is not None:
            if not low <= wanted <= high:
                raise Refusal(f"Target offset {wanted} not in consume queue range [{low}-{high}]")
            return wanted
        if fields.timestamp < 0:
            return high
        found = store.reading.offset_by_time(topic, queue_id, fields.timestamp, upper=False)
        return min(max(found, low), high)

    def _select_moving(
        self, topic: str, fields: ResetOffsetRequest, targets: dict[int, int]
    ) -> dict[int, int]:
        """Return *targets* without forward moves, unless forced, as RocketMQ pushes them."""
        moved = {}
        for queue_id, target in targets.items():
            committed = self._offsets.get(topic, fields.group, queue_id)
            forward = fields.is_force or committed is None
            moved[queue_id] = target if forward else min(target, committed or 0)
        return moved

    def _push(
        self, fields: ResetOffsetRequest, targets: dict[int, int], body: dict[str, CachedText]
    ) -> None:
        online = self._consumers.get(fields.group)
        members: list[Client] = list(online.members.values()) if online is not None else []
        if not members:
            raise RequestError(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {fields.group} "
                f"Topic: {fields.topic} Timestamp: {fields.timestamp}",
            )
        for member in members:
            if member.version < VERSION_WITH_PUSHED_RESET:
                raise Refusal(
                    f"the client {member.client_id} does not support this feature. "
                    f"version={member.version}"
                )
        for queue_id, offset in targets.items():
            self._offsets.expect_reset(fields.topic, fields.group, queue_id, offset)
        ext = {
            "topic": fields.topic,
            "group": fields.group,
            "timestamp": str(fields.timestamp),
            "isForce": "true" if fields.is_force else "false",
        }
        plain = fastjson.dumps(body).encode()
        for_cpp = _body_for_cpp(fields.topic, self._config.broker_name, targets)
        for member in members:
            data = for_cpp if member.language == LanguageCode.CPP else plain
            connection = connection_of(member.connection)
            if connection is not None:
                connection.send_request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ext, data)

    async def clone_offsets(self, request: Request) -> Response:
        """314: copy a group's offsets to another group.

        This applies to one topic, or to all topics of the source. RocketMQ copies nothing without a
        topic. If the source group is online, topics to which it no longer subscribes are left out,
        unless the request declares it offline.
        """
        fields = request.fields(CloneGroupOffsetRequest)
        if self._groups.find_or_create(fields.dest_group) is None:
            raise GroupNotFound(f"Group {fields.dest_group} does not exist")
        if fields.topic:
            topics = [fields.topic]
        else:
            topics = await asyncio.to_thread(self._offsets.topics_of, fields.src_group)
        online = None if fields.offline else self._consumers.get(fields.src_group)
        subscribed = online.subscriptions() if online is not None else None
        copied = 0
        for topic in topics:
            copied += 1 + len(self._offsets.queues(topic, fields.src_group))
            if copied > QUEUES_PER_TURN:
                copied = 0
                await next_slice()
            if self._topics.get(topic) is None or (
                subscribed is not None and topic not in subscribed
            ):
                log.info("offsets not copied: the group does not use the topic", topic=topic)
                continue
            self._offsets.copy_group(fields.src_group, fields.dest_group, topic)
        self._offsets.save_soon()
        return Response()


def _body_for_cpp(topic: str, broker_name: str, targets: dict[int, int]) -> bytes:
    """Return the offsets as a list, the format of C++ clients."""
    rows = [
        {"brokerName": broker_name, "offset": offset, "queueId": queue_id, "topic": topic}
        for queue_id, offset in targets.items()
    ]
    return fastjson.dumps({"offsetTable": rows}).encode()
