"""Where the queues of a topic are: what the name service answers."""

from typing import Any

from msgspec import field

from rockhopper.protocol import fastjson
from rockhopper.protocol.bodies.body import Body


class QueueData(Body, rename="camel"):
    """How many queues of a topic one broker has, and what they may be used for."""

    broker_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_sys_flag: int = 0


class BrokerData(Body, rename="camel"):
    """The processes of one broker name: id 0 is the master."""

    broker_name: str
    broker_addrs: dict[int, str] = field(default_factory=dict)
    cluster: str = ""
    zone_name: str | None = None
    enable_acting_master: bool | None = None


class TopicRouteData(Body, rename="camel"):
    """The answer to GET_ROUTEINFO_BY_TOPIC (105)."""

    queue_datas: list[QueueData] = field(default_factory=list)
    broker_datas: list[BrokerData] = field(default_factory=list)
    order_topic_conf: str | None = None
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)
    topic_queue_mapping_by_broker: dict[str, Any] | None = None

    def encode(self, *, raw_keys: bool = False, with_acting_master: bool = False) -> bytes:
        """The JSON of a route; strict with quoted keys unless *raw_keys*.

        Without *with_acting_master* there is no ``true``, ``false`` or ``null`` in it: one Python
        client reads it as Python.
        """
        route = TopicRouteData(
            self.queue_datas,
            [
                BrokerData(
                    broker.broker_name,
                    broker.broker_addrs,
                    broker.cluster,
                    broker.zone_name or None,
                    bool(broker.enable_acting_master) if with_acting_master else None,
                )
                for broker in self.broker_datas
            ],
            self.order_topic_conf or None,
            self.filter_server_table,
            self.topic_queue_mapping_by_broker or None,
        )
        return fastjson.dumps(route, raw_keys=raw_keys).encode()


class ClusterInfo(Body, rename="camel"):
    """The answer to GET_BROKER_CLUSTER_INFO (106)."""

    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = field(default_factory=dict)
    departed_brokers: list[str] | None = None
    """Rockhopper's: brokers that were there since the name service started, and are not now."""
    departed_ages_ms: dict[str, int] | None = None
    """Rockhopper's: for how long nothing was heard of them."""


class BrokerMemberGroup(Body, rename="camel"):
    """The processes of one broker name, as GET_BROKER_MEMBER_GROUP (901) tells them."""

    cluster: str = ""
    broker_name: str = ""
    broker_addrs: dict[int, str] = field(default_factory=dict)


class GetBrokerMemberGroupBody(Body, rename="camel"):
    """The answer to GET_BROKER_MEMBER_GROUP (901)."""

    broker_member_group: BrokerMemberGroup | None = None
