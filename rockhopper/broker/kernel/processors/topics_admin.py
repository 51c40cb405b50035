"""Topics: create, change (17, 18), delete (215), purge (70006), describe (21, 351, 202, 300, 305).

A change is answered once it is saved and the name servers are notified, so that the client can use
the topic at once. TOPIC_IDS (70007) returns ids that distinguish a topic from earlier or later ones
of the same name.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog

from rockhopper.broker.kernel.deletions import Deletions
from rockhopper.broker.kernel.events import KernelListener
from rockhopper.broker.kernel.members.consumer_groups import ConsumerGroups
from rockhopper.broker.kernel.members.retry_owners import RetryOwners
from rockhopper.broker.kernel.processors.pages import is_version, page
from rockhopper.broker.kernel.tables.consumer_offsets import ConsumerOffsetTable
from rockhopper.broker.kernel.tables.json_table import JsonObject, TableVersion
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroupTable
from rockhopper.broker.kernel.tables.topic_attributes import (
    ATTRIBUTE_MESSAGE_TYPE,
    MESSAGE_TYPE_MIXED,
    AttributeChangeError,
    change_attributes,
    parse_attribute_changes,
)
from rockhopper.broker.kernel.tables.topic_ends import TopicEnds
from rockhopper.broker.kernel.tables.topic_ids import TopicIds
from rockhopper.broker.kernel.tables.topic_mappings import TopicMapping
from rockhopper.broker.kernel.tables.topics import QUEUE_COUNT_MAX, TopicConfig, TopicTable
from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.server.loop.cooperative_work import next_slice
from rockhopper.broker.server.remoting.dispatcher import Request, Response, Row, administers, serves
from rockhopper.broker.server.remoting.json_bodies import (
    json_response,
    long_json_response,
    names_in_objects,
    read_object,
    refusal,
)
from rockhopper.broker.server.remoting.permissions import (
    ALL_TOPICS,
    SEE_CLUSTER,
    RequiredPermission,
    on_topic,
)
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.users.access import Action, ResourceKind
from rockhopper.broker.users.errors import InvalidParameter, Refusal, TopicNotFound
from rockhopper.protocol.bodies import GroupList, TopicList, TopicOffset
from rockhopper.protocol.bodies.topic_ids import decode_topics, encode_topic_ids
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.fastjson import MessageQueueKey, map_of, queue_text
from rockhopper.protocol.names import (
    RETRY_PREFIX,
    is_retry_topic,
    older_pop_retry_topic,
    topic_error,
)
from rockhopper.protocol.properties import is_popped_copy
from rockhopper.protocol.requests import (
    CreateTopicRequest,
    GetAllTopicConfigRequest,
    GetAllTopicConfigResponse,
    TopicRequest,
    TopicStatsRequest,
    encode_fields,
)
from rockhopper.protocol.store.light_queues import is_light, light_queue_error
from rockhopper.protocol.store.message_codec import decode_messages
from rockhopper.protocol.sys_flags import PERM_MASK

log = structlog.get_logger("broker.admin")

FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")
LIST_LENGTH_MAX = 4096
# If more messages wait in a retry topic, some count as another group's.
EXAMINED_MAX = 1024
# The number of queues to describe between pauses for other requests.
QUEUES_PER_TURN = 32
# The number of topics to check or store between pauses for other requests.
TOPICS_PER_TURN = 256
IDENTIFIED_MAX = 100_000
IDENTIFIED = RequiredPermission(
    (Action.SUB, Action.GET), ResourceKind.TOPIC, lambda request: decode_topics(request.body)
)
"""Requests of consumers such as the ends of queues: the right to pull covers them."""


def _with_quoted_keys(mapping: TopicMapping) -> JsonObject:
    """Return a mapping with quoted keys, which fastjson2 can skip if it does not know the field."""
    found = mapping.to_json()
    found["hostedQueues"] = {str(key): pieces for key, pieces in found["hostedQueues"].items()}
    return found


TOPICS_MADE = RequiredPermission(
    (Action.CREATE,), ResourceKind.TOPIC, names_in_objects("topicConfigList", "topicName")
)


class TopicAnnouncer(Protocol):
    """Registers topics with name servers."""

    async def announce(self) -> None:
        """Return when name servers have the current topics, or are unreachable."""


@dataclass(eq=False, repr=False)
class TopicAdminProcessors:
    """Serves queries and changes of topics."""

    _config: BrokerConfig
    _store: MessageStore
    _topics: TopicTable
    _groups: SubscriptionGroupTable
    _deletions: Deletions
    _topic_ends: TopicEnds
    _offsets: ConsumerOffsetTable
    _consumers: ConsumerGroups
    _stats: BrokerStats
    _listeners: Sequence[KernelListener]
    _retry_owners: RetryOwners
    _announcer: TopicAnnouncer
    _changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held from the validation of a change until it is applied."""

    def rows(self) -> dict[int, Row]:
        """Return the row of each request code."""
        return {
            Code.UPDATE_AND_CREATE_TOPIC: administers(self.update_topic, on_topic(Action.CREATE)),
            Code.UPDATE_AND_CREATE_TOPIC_LIST: administers(self.update_topics, TOPICS_MADE),
            Code.DELETE_TOPIC_IN_BROKER: administers(self.delete_topic, on_topic(Action.DELETE)),
            Code.PURGE_TOPIC: administers(self.purge_topic, on_topic(Action.DELETE)),
            Code.GET_TOPIC_CONFIG: administers(
                self.get_topic, on_topic(Action.GET), promises_state=False
            ),
            Code.GET_ALL_TOPIC_CONFIG: administers(
                self.get_all_topics, ALL_TOPICS, promises_state=False
            ),
            Code.GET_TOPIC_STATS_INFO: administers(
                self.topic_stats, on_topic(Action.GET), promises_state=False
            ),
            Code.QUERY_TOPIC_CONSUME_BY_WHO: administers(
                self.list_consumers, on_topic(Action.GET), promises_state=False
            ),
            Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: administers(
                self.system_topics, SEE_CLUSTER, promises_state=False
            ),
        }

    async def update_topic(self, request: Request) -> Response:
        """17: create a topic or replace its settings."""
        fields = request.fields(CreateTopicRequest)
        try:
            changes = parse_attribute_changes(fields.attributes or "")
        except AttributeChangeError as error:
            raise refusal(error) from None
        wanted = TopicConfig(
            fields.topic,
            read_queue_nums=fields.read_queue_nums,
            write_queue_nums=fields.write_queue_nums,
            perm=fields.perm,
            filter_type=fields.topic_filter_type or "SINGLE_TAG",
            sys_flag=fields.topic_sys_flag or 0,
            order=fields.order,
        )
        async with self._changing:
            is_changed = await self._put([self._check_settings(wanted, changes)])
        await self._settle(is_changed)
        return Response()

    async def update_topics(self, request: Request) -> Response:
        """18: create or replace several topics. RocketMQ stops at the first unchanged one."""
        configs = (await read_object(request.body)).get("topicConfigList")
        if not isinstance(configs, list) or len(configs) > LIST_LENGTH_MAX:
            raise Refusal(f"the body has no topicConfigList of at most {LIST_LENGTH_MAX} topics")
        async with self._changing:
            topics = []
            for number, value in enumerate(configs, 1):
                topics.append(self._from_json(value))
                if number % TOPICS_PER_TURN == 0:
                    await next_slice()
            is_changed = await self._put(topics)
        await self._settle(is_changed)
        return Response()

    def _from_json(self, value: Any) -> TopicConfig:
        name = value.get("topicName") if isinstance(value, dict) else None
        if not isinstance(name, str):
            raise Refusal("a topic in the list has no topicName")
        try:
            wanted = TopicConfig.from_json(name, value)
        except (ValueError, TypeError, AttributeError) as error:
            raise refusal(error, f"topic {name} does not decode: ") from None
        return self._check_settings(wanted, wanted.attributes)

    def _check_settings(self, wanted: TopicConfig, changes: dict[str, str]) -> TopicConfig:
        """Return *wanted* with its attributes after *changes*. Raises Refusal."""
        self.check_name(wanted.name)
        for queue_nums in (wanted.read_queue_nums, wanted.write_queue_nums):
            if not 0 <= queue_nums <= QUEUE_COUNT_MAX:
                raise Refusal(
                    f"{queue_nums} queues for topic {wanted.name}: at most {QUEUE_COUNT_MAX} are "
                    "allowed"
                )
        if not 0 <= wanted.perm <= PERM_MASK:
            raise InvalidParameter(
                f"perm {wanted.perm} of topic {wanted.name}: 4 (read), 2 (write) or 6 (both) is "
                "allowed"
            )
        if wanted.filter_type not in FILTER_TYPES:
            raise Refusal(
                f"topicFilterType {wanted.filter_type[:40]} is not one of {', '.join(FILTER_TYPES)}"
            )
        mixed = changes.get(f"+{ATTRIBUTE_MESSAGE_TYPE}") == MESSAGE_TYPE_MIXED
        if mixed and not self._config.live.mixed_message_type:
            raise InvalidParameter("MIXED message type is not supported.")
        current = self._topics.get(wanted.name)
        try:
            attributes = change_attributes(None if current is None else current.attributes, changes)
        except AttributeChangeError as error:
            raise refusal(error) from None
        return TopicConfig(
            wanted.name,
            read_queue_nums=wanted.read_queue_nums,
            write_queue_nums=wanted.write_queue_nums,
            perm=wanted.perm,
            filter_type=wanted.filter_type,
            sys_flag=wanted.sys_flag,
            order=wanted.order,
            attributes=attributes,
        )

    def check_name(self, name: str) -> None:
        """Refuse an invalid name of a user's topic. Raises InvalidParameter."""
        problem = light_queue_error(name) if is_light(name) else topic_error(name)
        if problem is not None:
            raise InvalidParameter(problem)
        if self._config.live.validate_system_topic and self._topics.is_system(name):
            raise InvalidParameter(f"The topic[{name}] is conflict with system topic.")

    async def _put(self, topics: list[TopicConfig]) -> bool:
        """Store the topics; return whether anything changed."""
        changed = []
        for number, topic in enumerate(topics, 1):
            if self._topics.put(topic):
                changed.append(topic.name)
            if number % TOPICS_PER_TURN == 0:
                await next_slice()
        if changed:
            log.info("topics changed by an administrator", topics=changed[:20], count=len(changed))
        return bool(changed)

    async def _settle(self, is_changed: bool = True) -> None:
        if is_changed:
            await self._topics.saved()
            await self._announcer.announce()

    async def delete_topic(self, request: Request) -> Response:
        """215: delete a topic, its queues and every group's offsets in it.

        Its messages stay in the commit log until they expire. A missing topic is no error, because
        tools send the deletion to all brokers of a cluster.
        """
        name = request.fields(TopicRequest).topic
        self.check_name(name)
        gone = self._retry_topics_of(name)
        if not self._is_left_to_others(name):
            gone.insert(0, name)
        self._keep_ends(gone)
        await self._topic_ends.saved()
        # Messages that were sent meanwhile count too; their ends are saved with the rest.
        self._keep_ends(gone)
        # First, so that the topic keeps its settings and offsets if a full disk prevents this.
        queues = self._deletions.delete_topics(gone)
        for doomed in gone:
            if self._topics.delete(doomed):
                log.info("topic deleted by an administrator", topic=doomed)
            self._offsets.delete_topic(doomed)
            self._stats.forget_topic(doomed)
        self._offsets.save_soon()
        await asyncio.to_thread(queues.remove)
        await self._settle()
        return Response()

    def _retry_topics_of(self, name: str) -> list[str]:
        """Return the pop retry topics of a topic, or of the group of a retry topic.

        An older retry topic, whose name may also belong to others, counts if no other owner can
        have messages there.
        """
        found = []
        for each in list(self._topics.configs):
            if is_retry_topic(each):
                group, joint, topic = each.partition("+")
                if joint and name in (group, topic):
                    found.append(each)
        for group in self._offsets.groups_of(name):
            older = older_pop_retry_topic(group, name)
            if older in self._topics and self._retry_owners.owners(older) == {(group, name)}:
                found.append(older)
        return found

    def _is_left_to_others(self, name: str) -> bool:
        """Return whether a group's retry topic must stay, for other groups' popped messages.

        The group then continues at the topic's end, as if it had consumed everything.
        """
        group = name.removeprefix(RETRY_PREFIX)
        topic = self._topics.get(name)
        others = [owner for owner, _ in self._retry_owners.owners(name) - {(group, "")}]
        if topic is None or group == name or "+" in name or not others:
            return False
        queue_ids = range(topic.read_queue_nums)
        if not any(self._holds_pops(name, each, others) for each in queue_ids):
            return False
        for queue_id in queue_ids:
            end = self._store.reading.queue_range(name, queue_id)[1]
            self._offsets.commit(name, group, queue_id, end)
        self._offsets.save_soon()
        log.warning("a retry topic is kept: it holds messages that other groups popped", topic=name)
        return True

    def _holds_pops(self, name: str, queue_id: int, groups: Iterable[str]) -> bool:
        low, high = self._store.reading.queue_range(name, queue_id)
        passed = (self._offsets.get(name, group, queue_id) or 0 for group in groups)
        at = max(low, min(passed))
        if high - at > EXAMINED_MAX:
            return True
        while at < high:
            result = self._store.reading.get_message(name, queue_id, at, 32)
            if any(is_popped_copy(each.properties) for each in decode_messages(result.body)):
                return True
            at = max(result.next_offset, at + 1)
        return False

    async def purge_topic(self, request: Request) -> Response:
        """70006, ours: delete all messages of a topic; its settings and groups stay.

        Queues keep their offsets, and every group continues at the end. Messages that are sent
        meanwhile come after that and stay.
        """
        name = request.fields(TopicRequest).topic
        self.check_name(name)
        self._get_known(name)
        names = self._retry_topics_of(name)
        if not self._is_left_to_others(name):
            names.insert(0, name)
        self._keep_ends(names)
        self._deletions.purge_topics(names)
        for purged in names:
            for group in self._offsets.groups_of(purged):
                for queue_id in self._offsets.queues(purged, group):
                    end = self._store.reading.queue_range(purged, queue_id)[0]
                    self._offsets.commit(purged, group, queue_id, end)
            for listener in self._listeners:
                listener.topic_purged(purged)
        self._offsets.save_soon()
        log.info("topic purged by an administrator", topic=name)
        return Response()

    def _keep_ends(self, topics: Iterable[str]) -> None:
        for topic in topics:
            if is_light(topic):
                continue
            self._topic_ends.store_ends(topic, self._store.visibility.queue_ends(topic))

    def get_topic(self, request: Request) -> Response:
        """351: return the settings of one topic.

        With lo=true, include the mapping of a static topic.
        """
        fields = request.fields(TopicRequest)
        found = self._get_known(fields.topic).to_json()
        mapping = self._topics.mappings.get(fields.topic)
        if mapping is not None and fields.is_logical:
            found["mappingDetail"] = mapping.to_json()
        return json_response(found)

    async def get_all_topics(self, request: Request) -> Response:
        """21: return the settings of all topics, in pages if the client requests pages."""
        fields = request.fields(GetAllTopicConfigRequest)
        topics = self._topics.configs.copy()
        version = self._topics.version.to_json()
        mappings, table = dict(self._topics.mappings), self._topics.mapping_table
        mapping_version = (table.version if table else TableVersion()).to_json()

        def describe() -> dict[str, object]:
            names = page(
                sorted(topics),
                fields.topic_seq,
                fields.max_topic_num,
                is_same_version=is_version(fields.data_version, version),
            )
            return {
                "dataVersion": version,
                "mappingDataVersion": mapping_version,
                "topicConfigTable": {name: topics[name].to_json() for name in names},
                "topicQueueMappingDetailMap": {
                    name: _with_quoted_keys(mappings[name]) for name in names if name in mappings
                },
                "topicQueueMappingInfoMap": {},
            }

        return await long_json_response(
            describe, encode_fields(GetAllTopicConfigResponse(total_topic_num=len(topics)))
        )

    async def topic_stats(self, request: Request) -> Response:
        """202: return the offsets of each queue, and the store time of its newest message."""
        fields = request.fields(TopicStatsRequest)
        topic = self._get_known(fields.topic)
        store = self._store
        put_tps = self._stats.topic_put_tps(topic.name)
        queues: list[str] = []
        for queue_id in range(max(topic.read_queue_nums, topic.write_queue_nums)):
            if queue_id % QUEUES_PER_TURN == QUEUES_PER_TURN - 1:
                await next_slice()
            low, high = store.reading.queue_range(topic.name, queue_id)
            newest_ms = (
                store.reading.store_time(topic.name, queue_id, high - 1) if high > low else 0
            )
            key = MessageQueueKey(topic.name, self._config.broker_name, queue_id)
            size = store.reading.records_bytes(topic.name, queue_id) if fields.sizes else None
            queues.append(queue_text(key, TopicOffset(low, high, max(newest_ms, 0), size)))
        return await long_json_response(
            lambda: {"offsetTable": map_of(queues), "topicPutTps": put_tps}
        )

    def list_consumers(self, request: Request) -> Response:
        """300: return the groups that consume a topic now, or have offsets in it."""
        name = request.fields(TopicRequest).topic
        online = self._consumers.groups_of_topic(name)
        known = self._offsets.groups_of(name)
        return json_response(GroupList(group_list=sorted({*online, *known})))

    def system_topics(self, request: Request) -> Response:
        """305: return RocketMQ's system topics."""
        connection = request.connection
        return json_response(
            TopicList(
                topic_list=self._topics.system_topics(),
                broker_addr=connection.addresses.local,
            )
        )

    def _get_known(self, name: str) -> TopicConfig:
        topic = self._topics.get(name)
        if topic is None:
            raise TopicNotFound(f"No topic in this broker. topic: {name}")
        return topic


@dataclass(eq=False, repr=False)
class TopicIdProcessor:
    """Serves the ids of topics."""

    _store: MessageStore
    _topics: TopicTable
    _topic_ids: TopicIds

    def rows(self) -> dict[int, Row]:
        """Return the row of each request code."""
        return {
            Code.TOPIC_IDS: serves(self.process, IDENTIFIED, promises_state=False),
        }

    async def process(self, request: Request) -> Response:
        """Return the id of each topic in the body, once it is on disk."""
        names = decode_topics(request.body)
        if len(names) > IDENTIFIED_MAX:
            raise InvalidParameter(
                f"{len(names)} topics are requested: request at most {IDENTIFIED_MAX} at a time"
            )
        log_end = self._store.log.written_offset
        found: list[str | None] = [
            self._topic_ids.get(name, log_end) if name in self._topics else None for name in names
        ]
        await self._topic_ids.saved()
        return Response(body=encode_topic_ids(found))
