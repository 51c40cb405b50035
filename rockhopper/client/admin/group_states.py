"""The state of consumer groups, as reported by brokers and members: settings, members, lag.

A group has settings on every broker, online members on each, and offsets in the queues of its
topics. The results here combine the answers of all masters.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from rockhopper.client.errors import ClientError, MalformedAnswerError, RouteNotFoundError
from rockhopper.client.network.addresses import BrokerAddress
from rockhopper.client.network.session import Session
from rockhopper.client.queues import MessageQueue
from rockhopper.protocol import fastjson
from rockhopper.protocol.bodies import (
    Body,
    ConsumeStats,
    MarkedConsumerConnection,
    SubscriptionData,
    TopicList,
    TopicStatsTable,
)
from rockhopper.protocol.bodies.queues import QueueTable
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.fastjson import MessageQueueKey
from rockhopper.protocol.names import is_retry_topic, is_system_group, retry_topic
from rockhopper.protocol.requests import (
    ConsumerGroupRequest,
    GetConsumeStatsRequest,
    QueryTopicsByConsumerRequest,
    TopicRequest,
    encode_fields,
)
from rockhopper.protocol.requests.groups import GetConsumerRunningInfoRequest

REQUEUE_GROUP = "rockhopper_dlq_requeue"
"""The group whose offsets mark the dead letters sent back. It belongs to a tool."""


def is_tools_group(name: str) -> bool:
    """Whether a group belongs to tools or brokers."""
    return is_system_group(name) or name == REQUEUE_GROUP


Told = TypeVar("Told", bound=Body)

MEMBERS_ASKED_AT_ONCE_MAX = 16
"""The maximum of concurrent queries to members of a group; unanswered ones count too."""
_MEMBERS_ASKED_MAX = 48
_MEMBERS_TELL_WITHIN_S = 2.0
_RELAYED_FOR_S = 10.0
"""How long a broker waits for a member; it serves up to 128 requests of a connection at a time."""
_GROUPS_AT_ONCE = 16
# What brokers answer for a group or topic that is missing or not online.
_THERE_OR_NOT = frozenset(
    int(code)
    for code in (
        ResponseCode.SUCCESS,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.CONSUMER_NOT_ONLINE,
    )
)
# A user may have access to a group but not to all its topics.
_SEEN_OR_NOT = _THERE_OR_NOT | {int(ResponseCode.NO_PERMISSION)}


@dataclass(frozen=True, slots=True)
class QueueLag:
    """The progress of a group in one queue: `lag` messages behind its end."""

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    """Also 0 if the group has never committed: brokers do not distinguish the two."""
    lag: int
    consumed_time_ms: int | None
    """The store time of the last consumed message; None if unknown."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A client that consumes in a group now."""

    client_id: str
    address: str
    language: str
    version: int


@dataclass(frozen=True)
class GroupState:
    """A group: its settings, members and offsets."""

    name: str
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Broker name -> the group's settings there."""
    members: Sequence[GroupMember] = ()
    subscriptions: Mapping[str, str] = field(default_factory=dict)
    """Topic -> filter, of the online members."""
    consume_type: str | None = None
    model: str | None = None
    """CLUSTERING or BROADCASTING; None while no member is online."""
    start_from: str | None = None
    queues: Sequence[QueueLag] = ()
    owners: Mapping[MessageQueue, str] = field(default_factory=dict)
    """Queue -> id of the member that reads it, as far as members report it."""
    filters: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Member -> topic -> filter, as far as brokers or members report them."""
    models: Mapping[str, str] = field(default_factory=dict)
    """Member -> CLUSTERING or BROADCASTING, if members differ and brokers report it."""
    silent: Sequence[str] = ()
    """Ids of the members that did not answer in time, or were not asked before the deadline."""
    shared_ids: Sequence[str] = ()
    """Client ids that several live members share: each of them receives all messages."""

    @property
    def is_consistent(self) -> bool:
        """Whether all members have the same subscriptions and the same model."""
        wanted = list(self.filters.values())
        return all(each == wanted[0] for each in wanted) and len({*self.models.values()}) <= 1

    @property
    def lag(self) -> int:
        """The total lag in messages."""
        return sum(each.lag for each in self.queues)


class _RunningInfo(QueueTable, rename="camel"):
    """A member's report about itself, reduced to its queues and subscriptions."""

    mq_table: dict[MessageQueueKey, Any] = {}  # noqa: RUF012  msgspec copies it
    subscription_set: list[SubscriptionData] = []  # noqa: RUF012


