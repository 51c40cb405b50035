"""The one table of what a broker serves: request code -> processor, and who may ask.

The name service has a table of its own (broker/nameserver).  A code that is in neither is answered
with REQUEST_CODE_NOT_SUPPORTED.
"""

from broker.dispatcher import Entry, Processor
from broker.processors.broker_admin import BrokerAdminProcessors
from broker.processors.clients import ClientProcessors
from broker.processors.groups_admin import GroupAdminProcessors
from broker.processors.offsets import OffsetProcessors
from broker.processors.parts import BrokerParts
from broker.processors.queries import QueryProcessors
from broker.processors.queue_locking import QueueLockProcessors
from broker.processors.send_back import SendBackProcessor
from broker.processors.topics_admin import TopicAdminProcessors
from protocol.codes import RequestCode as Code


def build_table(broker: BrokerParts) -> dict[int, Entry]:
    """The processors of *broker*."""
    send, pull = broker.send_path.process, broker.pull_path.process
    clients = ClientProcessors(broker)
    offsets = OffsetProcessors(broker)
    locks = QueueLockProcessors(broker)
    queries = QueryProcessors(broker)
    topics = TopicAdminProcessors(broker)
    groups = GroupAdminProcessors(broker)
    admin = BrokerAdminProcessors(broker)
    return {
        # Producing
        Code.SEND_MESSAGE: Entry(send),
        Code.SEND_MESSAGE_V2: Entry(send),
        Code.SEND_BATCH_MESSAGE: Entry(send),
        Code.CONSUMER_SEND_MSG_BACK: Entry(SendBackProcessor(broker).process),
        # Consuming
        Code.PULL_MESSAGE: Entry(pull),
        Code.LITE_PULL_MESSAGE: Entry(pull),
        Code.QUERY_CONSUMER_OFFSET: Entry(offsets.query_consumer_offset),
        Code.UPDATE_CONSUMER_OFFSET: Entry(offsets.update_consumer_offset),
        Code.SEARCH_OFFSET_BY_TIMESTAMP: Entry(offsets.search_by_time),
        Code.GET_MAX_OFFSET: Entry(offsets.max_offset),
        Code.GET_MIN_OFFSET: Entry(offsets.min_offset),
        Code.GET_EARLIEST_MSG_STORETIME: Entry(offsets.earliest_store_time),
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
        Code.UPDATE_AND_CREATE_TOPIC: _admin(topics.update_topic),
        Code.UPDATE_AND_CREATE_TOPIC_LIST: _admin(topics.update_topics),
        Code.DELETE_TOPIC_IN_BROKER: _admin(topics.delete_topic),
        Code.GET_ALL_TOPIC_CONFIG: _admin(topics.get_all_topics),
        Code.GET_TOPIC_CONFIG: _admin(topics.get_topic),
        Code.GET_TOPIC_STATS_INFO: _admin(topics.topic_stats),
        Code.QUERY_TOPIC_CONSUME_BY_WHO: _admin(topics.who_consumes),
        Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _admin(topics.system_topics),
        # Groups
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _admin(groups.update_group),
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _admin(groups.update_groups),
        Code.DELETE_SUBSCRIPTIONGROUP: _admin(groups.delete_group),
        Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _admin(groups.get_all_groups),
        Code.GET_SUBSCRIPTIONGROUP_CONFIG: _admin(groups.get_group),
        Code.GET_CONSUMER_CONNECTION_LIST: _admin(groups.consumer_connections),
        Code.GET_PRODUCER_CONNECTION_LIST: _admin(groups.producer_connections),
        Code.QUERY_SUBSCRIPTION_BY_CONSUMER: _admin(groups.subscription_of),
        Code.QUERY_TOPICS_BY_CONSUMER: _admin(groups.topics_of),
        Code.GET_CONSUME_STATS: _admin(groups.consume_stats),
        Code.INVOKE_BROKER_TO_RESET_OFFSET: _admin(offsets.reset_offsets),
        # The broker
        Code.UPDATE_BROKER_CONFIG: _admin(admin.update_config),
        Code.GET_BROKER_CONFIG: _admin(admin.get_config),
        Code.GET_BROKER_RUNTIME_INFO: _admin(admin.get_runtime_info),
        Code.VIEW_BROKER_STATS_DATA: _admin(admin.view_stats),
        Code.GET_ALL_CONSUMER_OFFSET: _admin(offsets.all_consumer_offsets),
        Code.GET_ALL_DELAY_OFFSET: _admin(admin.all_delay_offsets),
    }


def _admin(processor: Processor) -> Entry:
    return Entry(processor, admin=True)
