"""Queries about consumption (303, 317, 353) and producers (328), and cleanups that do nothing.

CLEAN_UNUSED_TOPIC (316) and CLEAN_EXPIRED_CONSUMEQUEUE (306) return success without work: retention
already removes expired queue files, and a start creates the missing topics of queues.
"""

from collections.abc import Callable
from dataclasses import dataclass

from rockhopper.broker.kernel.members.producers import ProducerTable
from rockhopper.broker.kernel.processors.groups_admin import QUEUES_PER_TURN
from rockhopper.broker.kernel.tables.consumer_offsets import ConsumerOffsetTable
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroupTable
from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.server.loop.cooperative_work import next_slice
from rockhopper.broker.server.remoting.dispatcher import Request, Response, Row, administers
from rockhopper.broker.server.remoting.json_bodies import json_response, long_json_response
from rockhopper.broker.server.remoting.permissions import (
    CHANGE_CLUSTER,
    SEE_CLUSTER,
    on_topic_and_group,
)
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.users.access import Action
from rockhopper.broker.users.errors import GroupNotFound, TopicNotFound
from rockhopper.protocol.bodies import MessageQueueKey, OffsetWrapper
from rockhopper.protocol.bodies.heartbeat import ProducerInfo, ProducerTableInfo
from rockhopper.protocol.codes import LanguageCode
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.fastjson import array_of, dumps, map_of, queue_text
from rockhopper.protocol.requests.groups import (
    GetBrokerConsumeStatsRequest,
    GroupForbiddenRequest,
    QueryConsumeTimeSpanRequest,
)


