"""Header fields of requests from consumers: membership, pulls, offsets, look-ups."""

import msgspec
from msgspec import field

from rockhopper.protocol.requests.fields import Int32, Int64, RpcRequest


class HeartbeatRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """HEART_BEAT (34)."""


class HeartbeatResponse(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The broker's answer to a heartbeat, for version 2 of heartbeats."""

    is_support_heart_beat_v2: bool | None = field(name="IS_SUPPORT_HEART_BEAT_V2", default=None)
    is_sub_change: bool | None = field(name="IS_SUB_CHANGE", default=None)
    store_time: int | None = field(name="storeTime", default=None)
    """Rockhopper's: the time at the broker, for clients whose heartbeat has this field."""


class UnregisterClientRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """UNREGISTER_CLIENT (35)."""

    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListByGroupRequest(
    RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False
):
    """GET_CONSUMER_LIST_BY_GROUP (38)."""

    consumer_group: str


class NotifyConsumerIdsChangedRequest(
    RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False
):
    """NOTIFY_CONSUMER_IDS_CHANGED (40), from the broker."""

    consumer_group: str


class PullMessageRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """PULL_MESSAGE (11), LITE_PULL_MESSAGE (361); some clients omit fields they do not use."""

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64 = 0
    suspend_timeout_millis: Int64 = 0
    subscription: str | None = None
    sub_version: Int64 = 0
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    request_source: Int32 | None = None
    proxy_froward_client_id: str | None = None


class PullMessageResponse(msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False):
    """The first four are required for codes 0, 19, 20 and 21."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None


class QueryConsumerOffsetRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """QUERY_CONSUMER_OFFSET (14)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None


class UpdateConsumerOffsetRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """UPDATE_CONSUMER_OFFSET (15)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64


class GetMaxOffsetRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """GET_MAX_OFFSET (30)."""

    topic: str
    queue_id: Int32
    committed: bool = True


class GetMinOffsetRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """GET_MIN_OFFSET (31)."""

    topic: str
    queue_id: Int32


class SearchOffsetRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """SEARCH_OFFSET_BY_TIMESTAMP (29); any value but ``UPPER`` counts as ``LOWER``."""

    topic: str
    queue_id: Int32
    timestamp: Int64
    boundary_type: str | None = None


class OffsetResponse(msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False):
    """The answer to 14, 29, 30 and 31."""

    offset: Int64


class GetEarliestMsgStoretimeRequest(
    RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False
):
    """GET_EARLIEST_MSG_STORETIME (32)."""

    topic: str
    queue_id: Int32


class GetEarliestMsgStoretimeResponse(
    msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False
):
    """A store time in ms, −1 if the queue is empty."""

    timestamp: Int64


class ConsumerSendMsgBackRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """CONSUMER_SEND_MSG_BACK (36); ``offset`` is a commit log offset.

    ``storeTimestamp``, which RocketMQ does not have, is the store time of the message.
    """

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
    store_timestamp: Int64 | None = None


class QueryMessageRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """QUERY_MESSAGE (12)."""

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    is_unique_key: bool = field(name="_UNIQUE_KEY_QUERY", default=False)
    index_type: str | None = None


class QueryMessageResponse(msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False):
    """The progress of the index."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


class ViewMessageRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """VIEW_MESSAGE_BY_ID (33); ``offset`` is a commit log offset."""

    offset: Int64
    topic: str | None = None
