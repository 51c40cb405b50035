"""Header fields of requests to a name server."""

import msgspec
from msgspec import field

from rockhopper.protocol.requests.fields import Int32, Int64, RpcRequest


class GetRouteInfoRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """GET_ROUTEINFO_BY_TOPIC (105)."""

    topic: str
    accept_standard_json_only: bool = False
    zone_mode: str | None = field(name="__ZONE_MODE", default=None)
    zone_name: str | None = field(name="__ZONE_NAME", default=None)


class RegisterBrokerRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """REGISTER_BROKER (103)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    heartbeat_timeout_millis: Int64 | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int32 = field(name="bodyCrc32", default=0)
    zone_name: str | None = field(name="__ZONE_NAME", default=None)


class RegisterBrokerResponse(msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False):
    """The addresses of the master, for its slaves."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class BrokerIdentityRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """UNREGISTER_BROKER (104), QUERY_DATA_VERSION (322)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionResponse(msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False):
    """Whether the broker must register again."""

    changed: bool


class BrokerHeartbeatRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """BROKER_HEARTBEAT (904)."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Int64 | None = None
    epoch: Int32 | None = None
    max_offset: Int64 | None = None
    confirm_offset: Int64 | None = None
    heartbeat_timeout_mills: Int64 | None = None
    election_priority: Int32 | None = None


class DeleteTopicFromNamesrvRequest(
    RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False
):
    """DELETE_TOPIC_IN_NAMESRV (216)."""

    topic: str
    cluster_name: str | None = None


class KVConfigRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """PUT, GET and DELETE_KV_CONFIG (100, 101, 102), GET_KVLIST_BY_NAMESPACE (219)."""

    namespace: str
    key: str | None = None
    value: str | None = None


class KVConfigResponse(msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False):
    """The value of GET_KV_CONFIG (101)."""

    value: str | None = None
