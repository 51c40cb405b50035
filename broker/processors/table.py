"""The one table of what a broker serves: request code -> processor, and who may ask.

The name service has a table of its own (broker/nameserver). A code that is in neither is answered
with REQUEST_CODE_NOT_SUPPORTED.
"""

from typing import Protocol

from rockhopper.broker.later.delayed import DelayedDelivery
from rockhopper.broker.later.timers.timers import Timers
from rockhopper.broker.loop.clock import BrokerClock
from rockhopper.broker.members.consumer_groups import ConsumerGroups
from rockhopper.broker.members.producers import ProducerTable
from rockhopper.broker.members.queue_locks import QueueLocks
from rockhopper.broker.nameserver.cluster_queues import ClusterQueues
from rockhopper.broker.nameserver.peer_brokers import PeerBrokers
from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.pop.service import PopService
from rockhopper.broker.processors.assignment import AssignmentProcessors
from rockhopper.broker.processors.broker_admin import BrokerAdminProcessors
from rockhopper.broker.processors.bulk import BulkPullProcessor
from rockhopper.broker.processors.client_calls import ClientCallProcessors
from rockhopper.broker.processors.clients import ClientProcessors
from rockhopper.broker.processors.consumption_admin import ConsumptionAdminProcessors
from rockhopper.broker.processors.groups_admin import GroupAdminProcessors
from rockhopper.broker.processors.offsets import OffsetProcessors
from rockhopper.broker.processors.pop import PopProcessors
from rockhopper.broker.processors.pop_checks import PopChecks
from rockhopper.broker.processors.pulls import PullProcessor
from rockhopper.broker.processors.queries import QueryProcessors
from rockhopper.broker.processors.queue_locking import QueueLockProcessors
from rockhopper.broker.processors.recall import RecallProcessor
from rockhopper.broker.processors.replies import ReplyProcessor
from rockhopper.broker.processors.resets import ResetProcessors
from rockhopper.broker.processors.send_back import SendBackProcessor
from rockhopper.broker.processors.sinks import SinkProcessors
from rockhopper.broker.processors.static_topics import StaticTopicProcessors
from rockhopper.broker.processors.store_admin import StoreAdminProcessors
from rockhopper.broker.processors.topic_ids import TopicIdProcessor
from rockhopper.broker.processors.topics_admin import TopicAdminProcessors
from rockhopper.broker.processors.transactions import TransactionProcessors
from rockhopper.broker.pulling.puller import Puller
from rockhopper.broker.remoting.dispatcher import Entry, Processor
from rockhopper.broker.sending.sender import Sender
from rockhopper.broker.settings.config import BrokerConfig
from rockhopper.broker.sinks import SinkPublisher
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.tables.consumer_offsets import ConsumerOffsetTable
from rockhopper.broker.tables.static_topics import StaticTopicTable
from rockhopper.broker.tables.subscription_groups import SubscriptionGroupTable
from rockhopper.broker.tables.topic_ids import TopicIds
from rockhopper.broker.tables.topics import TopicTable
from rockhopper.broker.transactions.transactions import Transactions
from rockhopper.protocol.codes import RequestCode as Code


class BrokerParts(Protocol):
    """What the table deals out: each processor takes the parts that it uses, and no more."""

    config: BrokerConfig
    clock: BrokerClock
    stats: BrokerStats
    store: MessageStore
    topics: TopicTable
    groups: SubscriptionGroupTable
    offsets: ConsumerOffsetTable
    static_topics: StaticTopicTable
    topic_ids: TopicIds
    peer_brokers: PeerBrokers
    cluster_queues: ClusterQueues
    consumers: ConsumerGroups
    producers: ProducerTable
    locks: QueueLocks
    delayed: DelayedDelivery
    timers: Timers
    transactions: Transactions
    pop: PopService
    sinks: SinkPublisher
    sender: Sender
    puller: Puller

    async def announce(self) -> None:
        """Return when the name services elsewhere know the topics as they are now, or are down."""

    def change_config(self, config: BrokerConfig) -> None:
        """Go on with other run-time settings."""


