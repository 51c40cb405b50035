"""Tracks: what happened to one message in each group that reads its topic.

Brokers do not record deliveries. A track is derived from the group's offset in the message's queue,
its members' subscriptions, and the message's copies: in the group's retry topic, on the way there,
among its dead letters, and sent back from them. The newest copy shows the state of the group.
Java's tools use a similar query (MessageTrack).
"""

import asyncio
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from rockhopper.client.admin.admin import Admin
from rockhopper.client.admin.group_states import REQUEUE_GROUP, GroupState
from rockhopper.client.admin.message_forms import (
    PROPERTY_REQUEUED,
    WAITING_TOPICS,
    find_first_topic,
    find_newest,
    find_original,
    find_target_topic,
    find_timer_due_ms,
    is_requeued,
    is_withdrawal,
    list_retry_topics,
)
from rockhopper.client.admin.message_search import MessageSearch
from rockhopper.client.errors import ClientError, RequestRefusedError, RouteNotFoundError
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.bodies.topics import GroupList
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    dlq_topic,
    group_of_retry_topic,
    is_retry_topic,
    is_system_group,
)
from rockhopper.protocol.store.delay_levels import delays_ms
from rockhopper.protocol.subscription import SUBSCRIBE_ALL

GROUPS_MAX = 64
_AT_ONCE = 8
_TAG = re.compile(r"[^\s=<>()']+")
_THERE_OR_NOT = frozenset((int(ResponseCode.SUCCESS), int(ResponseCode.SYSTEM_ERROR)))


class TrackOutcome(Enum):
    """What happened to a message in a group."""

    CONSUMED = "consumed"
    """The group's offset is beyond it."""
    FILTERED = "passed over"
    """The group's offset is beyond it, and the subscription excludes its tag."""
    RETRYING = "waits for redelivery"
    """The group sent it back and has not read it again."""
    RETRIED = "consumed on redelivery"
    """The group sent it back, and its offset is beyond the last retry."""
    DEAD = "dead letter"
    """The group gave up after the last retry."""
    REQUEUED = "requeued"
    """The group gave up, and the message was sent back since and waits again."""
    DELAYED = "not delivered yet"
    """Its delivery time has not come."""
    WAITING = "not consumed yet"
    """The group is online and has not reached it."""
    OFFLINE = "group is offline"
    """The group has not reached it, and no member is online."""
    BROADCAST = "broadcast"
    """Each member stores its own offset."""
    UNKNOWN = "unknown"
    """The state could not be determined; the detail says why."""


@dataclass(frozen=True, slots=True)
class Track:
    """The state of a message in one group."""

    group: str
    outcome: TrackOutcome
    detail: str = ""
    time_ms: int | None = None
    """When it became a dead letter, or when it will be delivered."""


@dataclass(frozen=True, slots=True)
class MessageHistory:
    """A message and its tracks."""

    message: ReceivedMessage
    """The message as first sent; if that is not stored (yet, or any longer), another form of it."""
    topic: str
    """The topic that it was sent to."""
    due_ms: int | None
    """The delivery time of a delayed message."""
    tracks: list[Track]


async def find_history(admin: Admin, message: ReceivedMessage) -> MessageHistory:
    """Return the history of *message*, given in any form, in at most ``GROUPS_MAX`` groups.

    Groups of tools are omitted.
    """
    topic = find_first_topic(message)
    unseen: set[str] = set()
    here, *waiting = await asyncio.gather(
        *(_find_forms(admin, each, message, unseen) for each in (topic, *WAITING_TOPICS))
    )
    delayed = [each for found in waiting for each in found if not is_withdrawal(each)]
    first = _find_first_form(message, topic, here, delayed)
    due = await find_due_ms(admin, first) if find_target_topic(first) == topic else None
    requeued = [each for each in here if is_requeued(each)]
    whole = _TracedMessage(admin, first, topic, due, requeued, delayed, unseen)
    readers = await _list_readers(admin, first.broker_name, topic)
    groups = sorted({*readers, *whole.groups_of_copies(message)})
    groups = [each for each in groups if not is_system_group(each)]
    return MessageHistory(first, topic, due, await whole.tracks(groups[:GROUPS_MAX]))