class GroupReader:
    """Queries brokers about groups."""

    def __init__(
        self, session: Session, masters: Callable[[], Awaitable[list[BrokerAddress]]]
    ) -> None:
        self._session = session
        self._masters = masters
        self._relayed = asyncio.Semaphore(_MEMBERS_ASKED_MAX)

    async def settings(self) -> dict[str, dict[str, Mapping[str, Any]]]:
        """Return the settings of all groups, by group and by broker name."""
        masters = await self._masters()
        tables = await asyncio.gather(*(self._settings_on(master) for master in masters))
        found: dict[str, dict[str, Mapping[str, Any]]] = {}
        for master, table in zip(masters, tables, strict=True):
            for group, settings in table.items():
                found.setdefault(group, {})[master.name] = settings
        return found

    async def _settings_on(self, master: BrokerAddress) -> dict[str, Mapping[str, Any]]:
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        answer = await self._session.request(master.address, code)
        try:
            document = fastjson.loads(answer.body)
        except ProtocolError as error:
            raise make_unreadable_error(code, master.address, error) from error
        table = document.get("subscriptionGroupTable") if isinstance(document, dict) else None
        return dict(table) if isinstance(table, dict) else {}

    async def names(self, *, with_system: bool = False) -> list[str]:
        """Return the groups with settings on a broker, except those of tools and brokers."""
        settings = await self.settings()
        return sorted(name for name in settings if with_system or not is_tools_group(name))

    async def states(self, *, with_system: bool = False) -> list[GroupState]:
        """Return all groups, each without settings and owners."""
        masters = await self._masters()
        names = await self.names(with_system=with_system)
        slots = asyncio.Semaphore(_GROUPS_AT_ONCE)

        async def state(name: str) -> GroupState:
            async with slots:
                return await self._state(name, masters)

        return list(await asyncio.gather(*(state(name) for name in names)))

    async def state(self, group: str) -> GroupState:
        """Return everything about a group. Raises RouteNotFoundError if no broker knows it.

        This asks its members for their queues and filters.
        """
        masters, settings = await asyncio.gather(self._masters(), self.settings())
        found = await self._state(group, masters)
        own = settings.get(group, {})
        if not own and not found.members and not found.queues:
            raise self._unknown(group)
        ids = [member.client_id for member in found.members]
        infos = await self._told(group, ids, masters)
        return replace(
            found,
            settings=own,
            owners={
                MessageQueue(key.topic, key.broker_name, key.queue_id): client_id
                for client_id, info in infos.items()
                for key in info.mq_table
            },
            filters={
                **{
                    client_id: {
                        each.topic: each.sub_string
                        for each in info.subscription_set
                        if not is_retry_topic(each.topic)
                    }
                    for client_id, info in infos.items()
                    if info.subscription_set
                },
                **found.filters,
            },
            silent=[each for each in ids if each not in infos],
        )

    async def lag(self, group: str) -> list[QueueLag]:
        """Return a group's lag in each queue. Raises RouteNotFoundError if it is unknown."""
        found = await self._state(group, await self._masters())
        if not found.members and not found.queues and group not in await self.settings():
            raise self._unknown(group)
        return list(found.queues)

    async def members(self, group: str) -> list[GroupMember]:
        """Return the online members."""
        return list((await self.online(group)).members)

    async def progress(self, group: str) -> GroupState:
        """Return only the online members and the offsets; the group may be unknown."""
        return await self._state(group, await self._masters())

    async def progress_in(self, group: str, topic: str) -> list[QueueLag]:
        """Return the lag in one topic, without querying others."""
        masters = await self._masters()
        asked = (self._lag_in(group, topic, master) for master in masters)
        found = await asyncio.gather(*asked)
        return sorted((each for lags in found for each in lags), key=lambda each: each.queue)

    async def _lag_in(self, group: str, topic: str, master: BrokerAddress) -> list[QueueLag]:
        table, low = await asyncio.gather(
            self._stats(group, master, topic), self._begins(topic, master)
        )
        return [_queue_lag(key, at, low) for key, at in table.items() if key.topic == topic]

    async def online(self, group: str) -> GroupState:
        """Return only the online members and their subscriptions; there may be none."""
        return await self._state(group, await self._masters(), with_lag=False)

    async def _state(
        self, group: str, masters: Sequence[BrokerAddress], *, with_lag: bool = True
    ) -> GroupState:
        connections = await asyncio.gather(
            *(self._connections(group, master) for master in masters)
        )
        state = _merge_connections(group, [each for each in connections if each is not None])
        if not with_lag:
            return state
        lags = await asyncio.gather(
            *(self._lag_on(group, master, sorted(state.subscriptions)) for master in masters)
        )
        queues = sorted((each for lag in lags for each in lag), key=lambda each: each.queue)
        return replace(state, queues=queues)

    async def _connections(
        self, group: str, master: BrokerAddress
    ) -> MarkedConsumerConnection | None:
        return await self._ask(
            master.address,
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            encode_fields(ConsumerGroupRequest(consumer_group=group)),
            MarkedConsumerConnection,
        )

    async def _lag_on(
        self, group: str, master: BrokerAddress, subscribed: Sequence[str]
    ) -> list[QueueLag]:
        table = await self._all_stats(group, master, subscribed)
        topics = sorted({key.topic for key in table})
        begins = await asyncio.gather(*(self._begins(topic, master) for topic in topics))
        low = {key: offset for begin in begins for key, offset in begin.items()}
        return [_queue_lag(key, at, low) for key, at in table.items()]

    async def _all_stats(
        self, group: str, master: BrokerAddress, subscribed: Sequence[str]
    ) -> dict[MessageQueueKey, Any]:
        table = await self._stats(group, master, None)
        known = {key.topic for key in table}
        # Brokers omit topics that no online member subscribes to, and topics without offsets.
        committed = await self._committed_topics(group, master)
        for topic in sorted({*subscribed, *committed} - known):
            table |= await self._stats(group, master, topic)
        retries = retry_topic(group)
        if retries not in {key.topic for key in table}:
            found_retries = await self._stats(group, master, retries)
            table |= {key: at for key, at in found_retries.items() if at.broker_offset}
        return table

    async def _committed_topics(self, group: str, master: BrokerAddress) -> Sequence[str]:
        told = await self._ask(
            master.address,
            RequestCode.QUERY_TOPICS_BY_CONSUMER,
            encode_fields(QueryTopicsByConsumerRequest(group=group, with_retry_topics=True)),
            TopicList,
            _SEEN_OR_NOT | {int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)},  # before RocketMQ 5
        )
        return told.topic_list if told is not None else ()

    async def _stats(
        self, group: str, master: BrokerAddress, topic: str | None
    ) -> dict[MessageQueueKey, Any]:
        stats = await self._ask(
            master.address,
            RequestCode.GET_CONSUME_STATS,
            # With a topic list, brokers answer even if no member is online; older brokers use the
            # topic.
            encode_fields(
                GetConsumeStatsRequest(consumer_group=group, topic=topic, topic_list=topic)
            ),
            ConsumeStats,
            _SEEN_OR_NOT if topic else _THERE_OR_NOT,
        )
        return dict(stats.offset_table) if stats is not None else {}

    async def _begins(self, topic: str, master: BrokerAddress) -> dict[MessageQueueKey, int]:
        stats = await self._ask(
            master.address,
            RequestCode.GET_TOPIC_STATS_INFO,
            encode_fields(TopicRequest(topic=topic)),
            TopicStatsTable,
            _SEEN_OR_NOT,
        )
        table = stats.offset_table if stats is not None else {}
        return {key: offsets.min_offset for key, offsets in table.items()}

    async def _told(
        self, group: str, ids: Sequence[str], masters: Sequence[BrokerAddress]
    ) -> dict[str, _RunningInfo]:
        """Return the reports of the members that answer before the common deadline."""
        found: dict[str, _RunningInfo] = {}
        at_once = asyncio.Semaphore(MEMBERS_ASKED_AT_ONCE_MAX)

        async def ask(client_id: str) -> None:
            async with at_once:
                info = await self._told_by(group, client_id, masters)
            if info is not None:
                found[client_id] = info

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_MEMBERS_TELL_WITHIN_S), asyncio.TaskGroup() as tasks:
                for each in ids:
                    tasks.create_task(ask(each))
        return found

    async def _told_by(
        self, group: str, client_id: str, masters: Sequence[BrokerAddress]
    ) -> _RunningInfo | None:
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        request = GetConsumerRunningInfoRequest(consumer_group=group, client_id=client_id)
        for master in masters:
            await self._relayed.acquire()
            held_s = _RELAYED_FOR_S
            try:
                answer = await self._session.request(
                    master.address,
                    code,
                    encode_fields(request),
                    timeout_s=_RELAYED_FOR_S,
                )
                held_s = 0.0
                return _RunningInfo.decode(answer.body)
            except (ClientError, ProtocolError):
                held_s = 0.0
                continue  # not connected to this broker, or unable to report
            finally:
                asyncio.get_running_loop().call_later(held_s, self._relayed.release)
        return None

    async def _ask(
        self,
        address: str,
        code: RequestCode,
        ext: dict[str, str],
        kind: type[Told],
        accept: frozenset[int] = _THERE_OR_NOT,
    ) -> Told | None:
        """Return the body of an answer; None if the broker lacks the group or topic."""
        return await ask_if_told(self._session, address, code, ext, kind, accept)

    def _unknown(self, group: str) -> RouteNotFoundError:
        address = str(self._session.name_services)
        return RouteNotFoundError(
            f"no broker of the name server {address} knows group {group!r}",
            address=address,
            remedy="list the existing ones with `rockhopper group list`",
        ).about(group=group)


