"""The checked settings of a consumer, with all defaults."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal

from rockhopper.client.arguments import check_count, check_seconds
from rockhopper.client.consuming.allocation import Allocation, Average
from rockhopper.client.consuming.face.callbacks import QueueCallbacks
from rockhopper.client.consuming.face.decoding import check_bad_body
from rockhopper.client.consuming.face.patterns import TopicPattern
from rockhopper.client.network.credentials import CredentialsChoice
from rockhopper.client.network.sharing import SharedConnections
from rockhopper.client.network.tls import Tls
from rockhopper.client.serializers import BadBody, Serializer, check_serializer
from rockhopper.protocol.names import group_error, retry_topic
from rockhopper.protocol.subscription import Subscription
from rockhopper.protocol.times import aware_ms, check_ms

StartFrom = Literal["earliest", "latest"] | datetime | int

MODEL_BROADCAST = "BROADCASTING"
MODEL_CLUSTER = "CLUSTERING"


@dataclass(frozen=True)
class ConsumerSettings:
    """The settings of one consumer; times are in seconds."""

    group: str
    subscriptions: dict[str, Subscription]
    """Includes topics that match a pattern, as soon as they are found."""
    patterns: Sequence[TopicPattern] = ()
    found_interval_s: float = 10.0
    """How often to look for topics that match the patterns."""
    start_from: StartFrom = "earliest"
    broadcast: bool = False
    orderly: bool = False
    allocation: Allocation = field(default_factory=Average)
    max_reconsume_times: int | None = None
    batch_size: int = 32
    poll_s: float = 15.0
    queue_count_max: int = 1000
    queue_bytes_max: int = 16 << 20
    consumer_count_max: int = 10_000
    consumer_bytes_max: int = 128 << 20
    commit_interval_s: float = 1.0
    rebalance_interval_s: float = 20.0
    suspend_s: float = 1.0
    local_retry_s: float = 5.0
    hand_over_s: float = 0.5
    """How long to wait for a queue's previous owner before reading it.

    Up to close_timeout_s instead, while the previous owner holds a lock and processes messages.
    """
    close_timeout_s: float = 30.0
    offsets_directory: Path | None = None
    deserializer: Serializer | None = None
    bad_body: BadBody = "retry"
    callbacks: QueueCallbacks = field(default_factory=QueueCallbacks)
    request_timeout_s: float = 3.0
    tls: Tls = None
    credentials: CredentialsChoice = None
    connections: SharedConnections | None = None

    def __post_init__(self) -> None:
        reason = group_error(self.group)
        if reason is not None:
            raise ValueError(reason)
        check_start(self.start_from)
        check_bad_body(self.bad_body)
        check_serializer("deserializer", self.deserializer, "decode")
        if self.bad_body != "retry" and self.deserializer is None:
            raise ValueError(
                f"bad_body is {self.bad_body!r}, but there is no deserializer: pass one, as in "
                "deserializer=JSON()"
            )
        for name in ("batch_size", "queue_count_max", "queue_bytes_max", "consumer_count_max"):
            check_count(name, getattr(self, name))
        for name in ("commit_interval_s", "request_timeout_s"):
            check_seconds(name, getattr(self, name))
        for name in ("poll_s", "suspend_s", "close_timeout_s", "hand_over_s"):
            check_seconds(name, getattr(self, name), may_be_zero=True)

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


def check_start(start_from: StartFrom) -> None:
    """Raise ValueError unless `start_from` is a valid start position."""
    if start_from in ("earliest", "latest"):
        return
    if isinstance(start_from, datetime):
        aware_ms("start_from", start_from)
        return
    if isinstance(start_from, int) and not isinstance(start_from, bool) and start_from >= 0:
        check_ms("start_from", start_from)
        return
    raise ValueError(
        f'start_from is {start_from!r}: use "earliest", "latest", a datetime, or milliseconds '
        "since 1970"
    )
