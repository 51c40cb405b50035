"""The settings of one consumer, made of its options."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

from rockhopper.client.consuming.allocation import Allocation, find_allocation
from rockhopper.client.consuming.face.callbacks import QueueCallbacks
from rockhopper.client.consuming.face.patterns import TopicPattern
from rockhopper.client.consuming.options import ConsumerOptions, ConsumingOptions
from rockhopper.client.consuming.subscriptions import make_subscriptions
from rockhopper.protocol.names import group_error, retry_topic
from rockhopper.protocol.subscription import Subscription

MODEL_BROADCAST = "BROADCASTING"
MODEL_CLUSTER = "CLUSTERING"


@dataclass(frozen=True)
class ConsumerSettings(ConsumingOptions):
    """The options of one consumer with its subscriptions; times are in seconds."""

    group: str
    subscriptions: dict[str, Subscription]
    """Includes topics that match a pattern, as soon as they are found."""
    patterns: Sequence[TopicPattern] = ()
    found_interval_s: float = 10.0
    """How often to look for topics that match the patterns."""
    rebalance_interval_s: float = 20.0
    local_retry_s: float = 5.0

    @classmethod
    def from_options(cls, options: ConsumerOptions, now_ms: int) -> "ConsumerSettings":
        """Return the settings of a consumer that begins now. Raises as make_subscriptions does."""
        subscriptions, patterns = make_subscriptions(options.topics, now_ms)
        shared = {each.name: getattr(options, each.name) for each in fields(ConsumingOptions)}
        return cls(options.group, subscriptions, patterns, **shared)

    def __post_init__(self) -> None:
        if (reason := group_error(self.group)) is not None:
            raise ValueError(reason)
        super().__post_init__()

    @cached_property
    def rule(self) -> Allocation:
        """The rule by which the members share the queues."""
        return find_allocation(self.allocation)

    @cached_property
    def callbacks(self) -> QueueCallbacks:
        """The application's callbacks for queues."""
        return QueueCallbacks(self.on_assigned, self.on_revoked, self.close_timeout_s)

    @property
    def retry_topic(self) -> str | None:
        """The topic of the group's redelivered messages; None in broadcast."""
        return None if self.broadcast else retry_topic(self.group)

    @property
    def model(self) -> str:
        """RocketMQ's name of the group's message model."""
        return MODEL_BROADCAST if self.broadcast else MODEL_CLUSTER

    @property
    def consume_from_where(self) -> str:
        """RocketMQ's name of the position where a new group starts."""
        if self.start_from == "earliest":
            return "CONSUME_FROM_FIRST_OFFSET"
        if self.start_from == "latest":
            return "CONSUME_FROM_LAST_OFFSET"
        return "CONSUME_FROM_TIMESTAMP"
