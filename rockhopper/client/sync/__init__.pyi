# Made by `make pages` of the modules beside this file: do not edit.

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from rockhopper.client.admin.admin import QueueRange
from rockhopper.client.admin.admin_groups import OffsetMove, Target
from rockhopper.client.admin.dead_letters import DeadLetter, DeadLetterCount, Requeued
from rockhopper.client.admin.group_states import GroupState, QueueLag
from rockhopper.client.admin.plain_acl import PlainAccount
from rockhopper.client.consuming.allocation import Allocation
from rockhopper.client.consuming.face.callbacks import QueuesCallback
from rockhopper.client.consuming.face.pauses import Paused
from rockhopper.client.consuming.options import Handler, StartFrom
from rockhopper.client.consuming.pulling import PullResult
from rockhopper.client.consuming.subscriptions import Topic, Topics
from rockhopper.client.filters import Sql
from rockhopper.client.middleware.hooks import Middleware
from rockhopper.client.network.addresses import BrokerAddress
from rockhopper.client.network.credentials import CredentialsChoice
from rockhopper.client.network.routing import TopicRoute
from rockhopper.client.network.sharing import Connections as AsyncConnections
from rockhopper.client.network.sharing import SharedConnections
from rockhopper.client.network.tls import Tls
from rockhopper.client.producer import DEFAULT_GROUP, MessageFields
from rockhopper.client.pull_consumer import Position
from rockhopper.client.queues import MessageQueue
from rockhopper.client.receipts import SendReceipt
from rockhopper.client.received import ReceivedMessage
from rockhopper.client.sending.lingering import Linger
from rockhopper.client.serializers import BadBody, Serializer
from rockhopper.client.sync.consumers import PlainHandler
from rockhopper.client.sync.producers import Check
from rockhopper.client.transactions import Transaction, TransactionState
from rockhopper.protocol.bodies.setting_facts import SettingFacts
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.message import Message
from rockhopper.protocol.sys_flags import PERM_READ, PERM_WRITE

__all__ = ["Admin", "Connections", "Consumer", "Producer", "PullConsumer", "TransactionProducer"]

class GroupAdmin:
    """Consumer groups: members, lag, resets."""

    def names(self, *, with_system: bool = False) -> list[str]:
        """Return the names of all groups; with `with_system` also those of tools and brokers."""

    def states(self, *, with_system: bool = False) -> list[GroupState]:
        """Return every group with its members and lag, but without settings and owners."""

    def state(self, group: str) -> GroupState:
        """Return everything about a group. Raises RouteNotFoundError if no broker knows it."""

    def lag(self, group: str) -> list[QueueLag]:
        """Return a group's lag in each queue. Raises RouteNotFoundError if it is unknown."""

    def online(self, group: str) -> GroupState:
        """Return only the online members and their subscriptions; there may be none."""

    def progress(self, group: str) -> GroupState:
        """Return only the online members and the offsets; the group may be unknown."""

    def progress_in(self, group: str, topic: str) -> list[QueueLag]:
        """Return the offsets in the queues of one topic; the group may be unknown."""

    def create(
        self, group: str, *, orderly: bool | None = None, retries_max: int | None = None
    ) -> list[BrokerAddress]:
        """Create a group on every broker, or change the given options of an existing one.

        Members of an `orderly` group receive each queue's messages one after the other, also by
        gRPC. After `retries_max` retries a message becomes a dead letter. Raises
        RequestRefusedError.
        """

    def plan_reset(
        self, group: str, topic: str, to: Target, *, queues: Sequence[MessageQueue] | None = None
    ) -> list[OffsetMove]:
        """Return what `reset_offsets` would do; offsets beyond a queue become its nearer end.

        Raises RouteNotFoundError if the topic does not exist.
        """

    def reset_offsets(
        self, group: str, topic: str, to: Target, *, queues: Sequence[MessageQueue] | None = None
    ) -> list[OffsetMove]:
        """Move a group's offsets in a topic, or in some of its queues; return the moves.

        The group may be online: its members continue at the new offsets at once. A single queue, or
        an offset as target, needs Rockhopper or RocketMQ 5. Raises RouteNotFoundError,
        RequestRefusedError.
        """

    def delete(
        self,
        group: str,
        *,
        with_offsets: bool = False,
        with_retry_topic: bool = False,
        with_dead_letters: bool = False,
    ) -> list[BrokerAddress]:
        """Delete a group's settings on every broker, and more if requested.

        An online member recreates the group if brokers create groups on first use. Raises
        RequestRefusedError.
        """

