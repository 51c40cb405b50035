"""Telemetry, Heartbeat and NotifyClientTermination: the lifecycle of clients.

A client sends its settings over its Telemetry stream, and receives the broker's settings there. Its
heartbeats, each 10 s, keep it registered.
"""

import re
from collections.abc import Mapping
from typing import Any

from rockhopper.broker.feature import RpcRow
from rockhopper.broker.gateways.grpc import permissions
from rockhopper.broker.gateways.grpc.call import Call
from rockhopper.broker.gateways.grpc.resources import full_name, group_of, topic_of
from rockhopper.broker.gateways.grpc.sessions import ClientSession, Sessions
from rockhopper.broker.gateways.grpc.statuses import OK, GrpcStatusError, status_of
from rockhopper.broker.kernel.members.consumer_groups import ConsumerGroups, ConsumeSettings
from rockhopper.broker.kernel.members.producers import ProducerTable
from rockhopper.broker.kernel.tables.subscription_groups import (
    SubscriptionGroup,
    SubscriptionGroupTable,
)
from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.users.errors import SubscriptionNotParsed
from rockhopper.protocol.errors import SubscriptionError
from rockhopper.protocol.grpc_v2.codes import Code, GrpcStatus
from rockhopper.protocol.grpc_v2.messages import (
    FILTER_SQL,
    METHODS,
    ClientType,
    RetryPolicy,
    Settings,
    TelemetryCommand,
)
from rockhopper.protocol.subscription import TYPE_SQL92, TYPE_TAG, Subscription

RECEIVE_BATCH_SIZE = 32
LONG_POLLING_S = 20
TOPICS_PER_CLIENT_MAX = 1000
_CONSUMERS = frozenset(
    {ClientType.PUSH_CONSUMER, ClientType.SIMPLE_CONSUMER, ClientType.PULL_CONSUMER}
)
_LITE_CONSUMERS = frozenset({ClientType.LITE_PUSH_CONSUMER, ClientType.LITE_SIMPLE_CONSUMER})
_HeartbeatReply = METHODS["Heartbeat"].reply
_TerminationReply = METHODS["NotifyClientTermination"].reply
_DELAYS_S = (
    1,
    5,
    10,
    30,
    60,
    120,
    180,
    240,
    300,
    360,
    420,
    480,
    540,
    600,
    1200,
    1800,
    3600,
    7200,
)
_DELAYS_MS = tuple(seconds * 1000 for seconds in _DELAYS_S)
_EXPONENTIAL_DEFAULT = {"initial": 5_000, "max": 7_200_000, "multiplier": 2}
PRODUCER_ATTEMPTS = 3
CONSUMER_ATTEMPTS_DEFAULT = 17
READS_EXPONENTIAL_ALONE = "HTTP"
"""The language that Node's client reports."""
CLIENT_PROPERTIES_MAX = 32
CLIENT_PROPERTY_LENGTH_MAX = 256
CLIENT_PROPERTIES_SIZE_BYTES_MAX = 4096
_is_property_name = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}").fullmatch
_RESERVED_PREFIX = "rocketmq."


