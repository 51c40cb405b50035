"""Reports of clients: heartbeats, subscriptions, connections."""

from typing import Any

from msgspec import field

from rockhopper.protocol.bodies.body import Body, convert
from rockhopper.protocol.errors import SubscriptionError
from rockhopper.protocol.subscription import TYPE_TAG, Subscription

CONSUME_TYPES = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
MESSAGE_MODELS = ("BROADCASTING", "CLUSTERING")
CONSUME_FROM_WHERE = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)
# The C++ client sends ordinals.
_ENUMERATIONS = {
    "consumeType": CONSUME_TYPES,
    "messageModel": MESSAGE_MODELS,
    "consumeFromWhere": CONSUME_FROM_WHERE,
}


class SubscriptionData(Body, rename="camel"):
    """A consumer's subscription to one topic.

    Tags and their hashes are always computed from the expression, because clients send hashes as
    text (Go) or as zeros (C++).
    """

    topic: str
    sub_string: str = "*"
    expression_type: str = TYPE_TAG
    sub_version: int = 0
    tags_set: Any = None
    code_set: Any = None
    class_filter_mode: bool = False

    def __post_init__(self) -> None:
        try:
            subscription = self.subscription()
        except SubscriptionError:
            self.tags_set, self.code_set = [], []
            return
        self.tags_set = sorted(subscription.tags)
        self.code_set = sorted(subscription.tag_hashes)

    def subscription(self) -> Subscription:
        """Return the subscription as a filter. Raises SubscriptionError."""
        return Subscription(self.topic, self.sub_string, self.expression_type, self.sub_version)

    @classmethod
    def from_subscription(cls, subscription: Subscription) -> "SubscriptionData":
        """Return the wire form of a filter."""
        return cls(
            subscription.topic,
            subscription.expression,
            subscription.expression_type,
            subscription.version,
        )


class ConsumerData(Body, rename="camel"):
    """A consumer group that a client belongs to."""

    group_name: str
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    subscription_data_set: list[SubscriptionData] = field(default_factory=list)
    unit_mode: bool = False
    heeds_readers: bool | None = None
    """Whether the client leaves a topic to its readers, see GetConsumerListByGroupBody.

    A field of Rockhopper, which other brokers ignore.
    """


class ProducerData(Body, rename="camel"):
    """A producer group that a client belongs to."""

    group_name: str


class HeartbeatData(Body, rename="camel"):
    """The body of HEART_BEAT (34).

    Fingerprint and ``without_sub`` belong to version 2 of heartbeats: a client whose subscriptions
    have not changed omits them.
    """

    client_id: str = field(name="clientID")
    producer_data_set: list[ProducerData] = field(default_factory=list)
    consumer_data_set: list[ConsumerData] = field(default_factory=list)
    heartbeat_fingerprint: int = 0
    without_sub: bool = False

    @classmethod
    def from_json(cls, value: Any) -> "HeartbeatData":
        """See Body; enumerations may be ordinals. Raises MalformedBodyError."""
        if isinstance(value, dict) and isinstance(value.get("consumerDataSet"), list):
            for consumer in value["consumerDataSet"]:
                if isinstance(consumer, dict):
                    _name_ordinals(consumer)
        return convert(value, cls)


def _name_ordinals(consumer: dict[str, Any]) -> None:
    for key, names in _ENUMERATIONS.items():
        ordinal = consumer.get(key)
        if isinstance(ordinal, str) and len(ordinal) == 1 and ordinal.isdecimal():
            ordinal = int(ordinal)
        if isinstance(ordinal, int) and 0 <= ordinal < len(names):
            consumer[key] = names[ordinal]


class CheckClientRequestBody(Body, rename="camel"):
    """The body of CHECK_CLIENT_CONFIG (46)."""

    client_id: str = ""
    group: str = ""
    namespace: str | None = None
    subscription_data: SubscriptionData | None = None


class Connection(Body, rename="camel"):
    """A connected client."""

    client_id: str
    client_addr: str
    language: str = "JAVA"
    version: int = 0


class ConsumerConnection(Body, rename="camel"):
    """The answer to GET_CONSUMER_CONNECTION_LIST (203)."""

    connection_set: list[Connection] = field(default_factory=list)
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"


class DifferentMember(Body, rename="camel"):
    """The subscriptions of one member, if the members of a group differ."""

    client_id: str
    message_model: str = "CLUSTERING"
    subscriptions: dict[str, str] = field(default_factory=dict)
    """Topic -> expression."""


class MarkedConsumerConnection(ConsumerConnection):
    """The ConsumerConnection of a Rockhopper broker, which also reports problems with members."""

    shared_client_ids: list[str] = field(default_factory=list)
    """Ids that several live members share."""
    different_members: list["DifferentMember"] = field(default_factory=list)
    """All members, if they differ in their subscriptions or in the message model."""


class ProducerConnection(Body, rename="camel"):
    """The answer to GET_PRODUCER_CONNECTION_LIST (204)."""

    connection_set: list[Connection] = field(default_factory=list)


class ProducerInfo(Body, rename="camel"):
    """A connected producer."""

    client_id: str
    remote_ip: str = field(name="remoteIP", default="")
    language: str = "JAVA"
    version: int = 0
    last_update_timestamp: int = 0


class ProducerTableInfo(Body, rename="camel"):
    """The answer to GET_ALL_PRODUCER_INFO (328)."""

    data: dict[str, list[ProducerInfo]] = field(default_factory=dict)


class GetConsumerListByGroupBody(Body, rename="camel"):
    """The answer to GET_CONSUMER_LIST_BY_GROUP (38)."""

    consumer_id_list: list[str] = field(default_factory=list)
    readers: dict[str, list[str]] | None = None
    """Topic -> the members that share its queues, if these are not all members.

    A Rockhopper broker sends it to members that respect it, for the topics they subscribe to.
    """
    topics_at_risk: list[str] | None = None
    """Topics of this member with messages that may be skipped, or queues without a reader."""