class DeadLetters:
    """Dead letters of groups, and sending them back."""

    def counts(self) -> list[DeadLetterCount]:
        """Return the counts of all groups that have dead letters."""

    def count(self, group: str) -> DeadLetterCount:
        """Return the number of a group's dead letters, perhaps 0."""

    def read(self, group: str, *, only_waiting: bool = False) -> Iterator[DeadLetter]:
        """Yield a group's dead letters, oldest first. Raises RouteNotFoundError if it has none."""

    def requeue(
        self,
        group: str,
        *,
        max_count: int | None = None,
        to: str | None = None,
        message_id: str | None = None,
        only: Collection[str] | None = None,
        go_on: bool = False,
        dry_run: bool = False,
    ) -> Iterator[Requeued]:
        """Send dead letters back to their original topics, and yield each stored message.

        Dead letters that were already sent back are omitted. Their retries are counted from 0
        again. `to` names another topic; with the group's own retry topic (`%RETRY%<group>`) only
        this group receives them. `message_id` selects one message; `only` selects those not yet
        sent back with one of these ids (`offset_message_id`). With `go_on`, a dead letter that does
        not name its topic, or that a broker refuses, is yielded with its problem and stays; the
        others are sent.

        Raises:
            RouteNotFoundError: the group has no dead letters.
            MessageNotFoundError: no dead letter has this id.
            ClientStateError: another requeue of the group is running, or a dead letter does not
                name its topic.
            ClientError: a message could not be sent; the yielded ones are sent.
        """

class Accounts:
    """Users and access rules."""

    def add_user(
        self, name: str, secret: str, *, is_super: bool = False, broker: str | None = None
    ) -> list[BrokerAddress]:
        """Create a user; return the brokers that did so."""

    def change_secret(
        self, name: str, secret: str, *, broker: str | None = None
    ) -> list[BrokerAddress]:
        """Change a user's secret; brokers close connections authenticated with the old one."""

    def remove_user(self, name: str, *, broker: str | None = None) -> list[BrokerAddress]:
        """Delete a user and their rules; a missing user is no error."""

    def users(self, *, broker: str | None = None) -> list[tuple[str, dict[str, Any]]]:
        """Return (broker name, RocketMQ's UserInfo) for every user."""

    def add_rule(
        self,
        name: str,
        resource: str,
        actions: Sequence[str],
        *,
        is_allowed: bool,
        sources: Sequence[str] = (),
        policy: str = "Custom",
        replaces: bool = False,
        broker: str | None = None,
    ) -> list[BrokerAddress]:
        """Allow or deny a user some actions on a resource, in addition to existing rules.

        Existing rules about the same resource that contradict the new one are removed; with
        `replaces` all of them are. `resource` is `*`, `Topic:name`, `Topic:prefix*` and the same
        with Group, Cluster and Sink. `actions` are RocketMQ's names, or All. `sources` are
        addresses and networks; without any, all are covered. Rules of the policy Custom take
        precedence over those of Default.
        """

    def add_account(self, account: PlainAccount, *, broker: str | None = None) -> None:
        """Create a user with rules from an account of a plain_acl.yml file."""

    def remove_rules(
        self, name: str, resource: str = "", *, broker: str | None = None
    ) -> list[BrokerAddress]:
        """Delete the rules of a user, or only those about one resource."""

    def rules(
        self, name: str = "", *, broker: str | None = None
    ) -> list[tuple[str, dict[str, Any]]]:
        """Return (broker name, RocketMQ's AclInfo) for one user; for all users without a name."""

    def decision(
        self, name: str, action: str, resource: str, host: str, *, broker: str | None = None
    ) -> list[tuple[str, dict[str, Any]]]:
        """Return (broker name, {"isAllowed": …, "why": …}): the decision and the rule behind it."""

