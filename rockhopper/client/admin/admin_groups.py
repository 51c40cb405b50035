"""Management of consumer groups by operators: `Admin.groups`."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from rockhopper.client.admin.group_states import GroupReader, GroupState, QueueLag
from rockhopper.client.consuming.queue_offsets import QueueOffsets
from rockhopper.client.errors import MalformedAnswerError, RequestRefusedError, RouteNotFoundError
from rockhopper.client.network.addresses import BrokerAddress
from rockhopper.client.network.session import Session
from rockhopper.client.queues import MessageQueue
from rockhopper.protocol import fastjson
from rockhopper.protocol.bodies import ResetOffsetBody
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.names import dlq_topic, retry_topic
from rockhopper.protocol.requests import (
    DeleteSubscriptionGroupRequest,
    ResetOffsetRequest,
    encode_fields,
)

Target = Literal["earliest", "latest"] | datetime | int
"""Where to reset a group to; a number is an offset."""

# Brokers that only forward a reset to members (RocketMQ before 5) refuse it if none is online.
_NOBODY_ONLINE = frozenset({int(ResponseCode.CONSUMER_NOT_ONLINE), int(ResponseCode.SYSTEM_ERROR)})
_LATEST = -1


def describe_target(to: Target) -> str:
    """Format the target of a reset: a time with its zone, as it was parsed."""
    if isinstance(to, datetime):
        return f"{to.astimezone():%Y-%m-%d %H:%M:%S %Z}"
    return f"offset {to:,}" if isinstance(to, int) else f"the {to} message"


@dataclass(frozen=True, slots=True)
class OffsetMove:
    """A reset of one queue."""

    queue: MessageQueue
    before: int | None
    """None if the group had never committed."""
    after: int


class MovedMessages(NamedTuple):
    """The effect of a reset on a group."""

    again: int
    """Messages that it consumes again."""
    skipped: int
    """Messages that it skips."""
    queue_count: int
    """Queues whose offset changes."""


def sum_moves(moves: Sequence[OffsetMove]) -> MovedMessages:
    """Return the totals of *moves*; a missing offset counts as 0."""
    steps = [move.after - (move.before or 0) for move in moves]
    return MovedMessages(
        again=-sum(step for step in steps if step < 0),
        skipped=sum(step for step in steps if step > 0),
        queue_count=sum(move.before != move.after for move in moves),
    )


class GroupAdmin:
    """Manages groups on all brokers; failed requests are not retried."""

    def __init__(
        self,
        session: Session,
        offsets: QueueOffsets,
        masters: Callable[[], Awaitable[list[BrokerAddress]]],
        delete_topic: Callable[[str], Awaitable[list[BrokerAddress]]],
    ) -> None:
        self._session = session
        self._offsets = offsets
        self._masters = masters
        self._delete_topic = delete_topic
        self._reader = GroupReader(session, masters)

    async def names(self, *, with_system: bool = False) -> list[str]:
        """Return the names of all groups; with `with_system` also those of tools and brokers."""
        return await self._reader.names(with_system=with_system)

    async def states(self, *, with_system: bool = False) -> list[GroupState]:
        """Return every group with its members and lag, but without settings and owners."""
        return await self._reader.states(with_system=with_system)

    async def state(self, group: str) -> GroupState:
        """Return everything about a group. Raises RouteNotFoundError if no broker knows it."""
        return await self._reader.state(group)

    async def lag(self, group: str) -> list[QueueLag]:
        """Return a group's lag in each queue. Raises RouteNotFoundError if it is unknown."""
        return await self._reader.lag(group)

    async def progress(self, group: str) -> GroupState:
        """Return only the online members and the offsets; the group may be unknown."""
        return await self._reader.progress(group)

    async def progress_in(self, group: str, topic: str) -> list[QueueLag]:
        """Return the offsets in the queues of one topic; the group may be unknown."""
        return await self._reader.progress_in(group, topic)

    async def online(self, group: str) -> GroupState:
        """Return only the online members and their subscriptions; there may be none."""
        return await self._reader.online(group)

    async def create(
        self, group: str, *, orderly: bool | None = None, retries_max: int | None = None
    ) -> list[BrokerAddress]:
        """Create a group on every broker, or change the given options of an existing one.

        Members of an `orderly` group receive each queue's messages one after the other, also by
        gRPC. After `retries_max` retries a message becomes a dead letter. Raises
        RequestRefusedError.
        """
        masters = await self._masters()
        settings = (await self._reader.settings()).get(group, {})
        wanted = {"consumeMessageOrderly": orderly, "retryMaxTimes": retries_max}
        changes = {name: value for name, value in wanted.items() if value is not None}
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        for master in masters:
            document = {**settings.get(master.name, {}), "groupName": group, **changes}
            await self._session.request(
                master.address, code, body=fastjson.dumps(document).encode()
            )
        return masters

    async def plan_reset(
        self, group: str, topic: str, to: Target, *, queues: Sequence[MessageQueue] | None = None
    ) -> list[OffsetMove]:
        """Return what `reset_offsets` would do; offsets beyond a queue become its nearer end.

        Raises RouteNotFoundError if the topic does not exist.
        """
        if queues is None:
            queues = (await self._session.routes.route(topic)).read_queues
        return list(await asyncio.gather(*(self._plan(group, queue, to) for queue in queues)))

    async def _plan(self, group: str, queue: MessageQueue, to: Target) -> OffsetMove:
        before = await self._offsets.committed(group, queue)
        low, high = await asyncio.gather(
            self._offsets.min_offset(queue), self._offsets.max_offset(queue)
        )
        if isinstance(to, datetime):
            to = await self._offsets.offset_at(queue, _count_milliseconds(to))
        elif isinstance(to, str):
            to = low if to == "earliest" else high
        return OffsetMove(queue, before, min(max(to, low), high))

    async def reset_offsets(
        self, group: str, topic: str, to: Target, *, queues: Sequence[MessageQueue] | None = None
    ) -> list[OffsetMove]:
        """Move a group's offsets in a topic, or in some of its queues; return the moves.

        The group may be online: its members continue at the new offsets at once. A single queue, or
        an offset as target, needs Rockhopper or RocketMQ 5. Raises RouteNotFoundError,
        RequestRefusedError.
        """
        plan = await self.plan_reset(group, topic, to, queues=queues)
        by_broker: dict[str, list[OffsetMove]] = {}
        for move in plan:
            by_broker.setdefault(move.queue.broker_name, []).append(move)
        moved: list[OffsetMove] = []
        route = await self._session.routes.route(topic)
        for broker_name, moves in by_broker.items():
            address = route.master(broker_name)
            if address is None:
                raise RouteNotFoundError(
                    f"the broker {broker_name!r} of topic {topic!r} has no master now",
                    remedy="offsets can be moved when it is back",
                )
            whole = queues is None and not isinstance(to, int)
            moved += await self._move(address, group, moves, to if whole else None)
        return sorted(moved, key=lambda move: move.queue)

    async def _move(
        self, address: str, group: str, moves: list[OffsetMove], to: Target | None
    ) -> list[OffsetMove]:
        """Move a group on one broker: in all queues with `to`, else in those of `moves`."""
        topic = moves[0].queue.topic
        try:
            if to is not None:
                request = ResetOffsetRequest(
                    group=group, topic=topic, timestamp=_parse_timestamp(to), is_force=True
                )
                return await self._reset(address, request, moves)
            moved: list[OffsetMove] = []
            for move in moves:
                request = ResetOffsetRequest(
                    group=group,
                    topic=topic,
                    queue_id=move.queue.queue_id,
                    offset=move.after,
                    timestamp=0,
                    is_force=True,
                )
                moved += await self._reset(address, request, [move])
            return moved
        except RequestRefusedError as error:
            if error.code not in _NOBODY_ONLINE or await self._reader.members(group):
                raise
        for move in moves:
            await self._offsets.commit(group, move.queue, move.after)
        return moves

    async def _reset(
        self, address: str, request: ResetOffsetRequest, moves: list[OffsetMove]
    ) -> list[OffsetMove]:
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        answer = await self._session.request(address, code, encode_fields(request))
        try:
            table = ResetOffsetBody.decode(answer.body).offset_table if answer.body else {}
        except ProtocolError as error:
            raise MalformedAnswerError(
                f"{address} answered {code.name} with an invalid body ({error})",
                address=address,
            ) from error
        after = {
            MessageQueue(key.topic, key.broker_name, key.queue_id): offset
            for key, offset in table.items()
        }
        return [
            OffsetMove(move.queue, move.before, after.get(move.queue, move.after)) for move in moves
        ]

    async def delete(
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
        masters = await self._masters()
        request = DeleteSubscriptionGroupRequest(group_name=group, clean_offset=with_offsets)
        for master in masters:
            await self._session.request(
                master.address, RequestCode.DELETE_SUBSCRIPTIONGROUP, encode_fields(request)
            )
        for topic, is_wanted in (
            (retry_topic(group), with_retry_topic),
            (dlq_topic(group), with_dead_letters),
        ):
            if is_wanted:
                try:
                    await self._delete_topic(topic)
                except RouteNotFoundError:
                    continue  # the group never had a failed message
        return masters


def _parse_timestamp(to: Target) -> int:
    if isinstance(to, datetime):
        return _count_milliseconds(to)
    return _LATEST if to == "latest" else 0


def _count_milliseconds(time: datetime) -> int:
    return round(time.timestamp() * 1000)
