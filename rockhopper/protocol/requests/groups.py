"""Header fields of administrators' requests about groups and their clients."""

from rockhopper.protocol.requests.fields import Int32, RpcRequest


class QueryConsumeTimeSpanRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """QUERY_CONSUME_TIME_SPAN (303)."""

    topic: str
    group: str


class GetConsumerRunningInfoRequest(
    RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False
):
    """GET_CONSUMER_RUNNING_INFO (307)."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyRequest(
    RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False
):
    """CONSUME_MESSAGE_DIRECTLY (309)."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None


class CloneGroupOffsetRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """CLONE_GROUP_OFFSET (314); no topic means all topics."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class GetBrokerConsumeStatsRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """GET_BROKER_CONSUME_STATS (317)."""

    is_order: bool = False


class GetConsumerStatusRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223); ``client_addr`` is a client id."""

    topic: str
    group: str
    client_addr: str | None = None


class GroupForbiddenRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """UPDATE_AND_GET_GROUP_FORBIDDEN (353); without ``readable`` it only queries."""

    group: str
    topic: str
    readable: bool | None = None
