"""Groups: the list, one page for each, and resetting a group's offsets."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import NamedTuple

from rockhopper.broker.gateways.console.views.messages import time_of
from rockhopper.broker.gateways.console.visit import (
    Moved,
    TemplatePage,
    Visit,
    WrongInput,
    format_error,
    if_allowed,
    parse_whole,
    queue_of,
)
from rockhopper.broker.users.access import Action, ResourceKind
from rockhopper.client.admin.admin_groups import Target, describe_target, sum_moves
from rockhopper.client.admin.group_states import REQUEUE_GROUP, GroupState
from rockhopper.client.admin.topic_stats import measure_lag_seconds
from rockhopper.client.errors import ClientError
from rockhopper.client.queues import MessageQueue
from rockhopper.protocol.bodies.stats import GroupFigures
from rockhopper.protocol.names import is_dlq_topic, is_retry_topic, is_system_group
from rockhopper.tasks import gather_some_at_a_time

PAGE_SIZE = 25
QUEUES_SHOWN_MAX = 100
TARGETS = ("earliest", "latest", "time", "offset")


class GroupRow(NamedTuple):
    """A group in the list."""

    state: GroupState
    seconds: float | None
    """The age of the oldest message that it has not consumed, at most."""
    problem: str = ""
    """Why the other values are unknown; blank if they are known."""

    @property
    def topics(self) -> list[str]:
        """The topics it consumes, without its retry topic."""
        read = {each.queue.topic for each in self.state.queues} | set(self.state.subscriptions)
        return sorted(topic for topic in read if not is_retry_topic(topic))


async def show_all(visit: Visit) -> TemplatePage:
    """Show the list: searched, sorted, one page at a time."""
    wanted = visit.query.get("search", "").strip()
    found = await figures(visit, with_system=bool(visit.query.get("system")))
    lags = {each.name: each.lag for each in found if wanted.lower() in each.name.lower()}
    names = sorted(lags)
    if visit.query.get("sort") == "lag":
        names.sort(key=lambda name: -lags[name])
    if visit.query.get("reverse"):
        names.reverse()
    chosen, pager = visit.page_of(names, PAGE_SIZE)
    rows = await gather_some_at_a_time(partial(_row, visit), chosen)
    values = {
        "rows": rows,
        "total": len(names),
        **pager,
        "wanted": wanted,
    }
    return TemplatePage("groups.html", values)


async def figures(visit: Visit, *, with_system: bool = False) -> list[GroupFigures]:
    """Return the groups that the visitor may see, from one request to each broker.

    Reading the settings of all groups would take far longer.
    """
    found = {
        each.name: each
        for each in (await visit.admin.figures.read()).groups
        if with_system or not (is_system_group(each.name) or each.name == REQUEUE_GROUP)
    }
    return [found[name] for name in visit.filter_seen(found, ResourceKind.GROUP)]


async def _row(visit: Visit, name: str) -> GroupRow:
    try:
        state, _ = hide_topics(visit, await visit.admin.groups.progress(name))
    except ClientError as error:
        return GroupRow(GroupState(name), None, format_error(error))
    seconds = await measure_lag_seconds(visit.puller(), state.queues)
    return GroupRow(state, max(seconds.values(), default=None))


def hide_topics(visit: Visit, state: GroupState) -> tuple[GroupState, bool]:
    """Return *state* without the topics hidden from the visitor, and whether there are any."""
    read = {each.queue.topic for each in state.queues} | set(state.subscriptions)
    hidden = {topic for topic in read if not visit.sees_topic(topic)}
    if not hidden:
        return state, False
    told = {topic: state.subscriptions[topic] for topic in state.subscriptions.keys() - hidden}
    queues = [each for each in state.queues if each.queue.topic not in hidden]
    filters = {
        who: {topic: wanted for topic, wanted in topics.items() if topic not in hidden}
        for who, topics in state.filters.items()
    }
    return (
        replace(state, queues=queues, subscriptions=dict(sorted(told.items())), filters=filters),
        True,
    )


async def show(visit: Visit, problem: str = "") -> TemplatePage:
    """Show one group: its members, and its progress in each queue.

    *problem* describes an invalid reset target in the query.
    """
    name = visit.get_needed("name")
    visit.check(Action.GET, name, ResourceKind.GROUP)
    found, dead = await asyncio.gather(
        visit.admin.groups.state(name), if_allowed(visit.admin.dead_letters.count(name))
    )
    state, is_part = hide_topics(visit, found)
    seconds = await measure_lag_seconds(visit.puller(), state.queues)
    queues = sorted(
        state.queues,
        key=lambda each: (is_retry_topic(each.queue.topic), each.queue),
    )
    shown, pager = visit.page_of(queues, QUEUES_SHOWN_MAX)
    topics: dict[str, list[object]] = {}
    for each in shown:
        topics.setdefault(each.queue.topic, []).append(each)
    read = {each.queue.topic for each in queues}
    values = {
        "problem": problem,
        "refusal": visit.hindrance(Action.UPDATE, name, ResourceKind.GROUP),
        "state": state,
        "is_part": is_part,
        "dead": dead,
        "seconds": seconds,
        "longest": max(seconds.values(), default=None),
        "topics": topics,
        **pager,
        "resettable": sorted(
            {topic for topic in (*read, *state.subscriptions) if not is_dlq_topic(topic)},
            key=lambda topic: (is_retry_topic(topic), topic),
        ),
    }
    return TemplatePage("group.html", values, 400 if problem else 200)


class Reset(NamedTuple):
    """The parsed form: which group to move where."""

    group: str
    topic: str
    to: Target
    queues: Sequence[MessageQueue] | None


async def _reset_of(visit: Visit, fields: Mapping[str, str]) -> Reset:
    """Parse the form. Raises WrongInput, NoPermission."""
    group, topic = fields.get("group", "").strip(), fields.get("topic", "").strip()
    if not group or not topic:
        raise WrongInput("group or topic is missing")
    visit.check(Action.UPDATE, group, ResourceKind.GROUP)
    kind, value = fields.get("to", ""), fields.get("value", "").strip()
    to: Target
    if kind == "earliest":
        to = "earliest"
    elif kind == "latest":
        to = "latest"
    elif kind == "offset":
        to = parse_whole(value, "offset")
    elif kind == "time":
        to = datetime.fromtimestamp(time_of(value) / 1000).astimezone()
    else:
        raise WrongInput(f"a group can be reset to {', '.join(TARGETS)}")
    chosen = fields.get("queue", "").strip()
    if not chosen:
        return Reset(group, topic, to, None)
    queue = queue_of(chosen, topic)
    if queue not in (await visit.admin.route(topic)).read_queues:
        raise WrongInput(f"the topic {topic[:200]} has no queue {chosen[:100]}")
    return Reset(group, topic, to, [queue])


async def preview_reset(visit: Visit) -> TemplatePage:
    """Show what a reset would do, without doing it."""
    try:
        asked = await _reset_of(visit, visit.query)
    except WrongInput as error:
        if not (name := visit.query.get("group", "").strip()):
            raise
        visit.query = {**visit.query, "name": name}
        return await show(visit, str(error))
    state = await visit.admin.groups.online(asked.group)
    moves = await visit.admin.groups.plan_reset(
        asked.group, asked.topic, asked.to, queues=asked.queues
    )
    shown, pager = visit.page_of(moves, QUEUES_SHOWN_MAX)
    values = {
        "asked": asked,
        "refusal": visit.hindrance(Action.UPDATE, asked.topic),
        "moves": moves,
        "shown_moves": shown,
        **pager,
        "members": state.members,
        "sums": sum_moves(moves),
        "target": describe_target(asked.to),
    }
    return TemplatePage("reset.html", values)


async def reset(visit: Visit, form: Mapping[str, str]) -> Moved:
    """Reset the group's offsets."""
    asked = await _reset_of(visit, form)
    moves = await visit.admin.groups.reset_offsets(
        asked.group, asked.topic, asked.to, queues=asked.queues
    )
    moving = sum(move.before != move.after for move in moves)
    notice = (
        f"{asked.group} was reset in {moving} of {len(moves)} "
        f"queue{'' if len(moves) == 1 else 's'} of {asked.topic}."
        if moving
        else f"{asked.group} had this offset already in all queues of {asked.topic}."
    )
    return Moved("group", {"name": asked.group}, notice)
