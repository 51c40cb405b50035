"""One line per consumer group: totals that Rockhopper brokers return in one answer.

A group may have offsets in thousands of topics; a query for each of them would take a broker
seconds. Such queries are still used for RocketMQ's brokers, and for users who may not see
everything on a Rockhopper broker.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from rockhopper.client.admin.admin import Admin
from rockhopper.client.admin.group_states import GroupState, is_tools_group
from rockhopper.client.admin.topic_stats import find_oldest_s
from rockhopper.protocol.bodies.stats import LAG_UNKNOWN, GroupFigures
from rockhopper.protocol.names import is_retry_topic
from rockhopper.tasks import gather_some_at_a_time

_BROADCASTING, _CLUSTERING = "BROADCASTING", "CLUSTERING"


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """The totals of a consumer group over all brokers."""

    name: str
    members: int
    model: str | None
    """None if no member is online."""
    topics: list[str]
    lag: int | None
    """None in broadcast, where the members store their own offsets."""
    oldest_s: float | None
    """The age of the oldest message not yet consumed; None if unknown."""


async def summarise_groups(admin: Admin, *, with_system: bool = False) -> list[GroupSummary]:
    """Return all groups by name; those of tools and brokers only with `with_system`."""
    figures = await admin.figures.read_groups()
    if figures is None:
        states = await admin.groups.states(with_system=with_system)
        asked = ([] if state.model == _BROADCASTING else state.queues for state in states)
        ages = await gather_some_at_a_time(partial(find_oldest_s, admin), asked)
        return [_summarise_state(state, age_s) for state, age_s in zip(states, ages, strict=True)]
    now_ms = time.time_ns() // 1_000_000
    return [
        _summarise_figures(group, now_ms)
        for group in figures.groups
        if with_system or not is_tools_group(group.name)
    ]


def _summarise_state(state: GroupState, age_s: float | None) -> GroupSummary:
    lag = None if state.model == _BROADCASTING else state.lag
    topics = _sort_plain_topics(
        {*state.subscriptions, *(each.queue.topic for each in state.queues)}
    )
    return GroupSummary(state.name, len(state.members), state.model, topics, lag, age_s)


def _summarise_figures(group: GroupFigures, now_ms: int) -> GroupSummary:
    is_broadcasting = group.lag == LAG_UNKNOWN
    model = _BROADCASTING if is_broadcasting else _CLUSTERING if group.members else None
    age_s: float | None = None
    if group.topics and not is_broadcasting:
        if not group.lag:
            age_s = 0.0
        elif group.oldest_ms > 0:
            age_s = max(now_ms - group.oldest_ms, 0) / 1000
    lag = None if is_broadcasting else group.lag
    return GroupSummary(
        group.name, group.members, model, _sort_plain_topics(group.topics), lag, age_s
    )


def _sort_plain_topics(topics: Iterable[str]) -> list[str]:
    return sorted(topic for topic in topics if not is_retry_topic(topic))