class ClientLifecycle:
    """Serves the lifecycle RPCs of clients."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        consumers: ConsumerGroups,
        producers: ProducerTable,
        sessions: Sessions,
    ) -> None:
        self._live_store = config.store.live
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._producers = producers
        self._sessions = sessions

    def rpcs(self) -> dict[str, RpcRow]:
        """Return the row of each RPC."""
        return {
            "Telemetry": RpcRow(
                self.telemetry, permissions.telemetry_permissions, promises_state=False
            ),
            "Heartbeat": RpcRow(
                self.heartbeat, permissions.heartbeat_permissions, promises_state=False
            ),
            "NotifyClientTermination": RpcRow(
                self.terminated, permissions.heartbeat_permissions, promises_state=False
            ),
            "SyncLiteSubscription": RpcRow(self.no_lite_topics, permissions.of_consuming),
        }

    def telemetry(self, call: Call, command: Any) -> None:
        """Telemetry: handle one command of the client. The client's errors end the stream."""
        try:
            self._take(call, command)
        except Exception as error:
            told = status_of(error)
            if told.code == Code.CLIENT_ID_REQUIRED:
                call.write(TelemetryCommand(status=told))
                return
            is_clients = Code.BAD_REQUEST <= told.code < Code.INTERNAL_ERROR
            code = GrpcStatus.INVALID_ARGUMENT if is_clients else GrpcStatus.INTERNAL
            if told.code == Code.UNSUPPORTED:
                # For clients that read gRPC's status, and for those that read RocketMQ's.
                call.write(TelemetryCommand(status=told))
                code = GrpcStatus.UNIMPLEMENTED
            call.connection.fail(call, code, told.message)

    def _take(self, call: Call, command: Any) -> None:
        kind = command.WhichOneof("command")
        if kind == "settings":
            self._settle(call, command.settings)
        elif kind == "thread_stack_trace":
            answer = command.thread_stack_trace
            self._sessions.get_known(call).commands.answered(answer.nonce, command)
        elif kind == "verify_message_result":
            answer = command.verify_message_result
            self._sessions.get_known(call).commands.answered(answer.nonce, command)

    def _settle(self, call: Call, settings: Any) -> None:
        kind = settings.WhichOneof("pub_sub")
        if kind is None:
            raise GrpcStatusError(
                Code.BAD_REQUEST, "the settings name neither publishing nor subscription"
            )
        if settings.client_type in _LITE_CONSUMERS:
            self.no_lite_topics(call, settings)
        check_client_properties(settings.client_properties)
        _check_names(settings)
        session = self._sessions.open(call)
        session.settings = settings
        session.talk_by(call)
        self._register(session)
        call.write(TelemetryCommand(status=OK, settings=self.merge_settings(session)))

    def merge_settings(self, session: ClientSession) -> Any:
        """Return the client's settings with the broker's values."""
        merged = Settings()
        merged.CopyFrom(session.settings)
        merged.metric.Clear()
        merged.metric.on = False
        if merged.HasField("publishing"):
            merged.publishing.max_body_size = self._live_store.message_size_max_bytes
            merged.publishing.validate_message_type = True
            merged.backoff_policy.CopyFrom(producer_policy())
            return merged
        subscription = merged.subscription
        group = self._groups.get(full_name(subscription.group))
        subscription.fifo = group is not None and group.consume_message_orderly
        subscription.receive_batch_size = RECEIVE_BATCH_SIZE
        subscription.long_polling_timeout.FromSeconds(LONG_POLLING_S)
        merged.backoff_policy.CopyFrom(consumer_policy(group, session.language))
        return merged

    def heartbeat(self, call: Call, request: Any) -> Any:
        """Heartbeat."""
        session = self._sessions.get_known(call)
        if request.client_type in _CONSUMERS:
            group_of(request.group)
        elif request.client_type in _LITE_CONSUMERS:
            self.no_lite_topics(call, request)
        elif request.client_type != ClientType.PRODUCER:
            raise GrpcStatusError(
                Code.UNRECOGNIZED_CLIENT_TYPE, f"{request.client_type} is not a client type"
            )
        self._register(session)
        return _HeartbeatReply(status=OK)

    @staticmethod
    def no_lite_topics(_call: Call, _request: Any) -> None:
        """Refuse SyncLiteSubscription, and any other first request of a lite-topic consumer."""
        raise GrpcStatusError(
            Code.UNSUPPORTED,
            "lite topics are not supported, so LitePushConsumer and LiteSimpleConsumer cannot "
            "connect: use a PushConsumer or SimpleConsumer with an ordinary topic",
        )

    def _register(self, session: ClientSession) -> None:
        settings = session.settings
        client = session.client()
        for topic in settings.publishing.topics:
            # Producers of this protocol have no group; transaction checks use the topic.
            self._producers.register(full_name(topic), client)
        if not settings.HasField("subscription") or settings.client_type not in _CONSUMERS:
            return
        group = self._groups.find_or_create(full_name(settings.subscription.group))
        if group is None:
            return
        self._topics.ensure_retry_topic(group.name, group.retry_queue_nums, unit_mode=False)
        subscriptions = {
            found.topic: found for found in map(_subscription, settings.subscription.subscriptions)
        }
        self._consumers.register(group.name, client, ConsumeSettings(), subscriptions)

    def terminated(self, call: Call, request: Any) -> Any:
        """NotifyClientTermination: remove the client. Its messages become visible again soon."""
        del request
        self._sessions.end_session(self._sessions.get_known(call))
        return _TerminationReply(status=OK)


