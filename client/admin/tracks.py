"""Tracks: what became of one message in each group that reads its topic.

Brokers do not note who was handed a message. What can be told is where each group stands in the
message's queue, what its members subscribe to, and whether the message is in the group's retry
topic or among its dead letters by now. Java's tools ask the same (MessageTrack).
"""

import asyncio
import re
from dataclasses import dataclass
from enum import Enum

from rockhopper.client.admin.admin import Admin
from rockhopper.client.admin.group_states import GroupState
from rockhopper.client.admin.message_search import MessageSearch
from rockhopper.client.errors import ClientError, RouteNotFoundError
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.bodies.topics import GroupList
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.names import dlq_topic, is_system_group, retry_topic
from rockhopper.protocol.subscription import SUBSCRIBE_ALL

GROUPS_MAX = 64
_AT_ONCE = 8
_TAG = re.compile(r"[^\s=<>()']+")
_THERE_OR_NOT = frozenset((int(ResponseCode.SUCCESS), int(ResponseCode.SYSTEM_ERROR)))


class Outcome(Enum):
    """What became of a message in a group."""

    CONSUMED = "consumed"
    """The group stands behind it."""
    FILTERED = "passed over"
    """The group stands behind it, and does not want its tag."""
    RETRIED = "sent back"
    """It is in the group's retry topic."""
    DEAD = "dead letter"
    """The group gave it up."""
    WAITING = "not consumed yet"
    """The group is online and stands in front of it."""
    OFFLINE = "group is offline"
    """The group stands in front of it, and nobody of it is online."""
    BROADCAST = "broadcast"
    """Each member keeps for itself how far it is."""
    UNKNOWN = "unknown"
    """It could not be found out; the detail says why."""


@dataclass(frozen=True, slots=True)
class Track:
    """A message in one group."""

    group: str
    outcome: Outcome
    detail: str = ""


async def tracks(admin: Admin, message: ReceivedMessage) -> list[Track]:
    """What became of *message* in each group, tools' groups apart; at most ``GROUPS_MAX``."""
    groups = [each for each in await _readers(admin, message) if not is_system_group(each)]
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(group: str) -> Track:
        async with slots:
            try:
                return await _track(admin, message, group)
            except ClientError as error:
                return Track(group, Outcome.UNKNOWN, str(error))

    return list(await asyncio.gather(*(one(each) for each in groups[:GROUPS_MAX])))


async def _readers(admin: Admin, message: ReceivedMessage) -> list[str]:
    code, ext = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": message.queue.topic}
    route = await admin.route(message.queue.topic)
    address = route.reader(message.broker_name)
    if address is None:
        return []
    answer = await admin.request(address, code, ext, accept=_THERE_OR_NOT)
    try:
        return sorted(GroupList.decode(answer.body).group_list) if answer.code == 0 else []
    except ProtocolError:
        return []


async def _track(admin: Admin, message: ReceivedMessage, group: str) -> Track:
    state, committed, dead, retried = await asyncio.gather(
        admin.groups.online(group),
        admin.offsets.committed(group, message.queue),
        _is_in(admin, dlq_topic(group), message),
        _is_in(admin, retry_topic(group), message),
    )
    if state.model == "BROADCASTING":
        return Track(group, Outcome.BROADCAST, "each member keeps for itself how far it is")
    at = "nothing committed" if committed is None else f"stands at {committed:,}"
    if dead:
        return Track(group, Outcome.DEAD, f"in {dlq_topic(group)}")
    if committed is not None and committed > message.queue_offset:
        if not _is_wanted(state, message):
            wanted = state.subscriptions[message.queue.topic]
            return Track(group, Outcome.FILTERED, f"{at}, and subscribes to {wanted}")
        if retried:
            return Track(group, Outcome.RETRIED, f"{at}; in {retry_topic(group)} as well")
        return Track(group, Outcome.CONSUMED, at)
    return Track(group, Outcome.WAITING if state.members else Outcome.OFFLINE, at)


def _is_wanted(state: GroupState, message: ReceivedMessage) -> bool:
    """Whether the message's tag is among those subscribed to; expressions are not looked into."""
    expression = state.subscriptions.get(message.queue.topic, SUBSCRIBE_ALL).strip()
    tags = [tag.strip() for tag in expression.split("||")]
    is_of_tags = all(map(_TAG.fullmatch, tags))
    return expression == SUBSCRIBE_ALL or not is_of_tags or message.tags in tags


async def _is_in(admin: Admin, topic: str, message: ReceivedMessage) -> bool:
    search = MessageSearch(admin.session, admin.brokers, admin.topics)
    try:
        found = await search.by_unique_key(topic, message.message_id, message.store_time_ms)
    except RouteNotFoundError:
        return False  # nothing of the group ever failed
    return bool(found)