class Offsets:
    """Offsets of single queues: minimum, maximum, committed, by time."""

    def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the oldest message still stored."""

    def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the next message to be stored."""

    def offset_at(self, queue: MessageQueue, time_ms: int, *, upper: bool = False) -> int:
        """Return the first offset stored at `time_ms` or later.

        With `upper`, return the last one stored at `time_ms` or earlier. For a time after the last
        message, return the end of the queue.
        """

    def earliest_store_time_ms(self, queue: MessageQueue) -> int | None:
        """Return the store time of the oldest message; None for an empty queue."""

    def committed(self, group: str, queue: MessageQueue) -> int | None:
        """Return the committed offset of `group`; None if it has never committed."""

    def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Commit `offset` for `group`."""

class Admin:
    """Manages topics, offsets, messages, brokers and their settings; see rockhopper.Admin."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    def start(self) -> Self:
        """Open it now; a second call does nothing."""

    def close(self) -> None:
        """Close it; a second call does nothing. A forked child leaves the parent's client open."""

    def __init__(
        self,
        nameserver: str | None = None,
        *,
        request_timeout_s: float = 5.0,
        tls: Tls = None,
        credentials: CredentialsChoice = None,
        connections: SharedConnections | None = None,
    ) -> None:
        """`tls` is True or TlsOptions; `credentials` are Credentials or a credentials file.

        If one of them is None, the environment decides. Raises ValueError, ClientStateError.
        """
    groups: GroupAdmin
    dead_letters: DeadLetters
    accounts: Accounts
    offsets: Offsets

    def topics(self) -> list[str]:
        """Return the names of all topics that the name server knows, including system topics."""

    def route(self, topic: str) -> TopicRoute:
        """Return the current brokers and queues of a topic. Raises RouteNotFoundError."""

    def forget_route(self, topic: str) -> None:
        """Query the name server again when the route of a topic is needed next."""

    def create_topic(
        self,
        topic: str,
        *,
        queues: int = 8,
        write_queues: int | None = None,
        perm: int = PERM_READ | PERM_WRITE,
        attributes: Mapping[str, str] | None = None,
        broker: str | None = None,
        drain: bool = False,
    ) -> list[BrokerAddress]:
        """Create or change a topic on every master; return the brokers.

        `queues` is per broker. `attributes` are RocketMQ's, for example {"queue.type": "BatchCQ"}.
        `broker` selects a single broker, by name or address.

        Clients do not read queues numbered `queues` or more. So the call refuses to reduce the
        number of queues while the queues beyond it hold messages. With `drain` it closes these
        queues for sends; they stay readable until a later call finds them empty.

        Raises:
            RequestRefusedError: a broker refuses it.
            ClientError: queues that hold messages would be hidden.
        """

    def queues_beyond(self, topic: str, queues: int, brokers: Collection[str]) -> list[QueueRange]:
        """Return the queues numbered `queues` and more that hold messages, on these brokers."""

    def delete_topic(self, topic: str) -> list[BrokerAddress]:
        """Delete a topic and its messages on every broker that has it; return the brokers.

        Raises RouteNotFoundError if the topic does not exist.
        """

    def purge_topic(self, topic: str) -> list[BrokerAddress]:
        """Empty a topic on every broker that has it; return the brokers.

        The topic keeps its settings, and groups continue with messages sent afterwards. Only
        Rockhopper brokers support it: others raise ClientError. Raises RouteNotFoundError.
        """

    def ranges(self, topic: str) -> list[QueueRange]:
        """Return the offsets in each queue of a topic, including write-only queues."""

    def range(self, queue: MessageQueue) -> QueueRange:
        """Return the offsets in a queue."""

    def message(self, message_id: str, topic: str | None = None) -> ReceivedMessage:
        """Return the message with this id, which is a producer's id or an offset id.

        A producer's id is looked up in `topic`, or without it in every topic. Raises
        MessageNotFoundError.
        """

    def messages_by_key(
        self,
        topic: str,
        key: str | Iterable[str],
        *,
        max_count: int = 32,
        begin_time_ms: int = 0,
        end_time_ms: int | None = None,
    ) -> list[ReceivedMessage]:
        """Return the newest messages of a topic with `key` among their keys, newest first.

        If you give several keys, in a message's form, a message matches if it has one of them.
        """

    def brokers(self, *, with_left_out: bool = False) -> list[BrokerAddress]:
        """Return every broker that the name server knows, including slaves.

        Brokers that the session's routes leave out are included only `with_left_out`.
        """

    def departed_brokers(self) -> list[str]:
        """Return the names of brokers that disappeared since the name server started.

        Apache's name servers do not report them.
        """

    def away(self) -> list[str]:
        """Return a text that names the brokers that disappeared, and when each was last seen."""

    def masters(self, broker: str | None = None) -> list[BrokerAddress]:
        """Return the masters, or the one with this name or address.

        Raises RouteNotFoundError if there is none.
        """

    def broker_status(self, address: str) -> dict[str, str]:
        """Return the runtime status of a broker: rates, offsets, disk use."""

    def describe_broker_config(self, address: str) -> list[SettingFacts] | None:
        """Return the settings of a broker with their defaults, units, and whether they change live.

        Returns None if the broker does not support it: Apache's, and Rockhopper before 0.4.
        """

    def broker_config(self, address: str) -> dict[str, str]:
        """Return the settings of a broker."""

    def update_broker_config(self, address: str, settings: Mapping[str, str]) -> None:
        """Change settings of a running broker. Raises RequestRefusedError."""

    def take_over(self, address: str, *, force: bool = False) -> None:
        """Make a broker that follows another take its place, soon after this returns.

        Raises RequestRefusedError if data would be lost, unless `force` is set.
        """

    def request(
        self,
        address: str,
        code: RequestCode,
        ext: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        accept: frozenset[int] = frozenset({0}),
        timeout_s: float | None = None,
    ) -> Command:
        """Send any request to a broker and return its answer.

        Raises RequestRefusedError if the answer's code is not in `accept`.
        """

