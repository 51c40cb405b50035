"""Header fields of requests from producers, and from brokers to producers."""

import msgspec
from msgspec import field

from rockhopper.protocol.requests.fields import Int32, Int64, RpcRequest


class SendMessageRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """SEND_MESSAGE (10), SEND_REPLY_MESSAGE (324)."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
    batch: bool = False


class SendMessageRequestV2(RpcRequest, frozen=True, kw_only=True, gc=False):
    """SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320), SEND_REPLY_MESSAGE_V2 (325)."""

    producer_group: str = field(name="a")
    topic: str = field(name="b")
    default_topic: str = field(name="c")
    default_topic_queue_nums: Int32 = field(name="d")
    queue_id: Int32 = field(name="e")
    sys_flag: Int32 = field(name="f")
    born_timestamp: Int64 = field(name="g")
    flag: Int32 = field(name="h")
    properties: str | None = field(name="i", default=None)
    reconsume_times: Int32 | None = field(name="j", default=None)
    unit_mode: bool = field(name="k", default=False)
    max_reconsume_times: Int32 | None = field(name="l", default=None)
    batch: bool = field(name="m", default=False)
    broker_name: str | None = field(name="n", default=None)


class SendMessageResponse(msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False):
    """Where the message is stored; for a batch, ids joined by commas and the first offset."""

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    msg_region: str | None = field(name="MSG_REGION", default=None)
    trace_on: bool | None = field(name="TRACE_ON", default=None)


class EndTransactionRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """END_TRANSACTION (37); ``commit_or_rollback`` is 8, 12, or 0 for unknown."""

    topic: str | None = None
    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    from_transaction_check: bool = False
    msg_id: str | None = None
    transaction_id: str | None = None


class CheckTransactionStateRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """CHECK_TRANSACTION_STATE (39), from the broker."""

    topic: str | None = None
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class ResumeCheckHalfMessageRequest(
    RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False
):
    """RESUME_CHECK_HALF_MESSAGE (323): the offset message id of the half message."""

    topic: str | None = None
    msg_id: str | None = None


class RecallMessageRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """RECALL_MESSAGE (370)."""

    producer_group: str | None = None
    topic: str
    recall_handle: str


class RecallMessageResponse(msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False):
    """The unique key of the recalled message."""

    msg_id: str


class ReplyMessageRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """PUSH_REPLY_MESSAGE_TO_CLIENT (326), from the broker; hosts are ``ip:port``."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    born_host: str
    store_host: str
    store_timestamp: Int64
