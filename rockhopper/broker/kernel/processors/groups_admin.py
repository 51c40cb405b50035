"""Groups: settings (200, 201, 207, 225, 352), online members (203, 204, 345), lag (208, 343)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import structlog

from rockhopper.broker.kernel.events import KernelListener
from rockhopper.broker.kernel.members.consumer_groups import (
    BROADCASTING,
    CLUSTERING,
    Client,
    ConsumerGroup,
    ConsumerGroups,
    Member,
)
from rockhopper.broker.kernel.members.producers import ProducerTable
from rockhopper.broker.kernel.members.retry_owners import RetryOwners
from rockhopper.broker.kernel.processors.pages import is_version, page
from rockhopper.broker.kernel.tables.consumer_offsets import ConsumerOffsetTable
from rockhopper.broker.kernel.tables.subscription_groups import (
    SubscriptionGroup,
    SubscriptionGroupTable,
)
from rockhopper.broker.kernel.tables.topic_attributes import (
    GROUP_RULES,
    AttributeChangeError,
    change_attributes,
)
from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.server.loop.cooperative_work import next_slice, run_in_thread
from rockhopper.broker.server.remoting.dispatcher import (
    Request,
    RequestError,
    Response,
    Row,
    administers,
)
from rockhopper.broker.server.remoting.json_bodies import (
    json_response,
    long_json_response,
    names_in_objects,
    read_object,
    refusal,
)
from rockhopper.broker.server.remoting.permissions import (
    SEE_CLUSTER,
    ExaminedRequest,
    RequiredPermission,
    name_all,
    name_field,
    on_group,
    on_topic_and_group,
    on_topics_and_groups,
)
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.users.access import Action, ResourceKind
from rockhopper.broker.users.errors import GroupNotFound, InvalidParameter, Refusal
from rockhopper.protocol.bodies import (
    Connection,
    ConsumerConnection,
    DifferentMember,
    MarkedConsumerConnection,
    OffsetWrapper,
    ProducerConnection,
    SubscriptionData,
    TopicList,
)
from rockhopper.protocol.codes import LanguageCode, ResponseCode
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.fastjson import MessageQueueKey, map_of, queue_text
from rockhopper.protocol.names import RETRY_PREFIX, group_error
from rockhopper.protocol.requests import (
    ConsumerGroupRequest,
    DeleteSubscriptionGroupRequest,
    GetAllSubscriptionGroupRequest,
    GetAllSubscriptionGroupResponse,
    GetConsumeStatsRequest,
    GroupRequest,
    ProducerGroupRequest,
    QueryTopicsByConsumerRequest,
    encode_fields,
)
from rockhopper.protocol.requests.fields import RpcRequest

log = structlog.get_logger("broker.admin")

LIST_LENGTH_MAX = 4096
RETRY_QUEUES_MAX = 1024
# The number of queues to describe between pauses for other requests.
QUEUES_PER_TURN = 32


class QuerySubscriptionRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """The header of QUERY_SUBSCRIPTION_BY_CONSUMER (345)."""

    group: str
    topic: str


def _list_measured_topics(request: ExaminedRequest) -> Iterable[str]:
    listed = request.ext.get("topicList", "").split(";")
    return filter(None, (request.ext.get("topic"), *listed))


CONSUME_STATS = on_topics_and_groups(Action.GET, _list_measured_topics, name_field("consumerGroup"))
GROUP_MADE = RequiredPermission(
    (Action.CREATE,), ResourceKind.GROUP, names_in_objects(None, "groupName")
)
GROUPS_MADE = RequiredPermission(
    (Action.CREATE,), ResourceKind.GROUP, names_in_objects("groupConfigList", "groupName")
)
ALL_GROUPS = RequiredPermission((Action.LIST,), ResourceKind.GROUP, name_all)


@dataclass(eq=False, repr=False)
class GroupAdminProcessors:
    """Serves queries and changes of groups."""

    _config: BrokerConfig
    _store: MessageStore
    _topics: TopicTable
    _groups: SubscriptionGroupTable
    _offsets: ConsumerOffsetTable
    _consumers: ConsumerGroups
    _producers: ProducerTable
    _stats: BrokerStats
    _listeners: Sequence[KernelListener]
    _retry_owners: RetryOwners

    def rows(self) -> dict[int, Row]:
        """Return the row of each request code."""
        return {
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: administers(self.update_group, GROUP_MADE),
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: administers(
                self.update_groups, GROUPS_MADE
            ),
            Code.DELETE_SUBSCRIPTIONGROUP: administers(
                self.delete_group, on_group(Action.DELETE, field="groupName")
            ),
            Code.GET_SUBSCRIPTIONGROUP_CONFIG: administers(
                self.get_group, on_group(Action.GET, field="group"), promises_state=False
            ),
            Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: administers(
                self.get_all_groups, ALL_GROUPS, promises_state=False
            ),
            Code.GET_CONSUMER_CONNECTION_LIST: administers(
                self.consumer_connections, on_group(Action.GET), promises_state=False
            ),
            Code.GET_PRODUCER_CONNECTION_LIST: administers(
                self.producer_connections, SEE_CLUSTER, promises_state=False
            ),
            Code.QUERY_SUBSCRIPTION_BY_CONSUMER: administers(
                self.subscription_of,
                *on_topic_and_group(Action.GET, group_field="group"),
                promises_state=False,
            ),
            Code.QUERY_TOPICS_BY_CONSUMER: administers(
                self.topics_of, on_group(Action.GET, field="group"), promises_state=False
            ),
            Code.GET_CONSUME_STATS: administers(
                self.consume_stats, *CONSUME_STATS, promises_state=False
            ),
        }

    async def update_group(self, request: Request) -> Response:
        """200: create a group or replace all its settings."""
        await self._put([self._group_of(await read_object(request.body))])
        return Response()

    async def update_groups(self, request: Request) -> Response:
        """225: create or replace several groups, all or none."""
        values = (await read_object(request.body)).get("groupConfigList")
        if not isinstance(values, list) or len(values) > LIST_LENGTH_MAX:
            raise Refusal(f"the body has no groupConfigList of at most {LIST_LENGTH_MAX} groups")
        await self._put([self._group_of(value) for value in values])
        return Response()

    def _group_of(self, value: Any) -> SubscriptionGroup:
        """Return the group that a body describes, with changed attributes. Raises Refusal."""
        group = _group_of(value)
        known = self._groups.get(group.name)
        try:
            attributes = change_attributes(
                None if known is None else known.attributes, group.attributes, GROUP_RULES
            )
        except AttributeChangeError as error:
            raise refusal(error) from None
        group.others["attributes"] = attributes
        return group

    async def _put(self, groups: list[SubscriptionGroup]) -> None:
        changed = [group.name for group in groups if self._groups.put(group)]
        if changed:
            log.info("groups changed by an administrator", groups=changed[:20], count=len(changed))
            await self._groups.saved()

    async def delete_group(self, request: Request) -> Response:
        """207: delete a group's settings and, if requested, its offsets.

        Succeeds if there are none. Its retry and dead-letter topics stay. If groups are created on
        first use, a consumer that is still online creates the group again with its next heartbeat.
        """
        fields = request.fields(DeleteSubscriptionGroupRequest)
        existed = self._groups.delete(fields.group_name)
        if fields.clean_offset:
            self._offsets.delete_group(fields.group_name)
            for listener in self._listeners:
                listener.group_deleted(fields.group_name)
            self._offsets.save_soon()
        if existed:
            self._stats.forget_group(fields.group_name)
            log.info("group deleted by an administrator", group=fields.group_name)
            await self._groups.saved()
        return Response()

    def get_group(self, request: Request) -> Response:
        """352: return the settings of one group.

        For a group that a consumer may create, return the defaults.
        """
        name = request.fields(GroupRequest).group
        group = self._groups.get(name)
        if group is None:
            creatable = self._config.live.auto_create_subscription_group
            if not creatable or group_error(name) is not None:
                raise GroupNotFound(f"No group in this broker. group: {name}")
            group = SubscriptionGroup(name)
        return json_response(group.to_json())

    async def get_all_groups(self, request: Request) -> Response:
        """201: return the settings of all groups, in pages if the client requests pages."""
        fields = request.fields(GetAllSubscriptionGroupRequest)
        document = await run_in_thread("answers", self._groups.to_json)
        table: dict[str, Any] = document["subscriptionGroupTable"]
        names = page(
            sorted(table),
            fields.group_seq,
            fields.max_group_num,
            is_same_version=is_version(fields.data_version, document["dataVersion"]),
        )
        chosen = {**document, "subscriptionGroupTable": {name: table[name] for name in names}}
        ext = encode_fields(GetAllSubscriptionGroupResponse(total_group_num=len(table)))
        return await long_json_response(lambda: chosen, ext)

    def consumer_connections(self, request: Request) -> Response:
        """203: return the online members of a group, and their subscriptions."""
        name = request.fields(ConsumerGroupRequest).consumer_group
        group = self._consumers.get(name)
        if group is None:
            raise RequestError(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online"
            )
        return json_response(_consumer_connection(group))

    def producer_connections(self, request: Request) -> Response:
        """204: return the online producers of a group."""
        name = request.fields(ProducerGroupRequest).producer_group
        clients = self._producers.clients(name)
        if not clients:
            raise Refusal(f"the producer group[{name}] not exist")
        return json_response(ProducerConnection([_connection(client) for client in clients]))

    def subscription_of(self, request: Request) -> Response:
        """345: return the subscription of an online group to a topic."""
        fields = request.fields(QuerySubscriptionRequest)
        group = self._consumers.get(fields.group)
        found = group.subscription(fields.topic) if group is not None else None
        return json_response(
            {
                "group": fields.group,
                "subscriptionData": None
                if found is None
                else SubscriptionData.from_subscription(found),
                "topic": fields.topic,
            }
        )

    def topics_of(self, request: Request) -> Response:
        """343: return the topics in which a group has offsets, optionally with its retry topics."""
        connection = request.connection
        fields = request.fields(QueryTopicsByConsumerRequest)
        topics = self._offsets.topics_of(fields.group)
        if fields.with_retry_topics:
            topics = sorted({*topics, *self._retry_topics_of(fields.group)})
        return json_response(
            TopicList(
                topic_list=topics,
                broker_addr=connection.addresses.local,
            )
        )

    def _retry_topics_of(self, group: str) -> Iterator[str]:
        """Yield the retry topics with messages for *group*, from any way of consuming."""
        for name in self._topics.configs:
            if (
                name.startswith(f"{RETRY_PREFIX}{group}")
                and self._store.reading.has_messages(name)
                and group in self._retry_owners.groups(name)
            ):
                yield name

    async def consume_stats(self, request: Request) -> Response:
        """208: return the end and the group's offset for each queue of the group's topics.

        A queue without a committed offset counts from 0, as in RocketMQ; a queue of a static topic
        counts from -1, because it may be a part that the group has not reached. Messages between
        the offset and the pullOffset were delivered since the start and are in flight.
        """
        fields = request.fields(GetConsumeStatsRequest)
        group = fields.consumer_group
        queues: dict[str, list[str]] = {}
        consume_tps = 0.0
        looked_at = count(1)
        for topic in self._topics_to_report(group, fields.topic, fields.topic_list):
            queues[topic] = await self._report(topic, group, looked_at)
            consume_tps += self._stats.group_get_tps(topic, group)
        texts = (text for _, texts in sorted(queues.items()) for text in texts)
        return await long_json_response(
            lambda: {"consumeTps": consume_tps, "offsetTable": map_of(texts)}
        )

    def _topics_to_report(self, group: str, topic: str | None, listed: str | None) -> list[str]:
        named = [name for name in (listed or "").split(";") if name]
        if named:
            return list(dict.fromkeys(named))
        topics = [topic] if topic else self._offsets.topics_of(group)
        online = self._consumers.get(group)
        subscribed = online.subscriptions() if online is not None else {}
        if not subscribed:
            return topics
        return [name for name in topics if name in subscribed]

    async def _report(self, topic: str, group: str, looked_at: Iterator[int]) -> list[str]:
        """Return the queues of *topic* as text, which garbage collection need not traverse."""
        settings = self._topics.get(topic)
        texts: list[str] = []
        if settings is None:
            return texts
        least = -1 if topic in self._topics.mappings else 0
        for queue_id in range(settings.read_queue_nums):
            if next(looked_at) % QUEUES_PER_TURN == 0:
                await next_slice()
            committed = self._offsets.get(topic, group, queue_id)
            offset = least if committed is None else max(committed, least)
            low, high = self._store.reading.queue_range(topic, queue_id)
            consumed_ms = 0
            if low < offset <= high:
                consumed_ms = self._store.reading.store_time(topic, queue_id, offset - 1)
            key = MessageQueueKey(topic, self._config.broker_name, queue_id)
            pulled = max(offset, self._stats.get_pulled_offset(topic, group, queue_id))
            texts.append(queue_text(key, OffsetWrapper(high, offset, pulled, max(consumed_ms, 0))))
        return texts


def _group_of(value: Any) -> SubscriptionGroup:
    """Return the group that a body describes. Raises Refusal."""
    name = value.get("groupName") if isinstance(value, dict) else None
    if not isinstance(name, str):
        raise Refusal("the group has no groupName")
    problem = group_error(name)
    if problem is not None:
        raise InvalidParameter(problem)
    attributes = value.get("attributes") or {}
    if not isinstance(attributes, dict) or not all(isinstance(v, str) for v in attributes.values()):
        raise Refusal(f"group {name} does not decode: attributes is no object with texts")
    try:
        group = SubscriptionGroup.from_json(name, value)
    except (ValueError, TypeError) as error:
        raise refusal(error, f"group {name} does not decode: ") from None
    if group.retry_queue_nums > RETRY_QUEUES_MAX:
        raise Refusal(
            f"retryQueueNums {group.retry_queue_nums} of group {name}: "
            f"0 to {RETRY_QUEUES_MAX} are allowed"
        )
    return group


def _consumer_connection(group: ConsumerGroup) -> ConsumerConnection:
    facts = (
        [_connection(member) for member in group.members.values()],
        {
            topic: SubscriptionData.from_subscription(found)
            for topic, found in group.subscriptions().items()
        },
        group.settings.consume_type,
        BROADCASTING if group.is_broadcasting else CLUSTERING,
        group.settings.consume_from_where,
    )
    if group.shared_ids or not group.is_consistent():
        different = () if group.is_consistent() else group.members.values()
        return MarkedConsumerConnection(
            *facts, sorted(group.shared_ids), [_different(member) for member in different]
        )
    return ConsumerConnection(*facts)


def _different(member: Member) -> DifferentMember:
    wanted = {topic: each.expression for topic, each in sorted(member.subscriptions.items())}
    return DifferentMember(member.client_id, member.settings.message_model, wanted)


def _connection(client: Client) -> Connection:
    try:
        language = LanguageCode(client.language).name
    except ValueError:
        language = LanguageCode.OTHER.name
    return Connection(client.client_id, client.connection.peer, language, client.version)