class Connections:
    """Connections that several synchronous clients share; see rockhopper.Connections.

        shared = Connections()
        producer, admin = Producer(connections=shared), Admin(connections=shared)

    A forked child opens its own connections, as the clients do.
    """

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    def start(self) -> Self:
        """Open it now; a second call does nothing."""

    def close(self) -> None:
        """Close it; a second call does nothing. A forked child leaves the parent's client open."""

    def __init__(
        self,
        nameserver: str | None = None,
        *,
        connect_timeout_s: float = 3.0,
        tls: Tls = None,
        credentials: CredentialsChoice = None,
    ) -> None:
        """The arguments are those of the clients, and apply to all of them."""

    def current(self) -> AsyncConnections:
        """The connections of this process."""

class Consumer:
    """A member of a consumer group; see rockhopper.Consumer.

    A consumer opened before a fork belongs to the parent; the child creates its own.
    """

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    def start(self) -> Self:
        """Open it now; a second call does nothing."""

    def close(self) -> None:
        """Close it; a second call does nothing. A forked child leaves the parent's client open."""

    def __init__(
        self,
        group: str,
        topics: Topics,
        *,
        start_from: StartFrom = "earliest",
        broadcast: bool = False,
        orderly: bool = False,
        allocation: str | Allocation = "average",
        max_reconsume_times: int | None = None,
        batch_size: int = 32,
        poll_s: float = 15.0,
        queue_count_max: int = 1000,
        queue_bytes_max: int = 16 << 20,
        consumer_count_max: int = 10000,
        consumer_bytes_max: int = 128 << 20,
        commit_interval_s: float = 1.0,
        suspend_s: float = 1.0,
        request_timeout_s: float = 3.0,
        close_timeout_s: float = 30.0,
        hand_over_s: float = 0.5,
        offsets_directory: Path | str | None = None,
        deserializer: Serializer | None = None,
        bad_body: BadBody = "retry",
        on_assigned: QueuesCallback | None = None,
        on_revoked: QueuesCallback | None = None,
        trace: bool | str = False,
        middleware: Iterable[Middleware] = (),
        tls: Tls = None,
        credentials: CredentialsChoice = None,
        connections: SharedConnections | None = None,
        nameserver: str | None = None,
        handler: Handler | None = None,
        concurrency: int = 16,
    ) -> None:
        """The parameters are the fields of ConsumerOptions.

        Raises ValueError, ClientStateError, TypeError, protocol.errors.SubscriptionError.

        Args:
            group: The consumer group. Its members share the queues of its topics.
            topics: A topic, several topics, or a mapping of topics to filters.  A regular
                expression (`"orders_.*"`, or one from re.compile) matches all topics by their
                whole name, except system topics; new topics are found within 10 s. A filter is
                `"*"`, tags such as `"new || paid"`, or `Sql("price > 5")`.
            start_from: Where a group without a committed offset begins: "earliest", "latest", or
                a point in time as a datetime or in milliseconds since 1970.
            broadcast: Every member receives every message. Offsets are stored in a local file.
            orderly: Deliver each queue's messages one after the other. A failed message stays
                first in its queue and is retried after `suspend_s`.
            allocation: How the members share the queues: "average", "by-circle", "consistent-
                hash" or an object. It must be the same in all members of the group.
            max_reconsume_times: After so many retries a message goes to the dead letters. None:
                as the group's settings say; with `orderly`, never.
            batch_size: How many messages a broker returns at once, at most.
            poll_s: How long a broker may hold a request without new messages.
            queue_count_max: How many messages of a queue are prefetched, at most.
            queue_bytes_max: How many bytes of a queue's messages are prefetched, about.
            consumer_count_max: How many messages of all queues are prefetched, about.
            consumer_bytes_max: How many bytes of all queues' messages are prefetched, about.
            commit_interval_s: How often consumed offsets are committed.
            suspend_s: With `orderly`: how long a queue pauses after a failed message.
            request_timeout_s: How long to wait for an answer of a broker or a name server.
            close_timeout_s: How long closing waits for handlers, and how long each of the two
                callbacks may take.
            hand_over_s: How long to wait for a queue's previous owner before reading it. Up to
                `close_timeout_s` instead, while that owner holds a lock and processes messages.
            offsets_directory: Where a broadcasting consumer stores its offsets; None:
                ~/.rocketmq_offsets.
            deserializer: Decodes `message.value`. A message that it cannot decode is never
                delivered.
            bad_body: What happens to a message that `deserializer` cannot decode: "retry" as
                after a failed handler, "dead-letter" or "skip".
            on_assigned: A coroutine function that gets a list of queues before any of their
                messages is delivered.
            on_revoked: A coroutine function that gets a list of queues before they are committed
                and released.
            trace: Record every delivery in the trace topic, or in the topic that this names.
            middleware: Called around every handler, and around the waiting of loops.
            tls: True or TlsOptions; None: the environment decides.
            credentials: Credentials, or the path of a credentials file; None: the environment
                decides.
            connections: Connections shared with other clients. They replace `nameserver`, `tls`
                and `credentials`.
            nameserver: "host:port;host:port"; None: NAMESRV_ADDR, else 127.0.0.1:9876.
            handler: A coroutine function that is called for each message from the start, as by
                `run`.
            concurrency: How many messages `handler` gets at once, at most.
        """

    def commit(self) -> None:
        """Commit the group's offsets now; the consumer also commits regularly."""

    def retry_later(
        self, message: ReceivedMessage, delay_level: int = 0, *, delay_s: float | None = None
    ) -> None:
        """Request redelivery of a message that a loop is processing, and continue.

        See RetryLater for `delay_level` and `delay_s`.
        """

    def put_back(self, message: ReceivedMessage) -> None:
        """Return a message that a loop is processing, as if it had not been delivered.

        It is delivered again at once, here or at the member that then owns its queue. This does not
        count as an attempt.
        """

    def pause(self, *what: Paused) -> None:
        """Deliver and fetch no messages of these topics and queues; without arguments, of all.

        Prefetched messages are kept, running handlers continue, and a queue that is revoked and
        assigned again is still paused. Redelivered messages belong to their original topic. The
        topic need not be subscribed, because a pattern may match it later.
        """

    def resume(self, *what: Paused) -> None:
        """Resume these topics and queues; without arguments, all."""

    def stop(self) -> None:
        """End loops and `run` after the messages that are being processed.

        You may call it from any thread, in signal handlers, and before or during the start.
        """

    @property
    def group(self) -> str:
        """The consumer group."""

    @property
    def client_id(self) -> str:
        """The id of this member."""

    @property
    def assigned(self) -> list[MessageQueue]:
        """The queues that this member owns now."""

    @property
    def paused(self) -> list[Paused]:
        """The paused topics and queues; all topics of the consumer after `pause()`."""

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Deliver one message after the other, until `stop` or `close`."""

    def batches(self, count_max: int, wait_s: float) -> Iterator[list[ReceivedMessage]]:
        """Deliver messages in batches, until `stop` or `close`.

        A batch has `count_max` messages, or fewer if `wait_s` has passed since its first message;
        it is never empty. With `orderly` it may contain several messages of a queue, in order. If
        it fails, all of it is delivered again; retry_later and put_back take single messages out of
        it.
        """

    def run(self, handler: PlainHandler, *, concurrency: int = 16) -> None:
        """Call `handler` for each message, in up to `concurrency` threads, until `stop` or `close`.

        A handler acknowledges a message by returning, and requests redelivery by raising. An
        interrupt (Ctrl-C, an exception in a signal handler) waits for running handlers. A second
        one does not: their messages are delivered again, and their threads run until the process
        ends. If a handler calls sys.exit(), its message is delivered again and `run` ends as after
        an interrupt.
        """

class Producer:
    """Sends messages, from any thread; see rockhopper.Producer.

    Create one per process, also before a fork: each child opens its own connections.
    """

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    def start(self) -> Self:
        """Open it now; a second call does nothing."""

    def close(self) -> None:
        """Close it; a second call does nothing. A forked child leaves the parent's client open."""

    def send(
        self,
        message: Message | str,
        body: object = b"",
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        queue: MessageQueue | int | None = None,
        timeout_s: float | None = None,
    ) -> SendReceipt:
        """Send one message, given as a Message or as a topic and its parts; return the receipt.

        The message goes to `queue`, else to the queue of its sharding key, else to the queues in
        turn. `keys` is one key, several keys separated by blanks, or a sequence of keys. Raises
        MessageRejectedError, RouteNotFoundError, RequestRefusedError, BrokerUnreachableError,
        RequestTimeoutError.
        """

    def message(self, topic: str, value: object, **fields: Unpack[MessageFields]) -> Message:
        """Return a Message with the serialized *value* as its body and the given fields.

        Use it for options that `send(topic, value)` does not have: delays, order, batches,
        requests, transactions. Raises as Message does, and MessageRejectedError if the value is
        invalid.
        """

    def send_batch(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | int | None = None,
        timeout_s: float | None = None,
    ) -> list[SendReceipt]:
        """Send several messages of one topic to one queue in one request; all are stored or none.

        Only a power cut before the answer (with ASYNC_FLUSH: up to half a second after it) may
        store some of them only.

        Returns a receipt for each message, in order. A batch cannot contain delayed messages, and
        is not compressed. Raises as `send` does.
        """

    def send_many(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | int | None = None,
        timeout_s: float | None = None,
    ) -> list[SendReceipt]:
        """Send messages as `send` would, each with its own receipt, but far more per second.

        They leave in batches, several at a time, and may have several topics. Those with the same
        topic and sharding key are stored in order. `timeout_s` is for each batch. Returns a receipt
        for each message, in order.

        Raises NotAllSentError if some messages failed, after the outcome of each is known, and
        TypeError, ValueError, ClientStateError before any is sent. If the call is cancelled, each
        message may or may not have been stored.
        """

    def send_oneway(
        self,
        message: Message | str,
        body: object = b"",
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        queue: MessageQueue | int | None = None,
    ) -> None:
        """Send one message without an answer from the broker: it may not have been stored."""

    def request(
        self,
        message: Message,
        *,
        timeout_s: float | None = None,
        queue: MessageQueue | int | None = None,
    ) -> ReceivedMessage:
        """Send a message, wait for a consumer's reply, and return the reply.

        `timeout_s` covers the send and the reply. Raises ReplyTimeoutError if no reply arrives in
        time, else as `send` does. Cancelling only stops waiting.
        """

    def reply(
        self,
        request: ReceivedMessage,
        body: object = b"",
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Reply to a consumed request message.

        Raises MessageRejectedError if the message is not a request, RequestRefusedError if the
        requester has disconnected, else as `send` does.
        """

    def recall(self, recalled: SendReceipt | tuple[str, str]) -> str:
        """Cancel the delivery of a message with a delay or a delivery time; return its message id.

        `recalled` is the receipt, or the topic and the recall handle. Raises MessageRejectedError
        if there is no handle, RequestRefusedError if the message was already delivered or the
        broker does not allow recalls (recallMessageEnable).
        """

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return a topic's writable queues, in the order used for sharding keys."""

    def __init__(
        self,
        nameserver: str | None = None,
        *,
        group: str = DEFAULT_GROUP,
        timeout_s: float = 3.0,
        retries: int = 2,
        compress_above_bytes: int | None = 4096,
        message_size_bytes_max: int = 4 * 1024 * 1024,
        trace: bool | str = False,
        linger: Linger | None = None,
        serializer: Serializer | None = None,
        deserializer: Serializer | None = None,
        middleware: Iterable[Middleware] = (),
        tls: Tls = None,
        credentials: CredentialsChoice = None,
        connections: SharedConnections | None = None,
    ) -> None:
        """`nameserver` is "host:port;host:port"; by default NAMESRV_ADDR, else 127.0.0.1:9876.

        `timeout_s` is the maximum duration of a send in seconds, including retries.
        `compress_above_bytes=None` disables compression. `message_size_bytes_max` should equal the
        brokers' maxMessageSize. `trace` records every send in the trace topic, or in the topic it
        names. With `linger` concurrent sends share batches. `serializer` encodes the body when you
        send a topic and a value; bytes are sent unchanged. `deserializer` decodes the `value` of
        replies. `middleware` is called around every send. `tls` is True or TlsOptions;
        `credentials` are Credentials or the path of a credentials file; by default the environment
        decides. Raises ValueError, TypeError, ClientStateError.
        """

class PullConsumer:
    """Reads the queues that you select; see rockhopper.PullConsumer."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    def start(self) -> Self:
        """Open it now; a second call does nothing."""

    def close(self) -> None:
        """Close it; a second call does nothing. A forked child leaves the parent's client open."""

    def __init__(
        self,
        topic: Topic | None = None,
        *,
        nameserver: str | None = None,
        group: str | None = None,
        tags: str = "*",
        filter: Sql | None = None,
        start_from: Position = "earliest",
        batch_size: int = 32,
        poll_s: float = 15.0,
        request_timeout_s: float = 3.0,
        deserializer: Serializer | None = None,
        middleware: Iterable[Middleware] = (),
        tls: Tls = None,
        credentials: CredentialsChoice = None,
        connections: SharedConnections | None = None,
    ) -> None:
        """`tags` is an expression such as "new || paid"; `filter` is an Sql expression instead.

        A regular expression ("orders_.*", or one from re.compile) matches all topics by their whole
        name, except system topics; new topics are found within 10 s and read from their beginning.
        `deserializer` decodes `message.value`. `poll_s` is how long a broker may hold a request
        without new messages. `middleware` is called around every `pull`, `pull_from` and the
        waiting of loops. `tls` is True or TlsOptions; `credentials` are Credentials or the path of
        a credentials file; by default the environment decides.
        """

    def queues(self, topic: str | None = None) -> list[MessageQueue]:
        """Return the readable queues of a topic, by default the consumer's own topic."""

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read exactly these queues; a queue that was already read continues at its position."""

    def find(self) -> None:
        """Look for topics that match the pattern now; the consumer also does this every 10 s."""

    def pause(self, *what: Paused) -> None:
        """Deliver and fetch no messages of these topics and queues; without arguments, of all.

        Prefetched messages are kept, and a queue that is unassigned and assigned again is still
        paused.
        """

    def resume(self, *what: Paused) -> None:
        """Resume these topics and queues; without arguments, all."""

    def seek(self, queue: MessageQueue, position: Position) -> None:
        """Continue at an offset, "earliest", "latest", or the first message since a time."""

    def position(self, queue: MessageQueue) -> int:
        """Return the offset of the next message that this consumer will deliver from `queue`."""

    def begin_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the oldest message in `queue`."""

    def end_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the next message in `queue` will get."""

    def pull(self, max_count: int = 32, *, timeout_s: float | None = None) -> list[ReceivedMessage]:
        """Return up to `max_count` messages as soon as at least one is available.

        If none arrives within `timeout_s`, the list is empty; None waits for ever. Messages of one
        queue are in order. Cancelling loses no message. Raises the error that made a queue
        unreadable; the consumer tries that queue again a second later. Raises ClientStateError if
        the consumer is closed, also while it waits.
        """

    def pull_from(
        self, queue: MessageQueue, offset: int, max_count: int = 32, *, wait_s: float = 0.0
    ) -> PullResult:
        """Read from a queue at an offset with a single request, independent of the assignment.

        With `wait_s` the broker waits up to that time for a first message.
        """

    def commit(self, offsets: Mapping[MessageQueue, int] | ReceivedMessage | None = None) -> None:
        """Commit the offsets of all delivered messages, or of one message.

        A mapping gives the next offset for each queue.
        """

    def committed(self, queue: MessageQueue) -> int | None:
        """Return the offset that the group has committed for `queue`, or None."""

    @property
    def assigned(self) -> list[MessageQueue]:
        """The queues that are being read."""

    @property
    def paused(self) -> list[Paused]:
        """The paused topics and queues; all topics of the consumer after `pause()`."""

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Deliver one message after the other, until `close`."""

class TransactionProducer:
    """Sends messages in transactions; see rockhopper.TransactionProducer.

    `check` is a plain function; several threads may call it at once.
    """

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    def start(self) -> Self:
        """Open it now; a second call does nothing."""

    def close(self) -> None:
        """Close it; a second call does nothing. A forked child leaves the parent's client open."""

    def send(
        self,
        message: Message | str,
        body: object = b"",
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        queue: MessageQueue | int | None = None,
        timeout_s: float | None = None,
    ) -> SendReceipt:
        """Send one message, given as a Message or as a topic and its parts; return the receipt.

        The message goes to `queue`, else to the queue of its sharding key, else to the queues in
        turn. `keys` is one key, several keys separated by blanks, or a sequence of keys. Raises
        MessageRejectedError, RouteNotFoundError, RequestRefusedError, BrokerUnreachableError,
        RequestTimeoutError.
        """

    def message(self, topic: str, value: object, **fields: Unpack[MessageFields]) -> Message:
        """Return a Message with the serialized *value* as its body and the given fields.

        Use it for options that `send(topic, value)` does not have: delays, order, batches,
        requests, transactions. Raises as Message does, and MessageRejectedError if the value is
        invalid.
        """

    def send_batch(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | int | None = None,
        timeout_s: float | None = None,
    ) -> list[SendReceipt]:
        """Send several messages of one topic to one queue in one request; all are stored or none.

        Only a power cut before the answer (with ASYNC_FLUSH: up to half a second after it) may
        store some of them only.

        Returns a receipt for each message, in order. A batch cannot contain delayed messages, and
        is not compressed. Raises as `send` does.
        """

    def send_many(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | int | None = None,
        timeout_s: float | None = None,
    ) -> list[SendReceipt]:
        """Send messages as `send` would, each with its own receipt, but far more per second.

        They leave in batches, several at a time, and may have several topics. Those with the same
        topic and sharding key are stored in order. `timeout_s` is for each batch. Returns a receipt
        for each message, in order.

        Raises NotAllSentError if some messages failed, after the outcome of each is known, and
        TypeError, ValueError, ClientStateError before any is sent. If the call is cancelled, each
        message may or may not have been stored.
        """

    def send_oneway(
        self,
        message: Message | str,
        body: object = b"",
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        queue: MessageQueue | int | None = None,
    ) -> None:
        """Send one message without an answer from the broker: it may not have been stored."""

    def request(
        self,
        message: Message,
        *,
        timeout_s: float | None = None,
        queue: MessageQueue | int | None = None,
    ) -> ReceivedMessage:
        """Send a message, wait for a consumer's reply, and return the reply.

        `timeout_s` covers the send and the reply. Raises ReplyTimeoutError if no reply arrives in
        time, else as `send` does. Cancelling only stops waiting.
        """

    def reply(
        self,
        request: ReceivedMessage,
        body: object = b"",
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Reply to a consumed request message.

        Raises MessageRejectedError if the message is not a request, RequestRefusedError if the
        requester has disconnected, else as `send` does.
        """

    def recall(self, recalled: SendReceipt | tuple[str, str]) -> str:
        """Cancel the delivery of a message with a delay or a delivery time; return its message id.

        `recalled` is the receipt, or the topic and the recall handle. Raises MessageRejectedError
        if there is no handle, RequestRefusedError if the message was already delivered or the
        broker does not allow recalls (recallMessageEnable).
        """

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return a topic's writable queues, in the order used for sharding keys."""

    def __init__(
        self,
        group: str,
        *,
        check: Check,
        nameserver: str | None = None,
        timeout_s: float = 3.0,
        retries: int = 2,
        compress_above_bytes: int | None = 4096,
        message_size_bytes_max: int = 4 * 1024 * 1024,
        trace: bool | str = False,
        serializer: Serializer | None = None,
        deserializer: Serializer | None = None,
        middleware: Iterable[Middleware] = (),
        tls: Tls = None,
        credentials: CredentialsChoice = None,
        connections: SharedConnections | None = None,
    ) -> None:
        """See rockhopper.TransactionProducer. Raises TypeError for a `check` with `async def`."""

    @contextmanager
    def transaction(
        self, message: Message, *, timeout_s: float | None = None
    ) -> Iterator[Transaction]:
        """Store a half message, run the block, then commit; if the block raises, ask `check`.

        Only `roll_back()` drops the message without a check.
        """

    def send_in_transaction(
        self,
        message: Message,
        local: Callable[[Transaction], TransactionState | str],
        *,
        timeout_s: float | None = None,
    ) -> Transaction:
        """Store a half message, call `local`, and end the transaction with the state it returns.

        `local` runs in this thread. The outcome is left to `check` if `local` raises or returns
        anything but a state.
        """