def _merge_connections(group: str, known: Sequence[MarkedConsumerConnection]) -> GroupState:
    members: dict[str, GroupMember] = {}
    subscriptions: dict[str, str] = {}
    filters: dict[str, dict[str, str]] = {}
    models: dict[str, str] = {}
    for connection in known:
        for each in connection.connection_set:
            members.setdefault(
                each.client_id,
                GroupMember(each.client_id, each.client_addr, each.language, each.version),
            )
        for topic, data in connection.subscription_table.items():
            subscriptions[topic] = data.sub_string or "*"
        for member in connection.different_members:
            models[member.client_id] = member.message_model
            filters.setdefault(member.client_id, {}).update(
                (topic, wanted)
                for topic, wanted in member.subscriptions.items()
                if not is_retry_topic(topic)
            )
    state = GroupState(
        group,
        members=sorted(members.values(), key=lambda each: each.client_id),
        subscriptions=dict(sorted(subscriptions.items())),
        queues=[],
        filters=dict(sorted(filters.items())),
        models=dict(sorted(models.items())),
        shared_ids=sorted({each for found in known for each in found.shared_client_ids}),
    )
    if not known:
        return state
    return replace(
        state,
        consume_type=known[0].consume_type,
        model=known[0].message_model,
        start_from=known[0].consume_from_where,
    )


