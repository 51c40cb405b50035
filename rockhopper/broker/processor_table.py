"""The table of the requests that a broker serves: request code -> processor and permission.

The name service has a table of its own (broker/nameserver). A code that is in neither is answered
with REQUEST_CODE_NOT_SUPPORTED.
"""

from rockhopper.broker.kernel.parts import ServingParts
from rockhopper.broker.kernel.processors import permissions
from rockhopper.broker.kernel.processors.auth_admin import AuthAdminProcessors
from rockhopper.broker.kernel.processors.broker_admin import BrokerAdminProcessors
from rockhopper.broker.kernel.processors.client_calls import ClientCallProcessors
from rockhopper.broker.kernel.processors.clients import ClientProcessors
from rockhopper.broker.kernel.processors.consumption_admin import ConsumptionAdminProcessors
from rockhopper.broker.kernel.processors.groups_admin import GroupAdminProcessors
from rockhopper.broker.kernel.processors.log_history import LogHistoryProcessor
from rockhopper.broker.kernel.processors.offsets import OffsetProcessors
from rockhopper.broker.kernel.processors.pulls import PullProcessor
from rockhopper.broker.kernel.processors.queries import QueryProcessors
from rockhopper.broker.kernel.processors.queue_locking import QueueLockProcessors
from rockhopper.broker.kernel.processors.recall import RecallProcessor
from rockhopper.broker.kernel.processors.resets import ResetProcessors
from rockhopper.broker.kernel.processors.send_back import SendBackProcessor
from rockhopper.broker.kernel.processors.store_admin import StoreAdminProcessors
from rockhopper.broker.kernel.processors.topic_ids import TopicIdProcessor
from rockhopper.broker.kernel.processors.topic_stats import StatsProcessor
from rockhopper.broker.server.remoting.dispatcher import Row, administers, serves
from rockhopper.broker.server.remoting.permissions import on_cluster, on_group, on_topic
from rockhopper.broker.users.access import Action
from rockhopper.protocol.codes import RequestCode as Code

SEE = on_cluster(Action.GET)
CHANGE = on_cluster(Action.UPDATE)
CONSUME = (on_topic(Action.SUB), on_group(Action.SUB))