@dataclass(eq=False, repr=False)
class ConsumptionAdminProcessors:
    """Serves queries about consumption."""

    _config: BrokerConfig
    _store: MessageStore
    _topics: TopicTable
    _groups: SubscriptionGroupTable
    _offsets: ConsumerOffsetTable
    _producers: ProducerTable
    _stats: BrokerStats
    _steady_ms: Callable[[], int]

    def rows(self) -> dict[int, Row]:
        """Return the row of each request code."""
        return {
            Code.QUERY_CONSUME_TIME_SPAN: administers(
                self.time_span,
                *on_topic_and_group(Action.GET, group_field="group"),
                promises_state=False,
            ),
            Code.GET_BROKER_CONSUME_STATS: administers(
                self.broker_consume_stats, SEE_CLUSTER, promises_state=False
            ),
            Code.UPDATE_AND_GET_GROUP_FORBIDDEN: administers(
                self.group_forbidden, *on_topic_and_group(Action.UPDATE, group_field="group")
            ),
            Code.GET_ALL_PRODUCER_INFO: administers(
                self.producers, SEE_CLUSTER, promises_state=False
            ),
            Code.CLEAN_EXPIRED_CONSUMEQUEUE: administers(self.nothing_to_do, CHANGE_CLUSTER),
            Code.CLEAN_UNUSED_TOPIC: administers(self.nothing_to_do, CHANGE_CLUSTER),
        }

    async def time_span(self, request: Request) -> Response:
        """303: return the times of each queue's first and last messages, and the group's delay."""
        fields = request.fields(QueryConsumeTimeSpanRequest)
        store = self._store
        topic = self._topics.get(fields.topic)
        if topic is None:
            raise TopicNotFound(f"topic[{fields.topic}] not exist")
        now_ms = self._steady_ms()
        spans: list[str] = []
        for queue_id in range(topic.read_queue_nums):
            if queue_id % QUEUES_PER_TURN == QUEUES_PER_TURN - 1:
                await next_slice()
            low, high = store.reading.queue_range(topic.name, queue_id)
            earliest_ms = store.reading.earliest_store_time(topic.name, queue_id)
            offset = self._offsets.get(topic.name, fields.group, queue_id) or 0
            consumed_ms = self._read_consumed_ms(topic.name, queue_id, offset) or earliest_ms
            delay_ms = 0
            if max(offset, low) < high:
                next_ms = store.reading.store_time(topic.name, queue_id, max(offset, low))
                delay_ms = max(now_ms - next_ms, 0)
            latest_ms = (
                store.reading.store_time(topic.name, queue_id, high - 1) if high > low else -1
            )
            span = {
                "consumeTimeStamp": consumed_ms,
                "delayTime": delay_ms,
                "maxTimeStamp": latest_ms,
                "messageQueue": MessageQueueKey(topic.name, self._config.broker_name, queue_id),
                "minTimeStamp": earliest_ms,
            }
            spans.append(dumps(span))
        return await long_json_response(lambda: {"consumeTimeSpanSet": array_of(spans)})

    def _read_consumed_ms(self, topic: str, queue_id: int, offset: int) -> int:
        """Return the store time of the message before *offset*; 0 if there is none."""
        store = self._store
        low, high = store.reading.queue_range(topic, queue_id)
        if not low < offset <= high:
            return 0
        return max(store.reading.store_time(topic, queue_id, offset - 1), 0)

    async def broker_consume_stats(self, request: Request) -> Response:
        """317: return the progress of every group in every topic.

        With isOrder only in ordered topics. Apache's tool ignores queues without a lastTimestamp.
        """
        fields = request.fields(GetBrokerConsumeStatsRequest)
        by_group: dict[str, list[str]] = {}
        total = in_flight = 0
        looked_at = 0
        for topic_name, group, _ in self._offsets.entries():
            looked_at += 1
            if looked_at % QUEUES_PER_TURN == 0:
                await next_slice()
            topic = self._topics.get(topic_name)
            if topic is None or group not in self._groups or (fields.is_order and not topic.order):
                continue
            queues: list[str] = []
            consume_tps = self._stats.group_get_tps(topic_name, group)
            for queue_id in range(topic.write_queue_nums):
                looked_at += 1
                if looked_at % QUEUES_PER_TURN == 0:
                    await next_slice()
                _, high = self._store.reading.queue_range(topic_name, queue_id)
                offset = max(self._offsets.get(topic_name, group, queue_id) or 0, 0)
                key = MessageQueueKey(topic_name, self._config.broker_name, queue_id)
                consumed_ms = self._read_consumed_ms(topic_name, queue_id, offset)
                pulled = max(offset, self._stats.get_pulled_offset(topic_name, group, queue_id))
                queues.append(queue_text(key, OffsetWrapper(high, offset, pulled, consumed_ms)))
                total += max(high - offset, 0)
                in_flight += pulled - offset
            stats = {"consumeTps": consume_tps, "offsetTable": map_of(queues)}
            # Text, because freeing a hundred thousand objects would take long as well.
            by_group.setdefault(group, []).append(dumps(stats))
        connection = request.connection
        return await long_json_response(
            lambda: {
                "brokerAddr": connection.addresses.local,
                "consumeStatsList": [
                    {group: array_of(stats)} for group, stats in sorted(by_group.items())
                ],
                "totalDiff": total,
                "totalInflightDiff": in_flight,
            }
        )

    async def group_forbidden(self, request: Request) -> Response:
        """353: allow or forbid a group to read a topic, or return the state."""
        fields = request.fields(GroupForbiddenRequest)
        groups = self._groups
        if fields.readable is not None:
            if groups.find_or_create(fields.group) is None:
                raise GroupNotFound(f"Group {fields.group} does not exist")
            groups.forbid(fields.group, fields.topic, readable=fields.readable)
            await groups.saved()
        readable = not groups.is_forbidden(fields.group, fields.topic)
        return json_response({"group": fields.group, "readable": readable, "topic": fields.topic})

    async def producers(self, _request: Request) -> Response:
        """328: return every online producer, by group."""
        table = ProducerTableInfo(
            {
                group: [
                    ProducerInfo(
                        client.client_id,
                        f"/{client.connection.peer}",
                        _language(client.language),
                        client.version,
                        client.last_seen_ms,
                    )
                    for client in clients
                ]
                for group, clients in self._producers.groups().items()
            }
        )
        return await long_json_response(lambda: table)

    def nothing_to_do(self, _request: Request) -> Response:
        """306, 316: return success, because this happens automatically."""
        return Response()


def _language(code: int) -> str:
    try:
        return LanguageCode(code).name
    except ValueError:
        return LanguageCode.OTHER.name