def _find_first_form(
    message: ReceivedMessage,
    topic: str,
    here: Sequence[ReceivedMessage],
    delayed: Sequence[ReceivedMessage],
) -> ReceivedMessage:
    if message.queue.topic == topic and not is_requeued(message):
        return message
    still = find_newest([each for each in delayed if find_target_topic(each) == topic])
    return find_original(here) or still or message


async def find_due_ms(admin: Admin, message: ReceivedMessage) -> int | None:
    """Return when a waiting message will be delivered; None if it does not wait or unknown."""
    if message.queue.topic != SCHEDULE_TOPIC:
        return find_timer_due_ms(message) if message.queue.topic in WAITING_TOPICS else None
    try:
        address = await admin.offsets.address(message.queue)
        settings = await admin.broker_config(address)
        delays = delays_ms(settings["messageDelayLevel"])
    except (ClientError, KeyError, ValueError):
        return None  # only administrators may read the levels of Apache's brokers
    return message.store_time_ms + delays[min(message.queue_id, len(delays) - 1)]


async def _find_forms(
    admin: Admin, topic: str, message: ReceivedMessage, unseen: set[str]
) -> list[ReceivedMessage]:
    """Return the forms in *topic*; if it may not be read, add it to *unseen*."""
    search = MessageSearch(admin.session, admin.brokers, admin.topics)
    try:
        return await search.by_unique_key(topic, message.message_id, 0)
    except RouteNotFoundError:
        return []  # the topic was never used, or was deleted
    except RequestRefusedError as error:
        if not error.is_forbidden:
            raise
        unseen.add(topic)
        return []


async def _list_readers(admin: Admin, broker: str, topic: str) -> list[str]:
    code, ext = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic}
    try:
        address = (await admin.route(topic)).reader(broker)
    except RouteNotFoundError:
        return []
    if address is None:
        return []
    answer = await admin.request(address, code, ext, accept=_THERE_OR_NOT)
    try:
        return sorted(GroupList.decode(answer.body).group_list) if answer.code == 0 else []
    except ProtocolError:
        return []


