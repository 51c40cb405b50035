"""Statistics over all topics and groups, combined from all masters: `Admin.figures`."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from rockhopper.client.admin.group_states import ask_if_told, make_unreadable_error
from rockhopper.client.errors import RequestRefusedError
from rockhopper.client.network.addresses import BrokerAddress
from rockhopper.client.network.session import Session
from rockhopper.protocol import fastjson
from rockhopper.protocol.bodies import ConsumerConnection, TopicStatsTable
from rockhopper.protocol.bodies.stats import (
    LAG_UNKNOWN,
    OLDEST_UNKNOWN,
    Figures,
    GroupFigures,
    TopicFigures,
)
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.requests import (
    ConsumerGroupRequest,
    FiguresRequest,
    TopicRequest,
    encode_fields,
)
from rockhopper.tasks import gather_some_at_a_time

_TIMEOUT_S = 30.0
_ANY = frozenset(
    int(code)
    for code in (
        ResponseCode.SUCCESS,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.CONSUMER_NOT_ONLINE,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    )
)
_NOT_IN_ONE = frozenset({ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.NO_PERMISSION})


class StatsReader:
    """Queries every master for its topics and groups."""

    def __init__(
        self, session: Session, masters: Callable[[], Awaitable[list[BrokerAddress]]]
    ) -> None:
        self._session = session
        self._masters = masters

    async def read(self, *, details: bool = False) -> Figures:
        """Return the statistics of all topics and groups by name, optional ones with `details`.

        Rockhopper brokers return them in one answer. Other brokers need a query per topic and
        group. For these brokers `sent` and `handed_out` are sums of end and committed offsets, and
        rates are unknown.
        """
        masters = await self._masters()
        found = await asyncio.gather(*(self._of(master, details) for master in masters))
        return merge_figures(found)

    async def read_groups(self) -> Figures | None:
        """Return the groups with the ages of their lag; None if a broker refuses the query.

        A RocketMQ broker refuses it. A Rockhopper broker refuses it to a user who may not see
        everything.
        """
        masters = await self._masters()
        try:
            return merge_figures(
                await asyncio.gather(*(self._ask(each, ages=True) for each in masters))
            )
        except RequestRefusedError as error:
            if error.code not in _NOT_IN_ONE:
                raise
            return None

    async def _of(self, master: BrokerAddress, details: bool) -> Figures:
        try:
            return await self._ask(master, details=details)
        except RequestRefusedError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            return await self._of_another_kind(master.address)

    async def _ask(
        self, master: BrokerAddress, *, details: bool = False, ages: bool = False
    ) -> Figures:
        fields = encode_fields(FiguresRequest(details=details, ages=ages))
        # This query detects a hanging broker within the normal timeout; the next one may take
        # longer.
        await self._session.request(master.address, RequestCode.GET_BROKER_RUNTIME_INFO)
        answer = await self._session.request(
            master.address, RequestCode.FIGURES, fields, timeout_s=_TIMEOUT_S
        )
        try:
            return Figures.decode(answer.body)
        except ProtocolError as error:
            raise make_unreadable_error(RequestCode.FIGURES, master.address, error) from error

    async def _of_another_kind(self, address: str) -> Figures:
        configs = await self._table(address, RequestCode.GET_ALL_TOPIC_CONFIG, "topicConfigTable")
        offsets = await self._table(address, RequestCode.GET_ALL_CONSUMER_OFFSET, "offsetTable")
        topics, ends = await self._count_messages(address, sorted(configs))
        groups: dict[str, GroupFigures] = {}
        for key, queues in offsets.items():
            topic, _, name = key.partition("@")
            if topic not in topics or not isinstance(queues, dict):
                continue
            group = groups.setdefault(name, GroupFigures(name, topics=[]))
            _add_progress(topics[topic], group, {int(q): int(at) for q, at in queues.items()}, ends)
        members = await gather_some_at_a_time(partial(self._members, address), groups)
        for group, connection in zip(groups.values(), members, strict=True):
            if connection is not None:
                _set_members(group, connection)
        return Figures(list(topics.values()), list(groups.values()))

    async def _count_messages(
        self, address: str, names: Sequence[str]
    ) -> tuple[dict[str, TopicFigures], dict[str, dict[int, tuple[int, int]]]]:
        """Return the topics, and for each the smallest and largest offset of its queues."""
        stats = await gather_some_at_a_time(partial(self._stats, address), names)
        topics: dict[str, TopicFigures] = {}
        ends: dict[str, dict[int, tuple[int, int]]] = {}
        for name, table in zip(names, stats, strict=True):
            rows = table.offset_table if table is not None else {}
            ends[name] = {key.queue_id: (at.min_offset, at.max_offset) for key, at in rows.items()}
            topics[name] = TopicFigures(
                name,
                sum(high - low for low, high in ends[name].values()),
                max((at.last_update_timestamp for at in rows.values()), default=0),
                sum(high for _, high in ends[name].values()),
                groups=[],
            )
        return topics, ends

    async def _table(self, address: str, code: RequestCode, name: str) -> dict[str, object]:
        answer = await self._session.request(address, code, timeout_s=_TIMEOUT_S)
        try:
            document = fastjson.loads(answer.body)
        except ProtocolError as error:
            raise make_unreadable_error(code, address, error) from error
        table = document.get(name) if isinstance(document, dict) else None
        return dict(table) if isinstance(table, dict) else {}

    async def _stats(self, address: str, topic: str) -> TopicStatsTable | None:
        fields = encode_fields(TopicRequest(topic=topic))
        code = RequestCode.GET_TOPIC_STATS_INFO
        return await ask_if_told(self._session, address, code, fields, TopicStatsTable, _ANY)

    async def _members(self, address: str, group: str) -> ConsumerConnection | None:
        fields = encode_fields(ConsumerGroupRequest(consumer_group=group))
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        return await ask_if_told(self._session, address, code, fields, ConsumerConnection, _ANY)


def _set_members(group: GroupFigures, connection: ConsumerConnection) -> None:
    group.members = len({each.client_id for each in connection.connection_set})
    if connection.message_model == "BROADCASTING":
        group.lag = LAG_UNKNOWN


def _add_progress(
    topic: TopicFigures,
    group: GroupFigures,
    offsets: dict[int, int],
    ends: dict[str, dict[int, tuple[int, int]]],
) -> None:
    topic.groups.append(group.name)
    group.topics.append(topic.name)
    committed = sum(max(offset, 0) for offset in offsets.values())
    topic.handed_out += committed
    group.handed_out += committed
    for queue_id, (low, high) in ends[topic.name].items():
        group.lag += max(high - max(offsets.get(queue_id, 0), low), 0)


def merge_figures(found: Sequence[Figures]) -> Figures:
    """Add up the statistics of several brokers; members connect to all, so the maximum counts."""
    topics: dict[str, TopicFigures] = {}
    groups: dict[str, GroupFigures] = {}
    for figures in found:
        for topic in figures.topics:
            known = topics.setdefault(topic.name, TopicFigures(topic.name, groups=[]))
            known.messages += topic.messages
            known.newest_ms = max(known.newest_ms, topic.newest_ms)
            known.sent += topic.sent
            known.sent_per_s += topic.sent_per_s
            known.handed_out += topic.handed_out
            known.groups = sorted({*known.groups, *topic.groups})
        for group in figures.groups:
            other = groups.setdefault(group.name, GroupFigures(group.name, topics=[], oldest_ms=0))
            other.members = max(other.members, group.members)
            other.handed_out += group.handed_out
            is_known = LAG_UNKNOWN not in (other.lag, group.lag)
            other.lag = other.lag + group.lag if is_known else LAG_UNKNOWN
            if OLDEST_UNKNOWN in (other.oldest_ms, group.oldest_ms):
                other.oldest_ms = OLDEST_UNKNOWN
            else:
                ages_ms = filter(None, (other.oldest_ms, group.oldest_ms))
                other.oldest_ms = min(ages_ms, default=0)
            other.topics = sorted({*other.topics, *group.topics})
    return Figures(
        sorted(topics.values(), key=lambda topic: topic.name),
        sorted(groups.values(), key=lambda group: group.name),
    )