def build_table(broker: ServingParts) -> dict[int, Row]:
    """The processors of *broker*; each takes the parts that it uses, and no more."""
    config, store, topics, groups = broker.config, broker.store, broker.topics, broker.groups
    offsets, consumers, producers = broker.offsets, broker.consumers, broker.producers
    stats, announce, clock = broker.stats, broker.announce, broker.clock
    clients = ClientProcessors(
        config,
        topics,
        groups,
        consumers,
        producers,
        stats,
        broker.puller,
        announce,
        clock.steady_ms,
    )
    following = OffsetProcessors(
        config.live, store, topics, groups, offsets, consumers, broker.positions
    )
    locks = QueueLockProcessors(broker.locks)
    pulls = PullProcessor(broker.puller)
    recall = RecallProcessor(config.live, store, broker.timer_recall, clock.wall_ms)
    send_back = SendBackProcessor(store, broker.send_back)
    resets = ResetProcessors(
        config, store, topics, groups, offsets, consumers, broker.puller, broker.kernel.events
    )
    calls = ClientCallProcessors(config, store, topics, groups, consumers)
    consumption = ConsumptionAdminProcessors(
        config, store, topics, groups, offsets, producers, stats, clock.steady_ms
    )
    queries = QueryProcessors(config.store.live, store, topics)
    topic_admin = broker.kernel.topic_admin
    group_admin = GroupAdminProcessors(
        config,
        store,
        topics,
        groups,
        offsets,
        consumers,
        producers,
        stats,
        broker.kernel.events,
        broker.retry_owners,
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
    figures = StatsProcessor(store, topics, groups, offsets, consumers, stats, broker.retry_owners)
    topic_ids = TopicIdProcessor(store, topics, broker.topic_ids)
    history = LogHistoryProcessor(store, broker.tables.history, broker.positions)
    store_admin = StoreAdminProcessors(
        store, topics, groups, offsets, consumers, broker.timers, clock.wall_ms
    )
    accounts = AuthAdminProcessors(config.auth, broker.tables.users, broker.tables.acls)
    send, pull = broker.kernel.sends.process, pulls.process
    rows = {
        **_accounts(accounts),
        # Producing
        Code.SEND_MESSAGE: serves(send, on_topic(Action.PUB)),
        Code.SEND_MESSAGE_V2: serves(send, permissions.SENT),
        Code.SEND_BATCH_MESSAGE: serves(send, permissions.SENT),
        Code.RECALL_MESSAGE: serves(recall.process, on_topic(Action.PUB)),
        Code.CONSUMER_SEND_MSG_BACK: serves(send_back.process, *permissions.SENT_BACK),
        # Consuming
        Code.PULL_MESSAGE: serves(pull, *permissions.PULLED),
        Code.LITE_PULL_MESSAGE: serves(pull, *permissions.PULLED),
        Code.QUERY_CONSUMER_OFFSET: serves(
            following.query_consumer_offset, *permissions.QUERY_OFFSET
        ),
        Code.UPDATE_CONSUMER_OFFSET: serves(
            following.update_consumer_offset, *permissions.COMMITTED
        ),
        Code.SEARCH_OFFSET_BY_TIMESTAMP: serves(
            following.search_by_time, on_topic(Action.SUB, Action.GET)
        ),
        Code.GET_MAX_OFFSET: serves(following.max_offset, on_topic(Action.SUB, Action.GET)),
        Code.GET_MIN_OFFSET: serves(following.min_offset, on_topic(Action.SUB, Action.GET)),
        Code.GET_EARLIEST_MSG_STORETIME: serves(
            following.earliest_store_time,
            on_topic(Action.SUB, Action.GET),
        ),
        Code.LOCK_BATCH_MQ: serves(locks.lock, *permissions.LOCKED),
        Code.UNLOCK_BATCH_MQ: serves(locks.unlock, *permissions.LOCKED),
        # Being there
        Code.HEART_BEAT: serves(clients.heartbeat, *permissions.HEARTBEAT),
        Code.UNREGISTER_CLIENT: serves(clients.unregister, permissions.UNREGISTER),
        Code.GET_CONSUMER_LIST_BY_GROUP: serves(
            clients.consumer_list, on_group(Action.SUB, Action.GET)
        ),
        Code.CHECK_CLIENT_CONFIG: serves(clients.check_config, *permissions.CHECKED),
        # Looking messages up
        Code.QUERY_MESSAGE: serves(queries.by_key, on_topic(Action.SUB, Action.GET)),
        Code.VIEW_MESSAGE_BY_ID: serves(queries.by_offset, on_topic(Action.GET)),
        # Topics
        Code.UPDATE_AND_CREATE_TOPIC: administers(
            topic_admin.update_topic, on_topic(Action.CREATE)
        ),
        Code.UPDATE_AND_CREATE_TOPIC_LIST: administers(
            topic_admin.update_topics, permissions.TOPICS_MADE
        ),
        Code.DELETE_TOPIC_IN_BROKER: administers(topic_admin.delete_topic, on_topic(Action.DELETE)),
        Code.PURGE_TOPIC: administers(topic_admin.purge_topic, on_topic(Action.DELETE)),
        Code.GET_ALL_TOPIC_CONFIG: administers(topic_admin.get_all_topics, permissions.ALL_TOPICS),
        Code.GET_TOPIC_CONFIG: administers(topic_admin.get_topic, on_topic(Action.GET)),
        Code.GET_TOPIC_STATS_INFO: administers(topic_admin.topic_stats, on_topic(Action.GET)),
        Code.QUERY_TOPIC_CONSUME_BY_WHO: administers(
            topic_admin.who_consumes, on_topic(Action.GET)
        ),
        Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: administers(topic_admin.system_topics, SEE),
        # Groups
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: administers(
            group_admin.update_group, permissions.GROUP_MADE
        ),
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: administers(
            group_admin.update_groups, permissions.GROUPS_MADE
        ),
        Code.DELETE_SUBSCRIPTIONGROUP: administers(
            group_admin.delete_group, on_group(Action.DELETE, field="groupName")
        ),
        Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: administers(
            group_admin.get_all_groups, permissions.ALL_GROUPS
        ),
        Code.GET_SUBSCRIPTIONGROUP_CONFIG: administers(
            group_admin.get_group, on_group(Action.GET, field="group")
        ),
        Code.GET_CONSUMER_CONNECTION_LIST: administers(
            group_admin.consumer_connections, on_group(Action.GET)
        ),
        Code.GET_PRODUCER_CONNECTION_LIST: administers(group_admin.producer_connections, SEE),
        Code.QUERY_SUBSCRIPTION_BY_CONSUMER: administers(
            group_admin.subscription_of, *permissions.GROUP_INFO
        ),
        Code.QUERY_TOPICS_BY_CONSUMER: administers(
            group_admin.topics_of, on_group(Action.GET, field="group")
        ),
        Code.GET_CONSUME_STATS: administers(group_admin.consume_stats, *permissions.CONSUME_STATS),
        Code.INVOKE_BROKER_TO_RESET_OFFSET: administers(
            resets.reset_offsets, *permissions.RESET_OFFSET
        ),
        Code.QUERY_CORRECTION_OFFSET: administers(
            resets.correction_offsets, *permissions.CORRECTED
        ),
        Code.CLONE_GROUP_OFFSET: administers(resets.clone_offsets, *permissions.CLONED),
        Code.QUERY_CONSUME_TIME_SPAN: administers(consumption.time_span, *permissions.GROUP_INFO),
        Code.GET_BROKER_CONSUME_STATS: administers(consumption.broker_consume_stats, SEE),
        Code.UPDATE_AND_GET_GROUP_FORBIDDEN: administers(
            consumption.group_forbidden, *permissions.RESET_OFFSET
        ),
        Code.GET_ALL_PRODUCER_INFO: administers(consumption.producers, SEE),
        Code.CLEAN_EXPIRED_CONSUMEQUEUE: administers(consumption.nothing_to_do, CHANGE),
        Code.CLEAN_UNUSED_TOPIC: administers(consumption.nothing_to_do, CHANGE),
        # Asked of consumers
        Code.GET_CONSUMER_RUNNING_INFO: administers(calls.running_info, on_group(Action.GET)),
        Code.CONSUME_MESSAGE_DIRECTLY: administers(calls.consume_directly, *CONSUME),
        Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: administers(
            calls.consumer_status, *permissions.GROUP_INFO
        ),
        # Jobs (ours alone)
        Code.TOPIC_IDS: serves(topic_ids.process, permissions.IDENTIFIED),
        Code.LOG_HISTORY: serves(history.process, permissions.COMPARED),
        # The broker
        Code.UPDATE_BROKER_CONFIG: administers(admin.update_config, CHANGE),
        Code.GET_BROKER_CONFIG: administers(admin.get_config, SEE),
        Code.DESCRIBE_CONFIG: administers(admin.describe_config, SEE),
        Code.FIGURES: administers(figures.process, SEE),
        Code.GET_BROKER_RUNTIME_INFO: administers(admin.get_runtime_info, SEE),
        Code.VIEW_BROKER_STATS_DATA: administers(admin.view_stats, SEE),
        Code.GET_ALL_CONSUMER_OFFSET: administers(following.all_consumer_offsets, SEE),
        Code.GET_ALL_DELAY_OFFSET: administers(admin.all_delay_offsets, SEE),
        **_of_store(store_admin),
    }
    for name, part in broker.features.items():
        if taken := sorted(rows.keys() & part.processors.keys()):
            raise ValueError(f"the feature {name} serves the code {taken[0]}, which is another's")
        rows.update(part.processors)
    for part in broker.features.values():
        for code, wrap in part.wraps.items():
            rows[code] = rows[code]._replace(processor=wrap(rows[code].processor))
    return rows


def _accounts(accounts: AuthAdminProcessors) -> dict[int, Row]:
    return {
        Code.AUTH_CREATE_USER: administers(accounts.create_user, CHANGE),
        Code.AUTH_UPDATE_USER: administers(accounts.update_user, CHANGE),
        Code.AUTH_DELETE_USER: administers(accounts.delete_user, CHANGE),
        Code.AUTH_GET_USER: administers(accounts.get_user, SEE),
        Code.AUTH_LIST_USER: administers(accounts.list_users, SEE),
        Code.AUTH_CREATE_ACL: administers(accounts.create_acl, CHANGE),
        Code.AUTH_UPDATE_ACL: administers(accounts.update_acl, CHANGE),
        Code.AUTH_DELETE_ACL: administers(accounts.delete_acl, CHANGE),
        Code.AUTH_GET_ACL: administers(accounts.get_acl, SEE),
        Code.AUTH_LIST_ACL: administers(accounts.list_acls, SEE),
        Code.EXPLAIN_ACCESS: administers(accounts.explain, SEE),
    }


def _of_store(store: StoreAdminProcessors) -> dict[int, Row]:
    return {
        Code.GET_TIMER_CHECK_POINT: administers(store.timer_check_point, SEE),
        Code.GET_TIMER_METRICS: administers(store.timer_metrics, SEE),
        Code.QUERY_CONSUME_QUEUE: administers(store.query_consume_queue, *permissions.QUEUE_SEEN),
        Code.DELETE_EXPIRED_COMMITLOG: administers(store.delete_expired, CHANGE),
        Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: administers(
            store.rocksdb_progress, on_topic(Action.GET)
        ),
        Code.EXPORT_ROCKSDB_CONFIG_TO_JSON: administers(store.export_config, SEE),
        Code.GET_BROKER_HA_STATUS: administers(store.ha_status, SEE),
        Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: administers(store.update_cold_control, CHANGE),
        Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: administers(store.remove_cold_control, CHANGE),
        Code.GET_COLD_DATA_FLOW_CTR_INFO: administers(store.cold_control, SEE),
        Code.SET_COMMITLOG_READ_MODE: administers(store.set_read_mode, CHANGE),
    }