@dataclass(frozen=True, slots=True)
class _TracedMessage:
    """A message and its copies outside the topics of single groups."""

    admin: Admin
    message: ReceivedMessage
    topic: str
    due_ms: int | None
    requeued: Sequence[ReceivedMessage]
    delayed: Sequence[ReceivedMessage]
    unseen: Collection[str]

    def groups_of_copies(self, asked: ReceivedMessage) -> Iterable[str]:
        """Return groups named in copies: they may have no offset in the topic."""
        for copy in (asked, *self.requeued, *self.delayed):
            dead_letter = copy.properties.get(PROPERTY_REQUEUED, "").partition("/")[0]
            for name in (find_target_topic(copy), dead_letter):
                if name.startswith(DLQ_PREFIX):
                    yield name[len(DLQ_PREFIX) :]
                elif name.startswith(RETRY_PREFIX) and copy.queue.topic == SCHEDULE_TOPIC:
                    yield group_of_retry_topic(name)

    async def tracks(self, groups: Sequence[str]) -> list[Track]:
        slots = asyncio.Semaphore(_AT_ONCE)

        async def one(group: str) -> Track:
            async with slots:
                try:
                    return await self._track(group)
                except ClientError as error:
                    return Track(group, TrackOutcome.UNKNOWN, str(error))

        return list(await asyncio.gather(*(one(each) for each in groups)))

    async def _track(self, group: str) -> Track:
        unseen = set(self.unseen)
        copies, state = await asyncio.gather(
            self._copies(group, unseen), self.admin.groups.online(group)
        )
        if state.model == "BROADCASTING":
            return Track(group, TrackOutcome.BROADCAST, "each member stores its own offset")
        copy = find_newest(copies)
        if copy is not None:
            return await self._by_copy(group, state, copy)
        if find_target_topic(self.message) != self.message.queue.topic:
            return Track(group, TrackOutcome.DELAYED, "", self.due_ms)
        track = await self._by_place(group, state, self.message)
        for each in self.requeued:
            again = await self._by_place(group, state, each)
            if again.outcome in (TrackOutcome.WAITING, TrackOutcome.OFFLINE):
                also = f"the copy from {each.properties[PROPERTY_REQUEUED]} waits"
                track = replace(track, detail=f"{track.detail}; {also}".removeprefix("; "))
        if unseen:
            also = f"you may not read the copies in {', '.join(sorted(unseen))}"
            track = replace(track, detail=f"{track.detail}; {also}".removeprefix("; "))
        return track

    async def _copies(self, group: str, unseen: set[str]) -> list[ReceivedMessage]:
        """Return the copies of the message made for this group."""
        dead, retries = dlq_topic(group), list_retry_topics(group, self.topic)
        found = await asyncio.gather(
            *(_find_forms(self.admin, each, self.message, unseen) for each in (dead, *retries))
        )
        copies = [each for forms in found for each in forms]
        copies += [each for each in self.delayed if find_target_topic(each) in retries]
        for each in self.requeued:
            if each.properties[PROPERTY_REQUEUED].startswith(f"{dead}/"):
                copies.append(each)
        return copies

    async def _by_copy(self, group: str, state: GroupState, copy: ReceivedMessage) -> Track:
        times, topic = copy.reconsume_times, copy.queue.topic
        if topic == dlq_topic(group):
            return await self._by_dead_letter(group, copy)
        if topic == SCHEDULE_TOPIC:
            due = await find_due_ms(self.admin, copy)
            return Track(group, TrackOutcome.RETRYING, f"retry {times:,} at its delay level", due)
        at = await self._by_place(group, state, copy)
        is_behind = at.outcome in (TrackOutcome.CONSUMED, TrackOutcome.FILTERED)
        if is_retry_topic(topic):
            outcome = TrackOutcome.RETRIED if is_behind else TrackOutcome.RETRYING
            detail = f"retry {times:,}" if times else "requeued for this group alone"
            return Track(group, outcome, detail if is_behind else f"{detail}; {at.detail}")
        if is_behind:
            return replace(at, detail="the copy that was requeued")
        return Track(group, TrackOutcome.REQUEUED, f"the copy waits; {at.detail}")

    async def _by_dead_letter(self, group: str, copy: ReceivedMessage) -> Track:
        mark = await self.admin.offsets.committed(REQUEUE_GROUP, copy.queue)
        detail = f"in {copy.queue.topic}"
        if mark is not None and mark > copy.queue_offset:
            detail += "; sent back since, to another topic"
        return Track(group, TrackOutcome.DEAD, detail, copy.store_time_ms)

    async def _by_place(self, group: str, state: GroupState, message: ReceivedMessage) -> Track:
        committed = await self.admin.offsets.committed(group, message.queue)
        before = message.queue_offset - (committed or 0)
        if committed is not None and before < 0:
            if not _is_wanted(state, message):
                wanted = state.subscriptions[message.queue.topic]
                return Track(group, TrackOutcome.FILTERED, f"it subscribes to {wanted}")
            detail = f"{-before - 1:,} more since then" if before < -1 else ""
            return Track(group, TrackOutcome.CONSUMED, detail)
        at = "nothing committed" if committed is None else f"{before:,} before it"
        return Track(group, TrackOutcome.WAITING if state.members else TrackOutcome.OFFLINE, at)


def _is_wanted(state: GroupState, message: ReceivedMessage) -> bool:
    """Whether the message's tag matches the subscription; SQL expressions count as a match."""
    expression = state.subscriptions.get(message.queue.topic, SUBSCRIBE_ALL).strip()
    tags = [tag.strip() for tag in expression.split("||")]
    is_of_tags = all(map(_TAG.fullmatch, tags))
    return expression == SUBSCRIBE_ALL or not is_of_tags or message.tags in tags
