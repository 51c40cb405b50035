"""Statistics of topics and the age of groups' lag, combined from all masters."""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import msgspec

from rockhopper.client.admin.admin import Admin
from rockhopper.client.admin.group_states import QueueLag
from rockhopper.client.consuming.pulling import GroupPuller
from rockhopper.client.errors import ClientError
from rockhopper.client.network.addresses import BrokerAddress
from rockhopper.client.queues import MessageQueue
from rockhopper.protocol.bodies import TopicStatsTable
from rockhopper.protocol.bodies.topics import GroupList
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.requests import TopicStatsRequest, encode_fields
from rockhopper.tasks import gather_some_at_a_time

_Found = TypeVar("_Found")
LAGS_LOOKED_INTO_MAX = 128
_THERE_OR_NOT = frozenset(
    (int(ResponseCode.SUCCESS), int(ResponseCode.SYSTEM_ERROR), int(ResponseCode.TOPIC_NOT_EXIST))
)


class _RateWindow(msgspec.Struct):
    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


class _Stats(msgspec.Struct, rename="camel"):
    stats_minute: _RateWindow = msgspec.field(default_factory=_RateWindow)
    stats_day: _RateWindow = msgspec.field(default_factory=_RateWindow)


class QueueFigures(NamedTuple):
    """The contents of one queue."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    newest_ms: int
    size_bytes: int | None = None
    """Approximate; RocketMQ's brokers do not report it."""

    @property
    def messages(self) -> int:
        """The number of messages."""
        return self.max_offset - self.min_offset


@dataclass
class TopicFigures:
    """The statistics of one topic; values that were not requested are None."""

    name: str
    queues: list[QueueFigures] = field(default_factory=list)
    in_per_s: float | None = None
    out_per_s: float | None = None
    size_bytes: float | None = None
    """Approximate."""
    groups: list[str] = field(default_factory=list)
    out_by_group: dict[str, float] = field(default_factory=dict)

    @property
    def messages(self) -> int:
        """The number of stored messages."""
        return sum(each.messages for each in self.queues)

    @property
    def newest_ms(self) -> int:
        """The store time of the newest message."""
        return max((each.newest_ms for each in self.queues), default=0)


class TopicReader:
    """Queries all masters about topics."""

    def __init__(self, admin: Admin, masters: Sequence[BrokerAddress]) -> None:
        self._admin = admin
        self._masters = masters

    async def _ask(
        self, code: RequestCode, ext: Mapping[str, str], kind: type[_Found]
    ) -> list[_Found]:
        """Return the answers of the masters that know the topic."""
        asked = (
            self._admin.request(each.address, code, ext, accept=_THERE_OR_NOT)
            for each in self._masters
        )
        answers = await asyncio.gather(*asked)
        bodies = [each.body for each in answers if each.code == ResponseCode.SUCCESS]
        try:
            return [
                kind.decode(body)  # type: ignore[attr-defined]
                if hasattr(kind, "decode")
                else msgspec.json.decode(body, type=kind)
                for body in bodies
            ]
        except (ProtocolError, msgspec.DecodeError):
            return []

    async def queues(self, topic: str, *, sizes: bool = False) -> list[QueueFigures]:
        """Return the topic's queues, sorted by broker and id; *sizes* make the query expensive."""
        fields = encode_fields(TopicStatsRequest(topic=topic, sizes=sizes))
        tables = await self._ask(RequestCode.GET_TOPIC_STATS_INFO, fields, TopicStatsTable)
        return sorted(
            QueueFigures(
                MessageQueue(key.topic, key.broker_name, key.queue_id),
                each.min_offset,
                each.max_offset,
                each.last_update_timestamp,
                each.records_bytes,
            )
            for table in tables
            for key, each in table.offset_table.items()
        )

    async def _stats(self, name: str, key: str) -> list[_Stats]:
        ext = {"statsName": name, "statsKey": key}
        return await self._ask(RequestCode.VIEW_BROKER_STATS_DATA, ext, _Stats)

    async def groups(self, topic: str) -> list[str]:
        """Return the groups that read the topic or have read it."""
        code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
        told = await self._ask(code, {"topic": topic}, GroupList)
        return sorted({group for each in told for group in each.group_list})

    async def out_per_s(self, topic: str, group: str) -> float:
        """Return the messages per second delivered to a group in the last minute."""
        told = await self._stats("GROUP_GET_NUMS", f"{topic}@{group}")
        return sum(each.stats_minute.tps for each in told)

    async def all_of(self, topic: str, groups_max: int = 16) -> TopicFigures:
        """Return all statistics of a topic."""
        queues, numbers, sizes, groups = await asyncio.gather(
            self.queues(topic, sizes=True),
            self._stats("TOPIC_PUT_NUMS", topic),
            self._stats("TOPIC_PUT_SIZE", topic),
            self.groups(topic),
        )
        rates = await asyncio.gather(
            *(self.out_per_s(topic, group) for group in groups[:groups_max])
        )
        found = TopicFigures(
            topic,
            queues,
            in_per_s=sum(each.stats_minute.tps for each in numbers),
            out_per_s=sum(rates),
            groups=groups,
            out_by_group=dict(zip(groups, rates, strict=False)),
        )
        size = sum(each.size_bytes or 0 for each in queues)
        untold = sum(each.messages for each in queues if each.size_bytes is None)
        put = sum(each.stats_day.sum for each in numbers)
        if not untold:
            found.size_bytes = size
        elif put:
            average = sum(each.stats_day.sum for each in sizes) / put
            found.size_bytes = size + untold * average
        return found


async def measure_lag_seconds(
    puller: GroupPuller, lags: Iterable[QueueLag], now_ms: int | None = None
) -> dict[MessageQueue, float]:
    """Return for each queue the age of the first message that a group has not consumed.

    Queues without lag have age 0. Queues that could not be read are missing.
    """
    now_ms = now_ms or time.time_ns() // 1_000_000
    lags = list(lags)
    found = {each.queue: 0.0 for each in lags if not each.lag}
    behind = [each for each in lags if each.lag][:LAGS_LOOKED_INTO_MAX]

    async def look(each: QueueLag) -> None:
        try:
            first = each.broker_offset - each.lag
            result = await puller.pull(each.queue, first, 1, 0.0)
        except ClientError:
            return
        if result.messages:
            waited_ms = now_ms - result.messages[0].store_time_ms
            found[each.queue] = max(waited_ms, 0) / 1000

    await gather_some_at_a_time(look, behind)
    return found


async def find_oldest_s(admin: Admin, lags: Iterable[QueueLag]) -> float | None:
    """Return the age of the oldest message in these queues that a group has not consumed.

    None if unknown.
    """
    puller = GroupPuller(admin.session, None, is_browsing=True)
    return max((await measure_lag_seconds(puller, lags)).values(), default=None)


async def find_oldest_of_groups(admin: Admin, names: Iterable[str]) -> dict[str, float]:
    """Return the same for several groups, as far as known."""

    async def one(name: str) -> float | None:
        try:
            return await find_oldest_s(admin, (await admin.groups.progress(name)).queues)
        except ClientError:
            return None

    names = list(names)
    found = await gather_some_at_a_time(one, names)
    return {name: age for name, age in zip(names, found, strict=True) if age is not None}