def build_table(broker: BrokerParts) -> dict[int, Entry]:
    """The processors of *broker*."""
    config, store, topics, groups = broker.config, broker.store, broker.topics, broker.groups
    offsets, consumers, producers = broker.offsets, broker.consumers, broker.producers
    stats, pop, announce, clock = broker.stats, broker.pop, broker.announce, broker.clock
    clients = ClientProcessors(
        config, topics, groups, consumers, producers, stats, broker.puller, announce
    )
    following = OffsetProcessors(config.live, store, topics, groups, offsets, consumers)
    locks = QueueLockProcessors(broker.locks)
    replies = ReplyProcessor(config, store, producers, broker.sender, clock.wall_ms)
    pulls = PullProcessor(broker.puller)
    recall = RecallProcessor(config, store, topics, broker.timers, clock.wall_ms)
    send_back = SendBackProcessor(config, store, topics, groups, broker.delayed, stats)
    resets = ResetProcessors(config, store, topics, groups, offsets, consumers, broker.puller, pop)
    calls = ClientCallProcessors(config, store, topics, groups, consumers)
    consumption = ConsumptionAdminProcessors(
        config, store, topics, groups, offsets, producers, stats, clock.steady_ms
    )
    queries = QueryProcessors(config.store.live, store, topics)
    topic_admin = TopicAdminProcessors(
        config, store, topics, broker.static_topics, offsets, consumers, stats, pop, announce
    )
    group_admin = GroupAdminProcessors(
        config, store, topics, groups, offsets, consumers, producers, stats, pop
    )
    admin = BrokerAdminProcessors(
        config,
        store,
        broker.delayed,
        stats,
        clock.wall_ms,
        clock.steady_ms,
        broker.change_config,
    )
    assignment = AssignmentProcessors(topics, groups, consumers, pop, broker.cluster_queues)
    transactions = TransactionProcessors(store, broker.transactions)
    popping = PopProcessors(config, pop, PopChecks(config, store, topics, groups), clock.wall_ms)
    bulk = BulkPullProcessor(store, broker.topic_ids, stats, broker.puller)
    topic_ids = TopicIdProcessor(store, topics, broker.topic_ids)
    sinks = SinkProcessors(config, store, topics, broker.timers, broker.sinks, clock.wall_ms)
    store_admin = StoreAdminProcessors(
        store, topics, groups, offsets, consumers, broker.timers, clock.wall_ms
    )
    static = StaticTopicProcessors(
        config,
        store,
        topics,
        broker.static_topics,
        broker.peer_brokers,
        groups,
        offsets,
        announce,
        topic_admin,
    )
    logical = static.logical
    send = logical(replies.sends.process, static.send)
    pull = logical(pulls.process, static.pull)
    return {
        **_pop(popping),
        # Queues shared out by the broker
        Code.QUERY_ASSIGNMENT: Entry(assignment.query),
        Code.SET_MESSAGE_REQUEST_MODE: _admin(assignment.set_mode),
        Code.GET_ALL_MESSAGE_REQUEST_MODE: _admin(assignment.all_modes),
        # Producing
        Code.SEND_MESSAGE: Entry(send),
        Code.SEND_MESSAGE_V2: Entry(send),
        Code.SEND_BATCH_MESSAGE: Entry(send),
        Code.RECALL_MESSAGE: Entry(recall.process),
        Code.CONSUMER_SEND_MSG_BACK: Entry(send_back.process),
        Code.END_TRANSACTION: Entry(transactions.end),
        Code.RESUME_CHECK_HALF_MESSAGE: _admin(transactions.resume),
        Code.SEND_REPLY_MESSAGE: Entry(replies.process),
        Code.SEND_REPLY_MESSAGE_V2: Entry(replies.process),
        # Consuming
        Code.PULL_MESSAGE: Entry(pull),
        Code.LITE_PULL_MESSAGE: Entry(pull),
        Code.QUERY_CONSUMER_OFFSET: Entry(
            logical(following.query_consumer_offset, static.query_offset)
        ),
        Code.UPDATE_CONSUMER_OFFSET: Entry(
            logical(following.update_consumer_offset, static.commit_offset)
        ),
        Code.SEARCH_OFFSET_BY_TIMESTAMP: Entry(logical(following.search_by_time, static.search)),
        Code.GET_MAX_OFFSET: Entry(logical(following.max_offset, static.max_offset)),
        Code.GET_MIN_OFFSET: Entry(logical(following.min_offset, static.search)),
        Code.GET_EARLIEST_MSG_STORETIME: Entry(
            logical(following.earliest_store_time, static.earliest_time)
        ),
        Code.LOCK_BATCH_MQ: Entry(locks.lock),
        Code.UNLOCK_BATCH_MQ: Entry(locks.unlock),
        # Being there
        Code.HEART_BEAT: Entry(clients.heartbeat),
        Code.UNREGISTER_CLIENT: Entry(clients.unregister),
        Code.GET_CONSUMER_LIST_BY_GROUP: Entry(clients.consumer_list),
        Code.CHECK_CLIENT_CONFIG: Entry(clients.check_config),
        # Looking messages up
        Code.QUERY_MESSAGE: Entry(queries.by_key),
        Code.VIEW_MESSAGE_BY_ID: Entry(queries.by_offset),
        # Topics
        Code.UPDATE_AND_CREATE_TOPIC: _admin(topic_admin.update_topic),
        Code.UPDATE_AND_CREATE_TOPIC_LIST: _admin(topic_admin.update_topics),
        Code.UPDATE_AND_CREATE_STATIC_TOPIC: _admin(static.update),
        Code.DELETE_TOPIC_IN_BROKER: _admin(topic_admin.delete_topic),
        Code.PURGE_TOPIC: _admin(topic_admin.purge_topic),
        Code.GET_ALL_TOPIC_CONFIG: _admin(topic_admin.get_all_topics),
        Code.GET_TOPIC_CONFIG: _admin(topic_admin.get_topic),
        Code.GET_TOPIC_STATS_INFO: _admin(topic_admin.topic_stats),
        Code.QUERY_TOPIC_CONSUME_BY_WHO: _admin(topic_admin.who_consumes),
        Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _admin(topic_admin.system_topics),
        # Groups
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _admin(group_admin.update_group),
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _admin(group_admin.update_groups),
        Code.DELETE_SUBSCRIPTIONGROUP: _admin(group_admin.delete_group),
        Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _admin(group_admin.get_all_groups),
        Code.GET_SUBSCRIPTIONGROUP_CONFIG: _admin(group_admin.get_group),
        Code.GET_CONSUMER_CONNECTION_LIST: _admin(group_admin.consumer_connections),
        Code.GET_PRODUCER_CONNECTION_LIST: _admin(group_admin.producer_connections),
        Code.QUERY_SUBSCRIPTION_BY_CONSUMER: _admin(group_admin.subscription_of),
        Code.QUERY_TOPICS_BY_CONSUMER: _admin(group_admin.topics_of),
        Code.GET_CONSUME_STATS: _admin(group_admin.consume_stats),
        Code.INVOKE_BROKER_TO_RESET_OFFSET: _admin(resets.reset_offsets),
        Code.QUERY_CORRECTION_OFFSET: _admin(resets.correction_offsets),
        Code.CLONE_GROUP_OFFSET: _admin(resets.clone_offsets),
        Code.QUERY_CONSUME_TIME_SPAN: _admin(consumption.time_span),
        Code.GET_BROKER_CONSUME_STATS: _admin(consumption.broker_consume_stats),
        Code.UPDATE_AND_GET_GROUP_FORBIDDEN: _admin(consumption.group_forbidden),
        Code.GET_ALL_PRODUCER_INFO: _admin(consumption.producers),
        Code.CLEAN_EXPIRED_CONSUMEQUEUE: _admin(consumption.nothing_to_do),
        Code.CLEAN_UNUSED_TOPIC: _admin(consumption.nothing_to_do),
        # Asked of consumers
        Code.GET_CONSUMER_RUNNING_INFO: _admin(calls.running_info),
        Code.CONSUME_MESSAGE_DIRECTLY: _admin(calls.consume_directly),
        Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _admin(calls.consumer_status),
        # Jobs (ours alone)
        Code.BULK_PULL: Entry(bulk.process),
        Code.TOPIC_IDS: Entry(topic_ids.process),
        Code.SINK_STAGE: Entry(sinks.stage),
        Code.SINK_PUBLISH: Entry(sinks.publish),
        Code.SINK_STATUS: Entry(sinks.status),
        Code.SINK_ABORT: Entry(sinks.abort),
        Code.SINK_HOME: Entry(sinks.home),
        # The broker
        Code.UPDATE_BROKER_CONFIG: _admin(admin.update_config),
        Code.GET_BROKER_CONFIG: _admin(admin.get_config),
        Code.GET_BROKER_RUNTIME_INFO: _admin(admin.get_runtime_info),
        Code.VIEW_BROKER_STATS_DATA: _admin(admin.view_stats),
        Code.GET_ALL_CONSUMER_OFFSET: _admin(following.all_consumer_offsets),
        Code.GET_ALL_DELAY_OFFSET: _admin(admin.all_delay_offsets),
        **_of_store(store_admin),
    }


