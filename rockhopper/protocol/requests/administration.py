"""Header fields of requests about topics, groups and the broker itself."""

import msgspec

from rockhopper.protocol.requests.fields import Int32, Int64, RpcRequest


class CreateTopicRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """UPDATE_AND_CREATE_TOPIC (17); attributes are ``+key=value,-key``."""

    topic: str
    default_topic: str | None = None
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 | None = None
    order: bool = False
    attributes: str | None = None
    force: bool = False


class TopicRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """215, 351, 300, 217: only a topic."""

    topic: str


class TopicStatsRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """GET_TOPIC_STATS_INFO (202); sizes, which RocketMQ does not support, cost more."""

    topic: str
    sizes: bool = False


class GetAllTopicConfigRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """GET_ALL_TOPIC_CONFIG (21); old clients send none of these fields."""

    topic_seq: Int32 | None = None
    data_version: str | None = None
    max_topic_num: Int32 | None = None


class GetAllTopicConfigResponse(
    msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False
):
    """The number of topics on all pages."""

    total_topic_num: Int32


class GetAllSubscriptionGroupRequest(
    RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False
):
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201)."""

    group_seq: Int32 | None = None
    data_version: str | None = None
    max_group_num: Int32 | None = None


class GetAllSubscriptionGroupResponse(
    msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False
):
    """The number of groups on all pages."""

    total_group_num: Int32


class GetBrokerConfigResponse(msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False):
    """GET_BROKER_CONFIG (26): the version of the settings as JSON."""

    version: str


class FiguresRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """FIGURES (70018): whether the messages of each topic are counted too."""

    details: bool = False
    ages: bool = False


class ConsumerGroupRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """GET_CONSUMER_CONNECTION_LIST (203)."""

    consumer_group: str


class ProducerGroupRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """GET_PRODUCER_CONNECTION_LIST (204)."""

    producer_group: str


class GroupRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """352: only a group."""

    group: str


class QueryTopicsByConsumerRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """343."""

    group: str
    with_retry_topics: bool = False
    """Rockhopper's: include retry topics with messages for the group, consumed or not."""


class DeleteSubscriptionGroupRequest(
    RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False
):
    """DELETE_SUBSCRIPTIONGROUP (207)."""

    group_name: str
    clean_offset: bool = False


class GetConsumeStatsRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """GET_CONSUME_STATS (208); topics of the list are joined by semicolons."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class ResetOffsetRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """INVOKE_BROKER_TO_RESET_OFFSET (222) and RESET_CONSUMER_CLIENT_OFFSET (220)."""

    group: str
    topic: str
    queue_id: Int32 = -1
    offset: Int64 | None = None
    timestamp: Int64
    is_force: bool = False


class QueryConsumeQueueRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """QUERY_CONSUME_QUEUE (321)."""

    topic: str
    queue_id: Int32 = 0
    index: Int64 = 0
    count: Int32 = 0
    consumer_group: str | None = None


class ExportConfigRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """EXPORT_ROCKSDB_CONFIG_TO_JSON (355): kinds of tables, separated by ``;``."""

    config_type: str


class ReadAheadModeRequest(RpcRequest, frozen=True, kw_only=True, gc=False):
    """SET_COMMITLOG_READ_MODE (2004)."""

    mode: str | None = msgspec.field(name="READ_AHEAD_MODE", default=None)


class QueryCorrectionOffsetRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """QUERY_CORRECTION_OFFSET (308); groups are separated by ``,``."""

    topic: str
    filter_groups: str | None = None
    compare_group: str | None = None
