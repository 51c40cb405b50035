"""The options of consumers and of an App's subscribers: their types, defaults and checks."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from rockhopper.client.arguments import check_count, check_seconds
from rockhopper.client.callbacks import check_coroutine_function
from rockhopper.client.consuming.allocation import Allocation, find_allocation
from rockhopper.client.consuming.face.callbacks import QueuesCallback
from rockhopper.client.consuming.face.decoding import check_bad_body
from rockhopper.client.consuming.subscriptions import Topics
from rockhopper.client.middleware.hooks import Middleware
from rockhopper.client.network.credentials import CredentialsChoice
from rockhopper.client.network.sharing import SharedConnections
from rockhopper.client.network.tls import Tls
from rockhopper.client.received import ReceivedMessage
from rockhopper.client.serializers import BadBody, Serializer, check_serializer
from rockhopper.protocol.names import topic_error
from rockhopper.protocol.times import aware_ms, check_ms

StartFrom = Literal["earliest", "latest"] | datetime | int
Handler = Callable[[ReceivedMessage], Awaitable[object]]


@dataclass(frozen=True, kw_only=True)
class ConsumingOptions:
    """The options that consumers and subscribers share."""

    start_from: StartFrom = "earliest"
    """Where a group without a committed offset begins: "earliest", "latest", or a point in time as
    a datetime or in milliseconds since 1970."""
    broadcast: bool = False
    """Every member receives every message. Offsets are stored in a local file."""
    orderly: bool = False
    """Deliver each queue's messages one after the other. A failed message stays first in its queue
    and is retried after `suspend_s`."""
    allocation: str | Allocation = "average"
    """How the members share the queues: "average", "by-circle", "consistent-hash" or an object. It
    must be the same in all members of the group."""
    max_reconsume_times: int | None = None
    """After so many retries a message goes to the dead letters. None: as the group's settings say;
    with `orderly`, never."""
    batch_size: int = 32
    """How many messages a broker returns at once, at most."""
    poll_s: float = 15.0
    """How long a broker may hold a request without new messages."""
    queue_count_max: int = 1000
    """How many messages of a queue are prefetched, at most."""
    queue_bytes_max: int = 16 << 20
    """How many bytes of a queue's messages are prefetched, about."""
    consumer_count_max: int = 10_000
    """How many messages of all queues are prefetched, about."""
    consumer_bytes_max: int = 128 << 20
    """How many bytes of all queues' messages are prefetched, about."""
    commit_interval_s: float = 1.0
    """How often consumed offsets are committed."""
    suspend_s: float = 1.0
    """With `orderly`: how long a queue pauses after a failed message."""
    request_timeout_s: float = 3.0
    """How long to wait for an answer of a broker or a name server."""
    close_timeout_s: float = 30.0
    """How long closing waits for handlers, and how long each of the two callbacks may take."""
    hand_over_s: float = 0.5
    """How long to wait for a queue's previous owner before reading it. Up to `close_timeout_s`
    instead, while that owner holds a lock and processes messages."""
    offsets_directory: Path | str | None = None
    """Where a broadcasting consumer stores its offsets; None: ~/.rocketmq_offsets."""
    deserializer: Serializer | None = None
    """Decodes `message.value`. A message that it cannot decode is never delivered."""
    bad_body: BadBody = "retry"
    """What happens to a message that `deserializer` cannot decode: "retry" as after a failed
    handler, "dead-letter" or "skip"."""
    on_assigned: QueuesCallback | None = None
    """A coroutine function that gets a list of queues before any of their messages is delivered."""
    on_revoked: QueuesCallback | None = None
    """A coroutine function that gets a list of queues before they are committed and released."""
    trace: bool | str = False
    """Record every delivery in the trace topic, or in the topic that this names."""
    middleware: Iterable[Middleware] = ()
    """Called around every handler, and around the waiting of loops."""
    tls: Tls = None
    """True or TlsOptions; None: the environment decides."""
    credentials: CredentialsChoice = None
    """Credentials, or the path of a credentials file; None: the environment decides."""
    connections: SharedConnections | None = None
    """Connections shared with other clients. They replace `nameserver`, `tls` and `credentials`."""

    def __post_init__(self) -> None:
        check_start(self.start_from)
        check_bad_body(self.bad_body)
        check_serializer("deserializer", self.deserializer, "decode")
        if self.bad_body != "retry" and self.deserializer is None:
            raise ValueError(
                f"bad_body is {self.bad_body!r}, but there is no deserializer: pass one, as in "
                "deserializer=JSON()"
            )
        find_allocation(self.allocation)
        for name in ("batch_size", "queue_count_max", "queue_bytes_max", "consumer_count_max"):
            check_count(name, getattr(self, name))
        for name in ("commit_interval_s", "request_timeout_s"):
            check_seconds(name, getattr(self, name))
        for name in ("poll_s", "suspend_s", "close_timeout_s", "hand_over_s"):
            check_seconds(name, getattr(self, name), may_be_zero=True)
        for name in ("on_assigned", "on_revoked"):
            if (callback := getattr(self, name)) is not None:
                check_coroutine_function(name, callback)


@dataclass(frozen=True)
class ConsumerOptions(ConsumingOptions):
    """The options of a Consumer."""

    group: str
    """The consumer group. Its members share the queues of its topics."""
    topics: Topics
    """A topic, several topics, or a mapping of topics to filters.

    A regular expression (`"orders_.*"`, or one from re.compile) matches all topics by their whole
    name, except system topics; new topics are found within 10 s. A filter is `"*"`, tags such as
    `"new || paid"`, or `Sql("price > 5")`.
    """
    _: KW_ONLY
    nameserver: str | None = None
    """"host:port;host:port"; None: NAMESRV_ADDR, else 127.0.0.1:9876."""
    handler: Handler | None = None
    """A coroutine function that is called for each message from the start, as by `run`."""
    concurrency: int = 16
    """How many messages `handler` gets at once, at most."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("concurrency", self.concurrency)
        if self.handler is not None:
            check_coroutine_function("handler", self.handler)


@dataclass(frozen=True)
class SubscriberOptions(ConsumingOptions):
    """The options of an App's subscriber."""

    topics: Topics
    """As those of a Consumer."""
    _: KW_ONLY
    group: str
    """The consumer group. A group has one subscriber in an App."""
    to: str | None = None
    """The topic that gets what the function returns, unless that is None."""
    concurrency: int = 16
    """How many messages the function gets at once, at most; a plain function runs in as many
    threads of its own."""

    def __post_init__(self) -> None:
        # The app's Consumer checks the rest, once the function has decided on a deserializer.
        if self.to is not None and (reason := topic_error(self.to)) is not None:
            raise ValueError(reason)


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