def _pop(pop: PopProcessors) -> dict[int, Entry]:
    """The pop family, also by the lower 16 bits of its codes: all that a binary header holds."""
    entries: dict[int, Entry] = {
        Code.POP_MESSAGE: Entry(pop.pop),
        Code.ACK_MESSAGE: Entry(pop.ack),
        Code.BATCH_ACK_MESSAGE: Entry(pop.batch_ack),
        Code.PEEK_MESSAGE: Entry(pop.peek),
        Code.CHANGE_MESSAGE_INVISIBLETIME: Entry(pop.change_invisible),
        Code.NOTIFICATION: Entry(pop.notification),
        Code.POLLING_INFO: Entry(pop.polling_info),
    }
    return entries | {code & 0xFFFF: entry for code, entry in entries.items()}


def _of_store(store: StoreAdminProcessors) -> dict[int, Entry]:
    return {
        Code.GET_TIMER_CHECK_POINT: _admin(store.timer_check_point),
        Code.GET_TIMER_METRICS: _admin(store.timer_metrics),
        Code.QUERY_CONSUME_QUEUE: _admin(store.query_consume_queue),
        Code.DELETE_EXPIRED_COMMITLOG: _admin(store.delete_expired),
        Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: _admin(store.rocksdb_progress),
        Code.EXPORT_ROCKSDB_CONFIG_TO_JSON: _admin(store.export_config),
        Code.GET_BROKER_HA_STATUS: _admin(store.ha_status),
        Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: _admin(store.update_cold_control),
        Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: _admin(store.remove_cold_control),
        Code.GET_COLD_DATA_FLOW_CTR_INFO: _admin(store.cold_control),
        Code.SET_COMMITLOG_READ_MODE: _admin(store.set_read_mode),
    }


def _admin(processor: Processor) -> Entry:
    return Entry(processor, admin=True)