def _check_names(settings: Any) -> None:
    topics = len(settings.publishing.topics) + len(settings.subscription.subscriptions)
    if topics > TOPICS_PER_CLIENT_MAX:
        raise GrpcStatusError(
            Code.BAD_REQUEST, f"{topics} topics; {TOPICS_PER_CLIENT_MAX} are allowed"
        )
    for topic in settings.publishing.topics:
        topic_of(topic)
    if settings.HasField("subscription"):
        group_of(settings.subscription.group)
        for entry in settings.subscription.subscriptions:
            topic_of(entry.topic)


def _subscription(entry: Any) -> Subscription:
    kind = TYPE_SQL92 if entry.expression.type == FILTER_SQL else TYPE_TAG
    try:
        return Subscription(full_name(entry.topic), entry.expression.expression, kind)
    except SubscriptionError as error:
        raise SubscriptionNotParsed(str(error)) from None


def producer_policy() -> Any:
    """Return the policy of producers for failed sends."""
    return _exponential(PRODUCER_ATTEMPTS, 10, 1000, 2)


def consumer_policy(group: SubscriptionGroup | None, language: str) -> Any:
    """Return the policy of a client of *group* for messages that it failed to consume.

    The group's groupRetryPolicy decides, otherwise RocketMQ's default. Clients support different
    kinds: Node only an exponential policy, Python a customized one, and Java terminates if there is
    none.
    """
    attempts = CONSUMER_ATTEMPTS_DEFAULT if group is None else group.retry_max_times + 1
    found = group.others.get("groupRetryPolicy") if group is not None else None
    policy: dict[str, Any] = found if isinstance(found, dict) else {}
    wanted = policy.get("exponentialRetryPolicy")
    is_exponential = policy.get("type") == "EXPONENTIAL" or language == READS_EXPONENTIAL_ALONE
    if is_exponential:
        values = {**_EXPONENTIAL_DEFAULT, **(wanted if isinstance(wanted, dict) else {})}
        return _exponential(attempts, values["initial"], values["max"], values["multiplier"])
    customized = policy.get("customizedRetryPolicy")
    following = customized.get("next") if isinstance(customized, dict) else None
    retry = RetryPolicy(max_attempts=attempts)
    for delay_ms in following or _DELAYS_MS:
        retry.customized_backoff.next.add().FromMilliseconds(int(delay_ms))
    return retry


def _exponential(attempts: int, initial_ms: int, most_ms: int, multiplier: float) -> Any:
    retry = RetryPolicy(max_attempts=attempts)
    retry.exponential_backoff.initial.FromMilliseconds(int(initial_ms))
    retry.exponential_backoff.max.FromMilliseconds(int(most_ms))
    retry.exponential_backoff.multiplier = multiplier
    return retry


def check_client_properties(pairs: Mapping[str, str]) -> None:
    """Raise GrpcStatusError if the properties that a client reports about itself are invalid."""
    problem = None
    size_bytes = sum(len(name.encode()) + len(value.encode()) for name, value in pairs.items())
    if len(pairs) > CLIENT_PROPERTIES_MAX or size_bytes > CLIENT_PROPERTIES_SIZE_BYTES_MAX:
        problem = f"{len(pairs)} pairs of {size_bytes} bytes"
    for name, value in pairs.items():
        if not _is_property_name(name) or name.lower().startswith(_RESERVED_PREFIX):
            problem = f"the name {name[:100]!r}"
        elif len(value) > CLIENT_PROPERTY_LENGTH_MAX:
            problem = f"the value of {name} with {len(value)} characters"
    if problem is not None:
        raise GrpcStatusError(
            Code.INVALID_CLIENT_PROPERTIES, f"client properties cannot be {problem}"
        )
