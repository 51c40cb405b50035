"""Header fields of the pop family (200050 to 200055)."""

import msgspec

from rockhopper.protocol.requests.fields import Int32, Int64, RpcRequest


class PopMessageRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """POP_MESSAGE (200050); queue −1 means all; initMode 0 is the oldest message, 1 the newest."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    invisible_time: Int64
    poll_time: Int64
    born_time: Int64 = 0
    init_mode: Int32
    exp_type: str | None = None
    exp: str | None = None
    order: bool = False
    attempt_id: str | None = None


class AckMessageRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """ACK_MESSAGE (200051)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64


class ChangeInvisibleTimeRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """CHANGE_MESSAGE_INVISIBLETIME (200053); with *suspend* the next delivery is not counted."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    invisible_time: Int64
    suspend: bool = False


class ChangeInvisibleTimeResponse(
    msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False
):
    """The values from which the client makes its new extra info."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32


class NotificationRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """NOTIFICATION (200054)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time: Int64
    born_time: Int64 = 0
    order: bool = False
    attempt_id: str | None = None


class NotificationResponse(msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False):
    """Whether a pop would find a message."""

    has_msg: bool
    polling_full: bool = False


class PeekMessageRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """PEEK_MESSAGE (200052)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32


class PollingInfoRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """POLLING_INFO (200055)."""

    consumer_group: str
    topic: str
    queue_id: Int32


class PollingInfoResponse(msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False):
    """The number of waiting pops."""

    polling_num: Int32
