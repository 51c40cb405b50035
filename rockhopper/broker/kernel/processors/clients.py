"""Clients and groups: heartbeat (34), unregistration (35), members (38), client check (46).

Also the locks of orderly consumers (41, 42).
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

import structlog

from rockhopper.broker.kernel.members.consumer_groups import (
    PULLING,
    Client,
    ConsumerGroups,
    ConsumeSettings,
)
from rockhopper.broker.kernel.members.producers import ProducerTable
from rockhopper.broker.kernel.members.queue_locks import QueueKey, QueueLocks
from rockhopper.broker.kernel.processors.topics_admin import TopicAnnouncer
from rockhopper.broker.kernel.pull.puller import Puller
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroupTable
from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.server.remoting.dispatcher import Request, Response, Row, serves
from rockhopper.broker.server.remoting.json_bodies import (
    json_response,
    long_json_response,
    names_in_body,
    with_body,
)
from rockhopper.broker.server.remoting.permissions import (
    ExaminedRequest,
    RequiredPermission,
    name_optional_field,
    on_group,
    on_topics_and_groups,
)
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.users.access import Action, ResourceKind
from rockhopper.broker.users.errors import (
    InvalidParameter,
    NoPermission,
    Refusal,
    SubscriptionNotParsed,
    TooManyWait,
)
from rockhopper.protocol.bodies import (
    CheckClientRequestBody,
    ConsumerData,
    GetConsumerListByGroupBody,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueueKey,
    SubscriptionData,
)
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.errors import SubscriptionError
from rockhopper.protocol.names import is_producer_group
from rockhopper.protocol.requests import (
    GetConsumerListByGroupRequest,
    HeartbeatResponse,
    UnregisterClientRequest,
    encode_fields,
)
from rockhopper.protocol.subscription import Subscription

GROUPS_PER_HEARTBEAT_MAX = 1000
CLIENT_ID_LENGTH_MAX = 1024
GROUP_LENGTH_SHOWN = 200
UNUSABLE_LOGGED = "unusable producer group logged"
# Clients wait 3 s for the answer to a heartbeat.
ANNOUNCE_TIMEOUT_S = 1.5
# The number of SQL92 characters that one heartbeat may compile; pulls compile the rest.
COMPILED_LENGTH_MAX = 8192
REFUSED_GROUPS = "refused groups"
"""The attribute of a connection with the groups that its last heartbeat was refused."""

log = structlog.get_logger("broker.clients")
QUEUES_AT_ONCE = 256
LOCKING_GROUP_LENGTH_MAX = 4096
"""As in RocketMQ, any group name is accepted: locks are in memory, and end with their client."""
LOCKED = on_topics_and_groups(
    Action.SUB,
    names_in_body(LockBatchRequestBody, lambda body: [queue.topic for queue in body.mq_set]),
    names_in_body(LockBatchRequestBody, lambda body: [body.consumer_group]),
)


def _not_at_the_gate(_request: ExaminedRequest) -> Iterable[str]:
    return ()


def consuming(consumer: ConsumerData) -> tuple[RequiredPermission, RequiredPermission]:
    """Return the permissions for one consumer group in a heartbeat."""
    topics = [each.topic for each in consumer.subscription_data_set]
    return on_topics_and_groups(
        Action.SUB, lambda _request: topics, lambda _request: (consumer.group_name,)
    )


HEARTBEAT = on_topics_and_groups(Action.SUB, _not_at_the_gate, _not_at_the_gate)
"""Checked later, for each group (``consuming``), so that one cannot lock the others out."""
UNREGISTER = RequiredPermission(
    (Action.SUB,), ResourceKind.GROUP, name_optional_field("consumerGroup")
)


def _list_checked_topics(body: CheckClientRequestBody) -> Iterable[str]:
    return () if body.subscription_data is None else (body.subscription_data.topic,)


CHECKED = on_topics_and_groups(
    Action.SUB,
    names_in_body(CheckClientRequestBody, _list_checked_topics),
    names_in_body(CheckClientRequestBody, lambda body: [body.group]),
)


@dataclass(eq=False, repr=False)
class ClientProcessors:
    """Serves the registration of clients, and queries about group members."""

    _config: BrokerConfig
    _topics: TopicTable
    _groups: SubscriptionGroupTable
    _consumers: ConsumerGroups
    _producers: ProducerTable
    _stats: BrokerStats
    _puller: Puller
    _announcer: TopicAnnouncer
    _now_ms: Callable[[], int]

    def rows(self) -> dict[int, Row]:
        """Return the row of each request code; clients repeat the first two."""
        return {
            Code.HEART_BEAT: serves(self.heartbeat, *HEARTBEAT, promises_state=False),
            Code.UNREGISTER_CLIENT: serves(self.unregister, UNREGISTER, promises_state=False),
            Code.GET_CONSUMER_LIST_BY_GROUP: serves(
                self.consumer_list, on_group(Action.SUB, Action.GET), promises_state=False
            ),
            Code.CHECK_CLIENT_CONFIG: serves(self.check_config, *CHECKED, promises_state=False),
        }

    def heartbeat(self, request: Request) -> Response | Awaitable[Response]:
        """34: register a client's consumer and producer groups.

        A group that does not exist and may not be created is ignored silently, as in RocketMQ: the
        client learns of it when it pulls. A group without permission is ignored and logged. The
        heartbeat is refused if none of its consumer groups has permission.
        """
        topics = self._topics
        before = topics.version.counter
        taken = with_body(request, HeartbeatData, self._take_heartbeat)
        if not self._config.namesrv_addr or (
            isinstance(taken, Response) and topics.version.counter == before
        ):
            return taken
        return self._answer_when_announced(taken, before)

    async def _answer_when_announced(
        self, taken: Response | Awaitable[Response], before: int
    ) -> Response:
        """Answer once remote name servers know the retry topics that a heartbeat created.

        The client requests their routes next, and then not again for 30 s.
        """
        response = taken if isinstance(taken, Response) else await taken
        if self._topics.version.counter != before:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ANNOUNCE_TIMEOUT_S):
                    await self._announcer.announce()
        return response

    def _take_heartbeat(self, request: Request, beat: HeartbeatData) -> Response:
        if not 0 < len(beat.client_id) <= CLIENT_ID_LENGTH_MAX:
            raise Refusal(
                f"the clientID has {len(beat.client_id)} characters; "
                f"1 to {CLIENT_ID_LENGTH_MAX} are allowed"
            )
        count = len(beat.consumer_data_set) + len(beat.producer_data_set)
        if count > GROUPS_PER_HEARTBEAT_MAX:
            raise Refusal(
                f"the heartbeat names {count} groups; {GROUPS_PER_HEARTBEAT_MAX} are allowed"
            )
        is_known = beat.heartbeat_fingerprint != 0
        stats = self._stats
        begun_s = time.perf_counter()
        consumers, refusals = _split(request, beat)
        for consumer in consumers:
            if not self._register_consumer(request, beat, consumer):
                is_known = False
        if beat.consumer_data_set:
            stats.consumer_registrations.count_call(int((time.perf_counter() - begun_s) * 1000))
            begun_s = time.perf_counter()
        self._register_producers(request, beat)
        if beat.producer_data_set:
            stats.producer_registrations.count_call(int((time.perf_counter() - begun_s) * 1000))
        if refusals and not consumers:
            raise NoPermission("; ".join(refusals.values()))
        return Response(
            ext=encode_fields(
                HeartbeatResponse(
                    is_support_heart_beat_v2=True,
                    is_sub_change=not is_known,
                    store_time=self._now_ms() if "storeTime" in request.ext else None,
                )
            )
        )

    def _register_producers(self, request: Request, beat: HeartbeatData) -> None:
        for producer in beat.producer_data_set:
            if is_producer_group(producer.group_name):
                client = _client(request, beat.client_id)
                self._producers.register(producer.group_name, client)
            elif producer.group_name:
                _log_unusable(request, beat.client_id, producer.group_name)

    def _register_consumer(
        self, request: Request, beat: HeartbeatData, consumer: ConsumerData
    ) -> bool:
        """Register one group of a heartbeat.

        Return False if the client should repeat it in full.
        """
        if self._config.pull.reject_pull_consumer and consumer.consume_type == PULLING:
            return True
        group = self._groups.find_or_create(consumer.group_name)
        if group is None:
            return True
        # At once, because a starting consumer requests the route of its retry topic.
        self._topics.ensure_retry_topic(
            group.name, group.retry_queue_nums, unit_mode=consumer.unit_mode
        )
        client = _client(request, beat.client_id)
        if beat.without_sub and beat.heartbeat_fingerprint != 0:
            return self._consumers.register_again(group.name, client, beat.heartbeat_fingerprint)
        subscriptions = _subscriptions(consumer.subscription_data_set)
        self._warn(group.name, subscriptions.values())
        self._consumers.register(
            group.name,
            client,
            ConsumeSettings(
                consumer.consume_type,
                consumer.message_model,
                consumer.consume_from_where,
                bool(consumer.heeds_readers),
            ),
            subscriptions,
            beat.heartbeat_fingerprint,
        )
        return True

    def _warn(self, group: str, subscriptions: Iterable[Subscription]) -> None:
        """Log invalid SQL92 expressions, as far as they compile quickly.

        As in RocketMQ, the heartbeat succeeds and the pulls fail.
        """
        length = 0
        for subscription in subscriptions:
            if subscription.is_sql and length < COMPILED_LENGTH_MAX:
                length += len(subscription.expression)
                self._puller.filters.warn(group, subscription)

    def unregister(self, request: Request) -> Response:
        """35: remove a client from a consumer group, a producer group, or both."""
        fields = request.fields(UnregisterClientRequest)
        if fields.producer_group:
            self._producers.unregister(fields.producer_group, request.connection)
        if fields.consumer_group:
            self._consumers.unregister(fields.consumer_group, request.connection)
        return Response()

    def consumer_list(self, request: Request) -> Response:
        """38: return the client ids among which a group divides its queues."""
        name = request.fields(GetConsumerListByGroupRequest).consumer_group
        group = self._consumers.get(name)
        if group is None:
            raise Refusal(f"no consumer for this group, {name}")
        body = GetConsumerListByGroupBody(consumer_id_list=group.client_ids())
        member = group.members.get(request.connection)
        if member is not None and member.heeds_readers:
            readers = group.readers
            own = member.subscriptions
            body.readers = {
                topic: sorted(ids) for topic, ids in readers.by_topic.items() if topic in own
            }
            body.topics_at_risk = sorted(readers.at_risk & own.keys())
        return json_response(body)

    def check_config(self, request: Request) -> Response | Awaitable[Response]:
        """46: check whether an expression is valid, before a consumer starts."""
        return with_body(request, CheckClientRequestBody, self._check_expression)

    def _check_expression(
        self, request: Request, body: CheckClientRequestBody
    ) -> Response | Awaitable[Response]:
        data = body.subscription_data
        if data is None:
            return Response()
        try:
            subscription = data.subscription()
        except SubscriptionError as error:
            raise SubscriptionNotParsed(str(error)) from None
        self._puller.filters.check_enabled(subscription)
        if subscription.is_sql and not self._puller.turns.budget.has_room():
            return self._compile_in_turn(request, subscription)
        return self._compile(subscription)

    async def _compile_in_turn(self, request: Request, subscription: Subscription) -> Response:
        if not await self._puller.turns.turn(request.connection):
            raise TooManyWait("[OVERLOAD]system busy: too many requests with a filter are waiting")
        return self._compile(subscription)

    def _compile(self, subscription: Subscription) -> Response:
        try:
            with self._puller.turns.budget.pays():
                _ = subscription.sql
        except SubscriptionError as error:
            raise SubscriptionNotParsed(str(error)) from None
        return Response()


def _split(request: Request, beat: HeartbeatData) -> tuple[list[ConsumerData], dict[str, str]]:
    """Return the consumer groups with permission, and the reasons why others have none."""
    allowed, refusals = [], {}
    for consumer in beat.consumer_data_set:
        try:
            request.check_permissions(consuming(consumer))
        except NoPermission as error:
            refusals[consumer.group_name] = str(error)
        else:
            allowed.append(consumer)
    attributes = request.attributes
    before = attributes.pop(REFUSED_GROUPS, None)
    if refusals:
        attributes[REFUSED_GROUPS] = frozenset(refusals)
    for group, reason in refusals.items():
        if not isinstance(before, frozenset) or group not in before:
            log.warning(
                "heartbeat: ignored a group without permission",
                group=group,
                client=beat.client_id,
                peer=request.connection.addresses.peer_host,
                reason=reason,
            )
    return allowed, refusals


def _log_unusable(request: Request, client_id: str, group: str) -> None:
    """Log, once for each connection, that an invalid producer group is ignored."""
    if UNUSABLE_LOGGED in request.attributes:
        return
    request.attributes[UNUSABLE_LOGGED] = True
    log.warning(
        "heartbeat: ignored a producer group with an invalid name",
        group=ascii(group[:GROUP_LENGTH_SHOWN]),
        client=ascii(client_id[:GROUP_LENGTH_SHOWN]),
        peer=request.connection.addresses.peer_host,
    )


def _client(request: Request, client_id: str) -> Client:
    command, user = request.command, request.principal.user
    return Client(request.connection, client_id, command.language, command.version, user)


def _subscriptions(data_set: Iterable[SubscriptionData]) -> dict[str, Subscription]:
    """Return the filters by topic; an invalid one selects nothing, and its pulls fail."""
    found = {}
    for data in data_set:
        try:
            found[data.topic] = data.subscription()
        except SubscriptionError:
            continue
    return found


@dataclass(eq=False, repr=False)
class QueueLockProcessors:
    """Serves the locks of orderly consumers."""

    _locks: QueueLocks

    def rows(self) -> dict[int, Row]:
        """Return the row of each request code."""
        return {
            Code.LOCK_BATCH_MQ: serves(self.lock, *LOCKED),
            Code.UNLOCK_BATCH_MQ: serves(self.unlock, *LOCKED),
        }

    def lock(self, request: Request) -> Response | Awaitable[Response]:
        """41: lock or renew queues for a client; the answer lists those that it now holds."""
        return with_body(request, LockBatchRequestBody, self._lock)

    def unlock(self, request: Request) -> Response | Awaitable[Response]:
        """42: release queues. Those of other clients stay locked."""
        return with_body(request, LockBatchRequestBody, self._unlock)

    def _lock(self, request: Request, body: LockBatchRequestBody) -> Response | Awaitable[Response]:
        _check_locking(body)
        granted = self._locks.lock(
            body.consumer_group, body.client_id, request.connection, _keys_of(body)
        )
        queues = [MessageQueueKey(topic, name, queue_id) for topic, name, queue_id in granted]
        granted_body = LockBatchResponseBody(lock_ok_mq_set=queues)
        if len(queues) > QUEUES_AT_ONCE:
            return long_json_response(lambda: granted_body)
        return json_response(granted_body)

    def _unlock(self, request: Request, body: LockBatchRequestBody) -> Response:
        _check_locking(body)
        self._locks.unlock(body.consumer_group, body.client_id, request.connection, _keys_of(body))
        return Response()


def _check_locking(body: LockBatchRequestBody) -> None:
    if len(body.consumer_group) > LOCKING_GROUP_LENGTH_MAX:
        raise InvalidParameter(
            f"the group has {len(body.consumer_group)} characters; {LOCKING_GROUP_LENGTH_MAX} "
            "are allowed"
        )
    if not body.client_id:
        raise InvalidParameter("the body has no clientId")


def _keys_of(body: LockBatchRequestBody) -> list[QueueKey]:
    return [(queue.topic, queue.broker_name, queue.queue_id) for queue in body.mq_set]
