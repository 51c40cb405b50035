"""The route of a topic: where its queues are, as a name server answers."""

from typing import Any

from msgspec import field

from rockhopper.protocol import fastjson
from rockhopper.protocol.bodies.body import Body
from rockhopper.protocol.errors import ProtocolError

QUEUE_COUNT_MAX = 65_536
"""The maximum of queues of a topic on one broker."""
ROUTE_QUEUE_COUNT_MAX = 4 * QUEUE_COUNT_MAX
"""The maximum of queues of a topic on all brokers: a client creates an object for each."""


class QueueData(Body, rename="camel"):
    """The number of a topic's queues on one broker, and their permissions."""

    broker_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_sys_flag: int = 0


class BrokerData(Body, rename="camel"):
    """The processes with one broker name: id 0 is the master."""

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

    def check_counts(self) -> None:
        """Raise ProtocolError for impossible numbers of queues."""
        total = 0
        for each in self.queue_datas:
            count = max(each.read_queue_nums, each.write_queue_nums)
            if count > QUEUE_COUNT_MAX:
                raise ProtocolError(
                    f"the route has {count} queues on {each.broker_name[:60]!r}; "
                    f"{QUEUE_COUNT_MAX} are allowed"
                )
            total += max(count, 0)
        total += sum(count for _, count in self.list_ordered_counts())
        if total > 2 * ROUTE_QUEUE_COUNT_MAX:
            raise ProtocolError(f"the route has {total} queues for one topic, which is too many")

    def list_ordered_counts(self) -> list[tuple[str, int]]:
        """Return broker names and queue counts of orderTopicConf, "broker-a:4;broker-b:4".

        Raises ProtocolError for an impossible count.
        """
        found: dict[str, int] = {}
        for part in (self.order_topic_conf or "").split(";"):
            name, _, text = part.partition(":")
            if not (text.isascii() and text.isdigit()):
                continue
            if len(text) > len(str(QUEUE_COUNT_MAX)) or int(text) > QUEUE_COUNT_MAX:
                raise ProtocolError(
                    f"orderTopicConf has {text[:20]} queues; {QUEUE_COUNT_MAX} are allowed"
                )
            found.setdefault(name, int(text))
        return list(found.items())

    def encode(self, *, raw_keys: bool = False, with_acting_master: bool = False) -> bytes:
        """Return the JSON of a route; strict with quoted keys unless *raw_keys*.

        Without *with_acting_master* it contains no ``true``, ``false`` or ``null``, because one
        Python client evaluates it as Python.
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
    """Rockhopper's: brokers that disappeared since the name server started."""
    departed_ages_ms: dict[str, int] | None = None
    """Rockhopper's: for how long each of them has not been heard of."""


class BrokerMemberGroup(Body, rename="camel"):
    """The processes with one broker name, in GET_BROKER_MEMBER_GROUP (901)."""

    cluster: str = ""
    broker_name: str = ""
    broker_addrs: dict[int, str] = field(default_factory=dict)


class GetBrokerMemberGroupBody(Body, rename="camel"):
    """The answer to GET_BROKER_MEMBER_GROUP (901)."""

    broker_member_group: BrokerMemberGroup | None = None
