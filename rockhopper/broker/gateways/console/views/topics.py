"""Topics: the list, and one page for each."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from rockhopper.broker.gateways.console.visit import TemplatePage, Visit, format_error
from rockhopper.broker.users.access import Action, ResourceKind
from rockhopper.client.admin.group_states import QueueLag
from rockhopper.client.admin.topic_stats import (
    TopicFigures,
    TopicReader,
    measure_lag_seconds,
)
from rockhopper.client.errors import ClientError
from rockhopper.client.network.addresses import BrokerAddress
from rockhopper.protocol.bodies.stats import TopicFigures as Figures
from rockhopper.protocol.names import (
    is_dlq_topic,
    is_retry_topic,
    is_system_topic,
    reply_topic,
)
from rockhopper.tasks import gather_some_at_a_time

PAGE_SIZE = 50
GROUPS_SHOWN_MAX = 50
QUEUES_SHOWN_MAX = 100
_FIGURES: Mapping[str, Callable[[Figures], float]] = {
    "messages": lambda topic: topic.messages,
    "newest": lambda topic: topic.newest_ms,
    "in": lambda topic: topic.sent_per_s,
}
"""The list's sort keys besides the name."""


def plain_only(topics: Iterable[str], brokers: Iterable[BrokerAddress]) -> list[str]:
    """Return the applications' topics, without those of brokers and groups."""
    named = {each.name for each in brokers} | {each.cluster for each in brokers}
    named |= {reply_topic(each.cluster) for each in brokers}
    return [
        topic
        for topic in topics
        if not (
            topic in named or is_system_topic(topic) or is_retry_topic(topic) or is_dlq_topic(topic)
        )
    ]


async def show_all(visit: Visit) -> TemplatePage:
    """Show the list: sorted, searched, one page at a time."""
    masters, every = await asyncio.gather(visit.admin.masters(), visit.admin.topics())
    reader = TopicReader(visit.admin, masters)
    known = [*masters, *(each.broker for each in visit.silent)]
    wanted = visit.query.get("search", "").strip()
    with_system = bool(visit.query.get("system"))
    names = visit.filter_seen(every if with_system else plain_only(every, known))
    names = await _sort(visit, [name for name in names if wanted.lower() in name.lower()])
    chosen, pager = visit.page_of(names, PAGE_SIZE)
    rows = await gather_some_at_a_time(reader.all_of, chosen)
    values = {
        "rows": rows,
        "total": len(names),
        **pager,
        "wanted": wanted,
    }
    return TemplatePage("topics.html", values)


async def _sort(visit: Visit, names: list[str]) -> list[str]:
    """Sort by name or by a figure; figures need a scan of every topic, so they are cached."""
    find = _FIGURES.get(visit.query.get("sort", "name"))
    if find is not None:
        key = (visit.principal.user, visit.name_services, "figures")
        try:
            figures = await visit.kept.get(key, lambda: visit.admin.figures.read(details=True))
        except ClientError as error:
            visit.notice = f"Sorted by name: {error}"
            return names
        found = {each.name: find(each) for each in figures.topics}
        names = sorted(names, key=lambda name: (-found.get(name, 0), name))
    return names[::-1] if visit.query.get("reverse") else names


async def show(visit: Visit) -> TemplatePage:
    """Show one topic: its queues, and the groups that consume it."""
    name = visit.get_needed("name")
    visit.check(Action.GET, name)
    # Raises an error if the topic does not exist.
    route, masters = await asyncio.gather(visit.admin.route(name), visit.admin.masters())
    reader = TopicReader(visit.admin, masters)
    figures = await reader.all_of(name, GROUPS_SHOWN_MAX)
    seen = visit.filter_seen(figures.groups, ResourceKind.GROUP)
    shown = seen[:GROUPS_SHOWN_MAX]
    groups = await gather_some_at_a_time(partial(_group, visit, figures), shown)
    queues, pager = visit.page_of(figures.queues, QUEUES_SHOWN_MAX)
    values = {
        "topic": figures,
        "queues": queues,
        **pager,
        "route": route,
        "groups": groups,
        "hidden_groups": len(seen) - len(shown),
        "kind": _kind(name),
        "may_read": not visit.refusal(Action.SUB, name),
        "may_send": not visit.hindrance(Action.PUB, name),
    }
    return TemplatePage("topic.html", values)


async def _group(visit: Visit, figures: TopicFigures, group: str) -> dict[str, Any]:
    lags: Sequence[QueueLag] = ()
    problem = ""
    try:
        lags = await visit.admin.groups.progress_in(group, figures.name)
    except ClientError as error:
        problem = format_error(error)
    seconds = await measure_lag_seconds(visit.puller(), lags)
    return {
        "name": group,
        "lag": sum(each.lag for each in lags),
        "seconds": max(seconds.values(), default=None),
        "out_per_s": figures.out_by_group.get(group),
        "problem": problem,
    }


def _kind(name: str) -> str:
    if is_retry_topic(name):
        return "contains messages that a group will get again"
    if is_dlq_topic(name):
        return "contains the dead letters of a group"
    return "is the broker's own" if is_system_topic(name) else ""