def _queue_lag(key: MessageQueueKey, at: Any, low: Mapping[MessageQueueKey, int]) -> QueueLag:
    # Expired messages are not lag: no consumer can read them.
    lag = at.broker_offset - max(at.consumer_offset, low.get(key, 0))
    return QueueLag(
        MessageQueue(key.topic, key.broker_name, key.queue_id),
        at.broker_offset,
        at.consumer_offset,
        max(lag, 0),
        at.last_timestamp if at.last_timestamp > 0 else None,
    )


async def ask_if_told(
    session: Session,
    address: str,
    code: RequestCode,
    ext: dict[str, str],
    kind: type[Told],
    accept: frozenset[int],
) -> Told | None:
    """Return the body of an answer; None for a code of *accept* other than SUCCESS.

    Raises:
        MalformedAnswerError: the body cannot be read.
    """
    answer = await session.request(address, code, ext, accept=accept)
    if answer.code != ResponseCode.SUCCESS:
        return None
    try:
        return kind.decode(answer.body)
    except ProtocolError as error:
        raise make_unreadable_error(code, address, error) from error


def make_unreadable_error(
    code: RequestCode, address: str, error: Exception
) -> MalformedAnswerError:
    """Return the error for an unreadable body in the answer of *address* to *code*."""
    return MalformedAnswerError(
        f"{address} answered {code.name} with an invalid body ({error})",
        address=address,
    )
