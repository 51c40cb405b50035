"""The first page, the list of brokers, and the data of their live view."""

import asyncio
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import astuple
from typing import NamedTuple

from rockhopper.broker.gateways.console.rendering import ago, rate
from rockhopper.broker.gateways.console.views.groups import figures
from rockhopper.broker.gateways.console.views.topics import plain_only
from rockhopper.broker.gateways.console.visit import JsonDocument, TemplatePage, Visit
from rockhopper.client.admin.admin import Admin
from rockhopper.client.admin.unreachable_brokers import display_name
from rockhopper.client.errors import ClientError, RouteNotFoundError
from rockhopper.client.network.addresses import BrokerAddress
from rockhopper.protocol.bodies.stats import GroupFigures
from rockhopper.protocol.names import is_dlq_topic, is_retry_topic

DISK_WARNING, DISK_FULL = 0.75, 0.90
BEHIND_SHOWN_MAX = 5
_COUNTED = re.compile(r"\]:(\d+)")
_CAPACITY = re.compile(r"Total : (.+), Free : (.+)\.")


class BrokerState(NamedTuple):
    """A broker and its runtime status."""

    broker: BrokerAddress
    facts: Mapping[str, str]
    problem: str
    """Why there is no status; blank if there is."""

    def number(self, key: str) -> float | None:
        """Return the first number of a status value."""
        try:
            return float(self.facts[key].split()[0])
        except (KeyError, IndexError, ValueError):
            return None

    def rates(self, key: str) -> list[float]:
        """Return a status value's rates over 10 s, a minute and ten minutes."""
        try:
            return [float(part) for part in self.facts[key].split()]
        except (KeyError, ValueError):
            return []

    @property
    def disk_ratio(self) -> float | None:
        """The usage of the fuller disk."""
        ratios = [self.number(key) for key in ("commitLogDiskRatio", "consumeQueueDiskRatio")]
        return max((each for each in ratios if each is not None and each >= 0), default=None)

    @property
    def room(self) -> tuple[str, str] | None:
        """The size and free space of the commit log's disk, in RocketMQ's text form."""
        found = _CAPACITY.fullmatch(self.facts.get("commitLogDirCapacity", ""))
        return found and (found[1], found[2])

    @property
    def log_bytes(self) -> float | None:
        """The size of the commit log."""
        low, high = self.number("commitLogMinOffset"), self.number("commitLogMaxOffset")
        return None if low is None or high is None else high - low

    @property
    def was_sent_to(self) -> bool:
        """Whether its latencies include any message, as far as it reports."""
        counts = _COUNTED.findall(self.facts.get("putMessageDistributeTime", ""))
        return not counts or any(map(int, counts))

    @property
    def key(self) -> str:
        """Identifies the broker, for scripts."""
        return f"{self.broker.name}/{self.broker.broker_id}"

    @property
    def cells(self) -> dict[str, str]:
        """The table cells that change."""
        booted_ms = self.number("bootTimestamp")
        state = "does not answer" if self.problem else "serves"
        if self.broker.is_master and self.facts.get("brokerActive") == "false":
            state = "accepts no messages"
        return {
            "in": rate(next(iter(self.rates("putTps")), None)),
            "out": rate(next(iter(self.rates("getTransferredTps")), None)),
            "started": ago(int(booted_ms or 0)),
            "state": state,
        }

    @property
    def alarms(self) -> list[str]:
        """The problems that an operator should look at."""
        name = display_name(self.broker)
        if self.problem:
            return [f"{name} does not answer: {self.problem}"]
        found = []
        ratio = self.disk_ratio
        if ratio is not None and ratio >= DISK_WARNING:
            what = "is full" if ratio >= DISK_FULL else "is filling up"
            found.append(f"{name}: its disk {what}, {ratio * 100:.0f} % are used")
        if self.broker.is_master and self.facts.get("brokerActive") == "false":
            found.append(f"{name} accepts no messages")
        if behind := int(self.number("dispatchBehindBytes") or 0) >> 20:
            found.append(f"{name}: {behind:,} MiB of messages are not in queues yet")
        return found


async def states(visit: Visit) -> list[BrokerState]:
    """Return the status of all brokers that the name server knows."""
    brokers = await visit.admin.brokers()
    found = await asyncio.gather(*(_state(visit.admin, each) for each in brokers))
    silent = [BrokerState(each.broker, {}, each.problem) for each in visit.silent]
    return sorted([*found, *silent], key=lambda each: astuple(each.broker))


async def _state(admin: Admin, broker: BrokerAddress) -> BrokerState:
    try:
        return BrokerState(broker, await admin.broker_status(broker.address), "")
    except ClientError as error:
        return BrokerState(broker, {}, str(error))


async def show(visit: Visit) -> TemplatePage:
    """Show the cluster's content, its state and its problems."""
    found, topics, groups = await asyncio.gather(
        states(visit),
        visit.admin.topics(),
        _groups(visit),
    )
    plain = visit.filter_seen(plain_only(topics, [each.broker for each in found]))
    dead = visit.filter_seen(filter(is_dlq_topic, topics))
    none = None if visit.is_part else 0
    values = {
        "states": found,
        "alarms": _alarms(visit, found),
        "topic_count": len(plain) or none,
        "dead_count": len(dead) or none,
        "group_count": None if groups is None else len(groups) or none,
        "behind": [(each, _list_shown_topics(visit, each)) for each in _list_lagging(groups or ())],
    }
    return TemplatePage("overview.html", values)


def _alarms(visit: Visit, found: Iterable[BrokerState]) -> list[str]:
    alarms = [alarm for each in found for alarm in each.alarms]
    return [*alarms, *(f"{name} has left the cluster" for name in visit.departed)]


def _list_lagging(groups: Iterable[GroupFigures]) -> list[GroupFigures]:
    """Return the groups with the largest lag, the largest first."""
    behind = [each for each in groups if each.lag > 0]
    return sorted(behind, key=lambda each: (-each.lag, each.name))[:BEHIND_SHOWN_MAX]


def _list_shown_topics(visit: Visit, group: GroupFigures) -> list[str]:
    return [
        topic
        for topic in group.topics or ()
        if not is_retry_topic(topic) and visit.sees_topic(topic)
    ]


async def _groups(visit: Visit) -> list[GroupFigures] | None:
    try:
        return await figures(visit)
    except RouteNotFoundError:
        return None  # No broker answers; the page shows that.


async def brokers(visit: Visit) -> TemplatePage:
    """Show the complete status of all brokers."""
    return TemplatePage("brokers.html", {"states": await states(visit)})


async def rates(visit: Visit) -> JsonDocument:
    """Return counters from which a script computes rates."""
    found = await states(visit)
    return JsonDocument(
        {
            "timeMs": time.time_ns() // 1_000_000,
            "brokers": {
                each.key: {
                    "cells": each.cells,
                    "in": each.number("msgPutTotalTodayNow"),
                    "out": each.number("msgGetTotalTodayNow"),
                    "booted": each.number("bootTimestamp"),
                }
                for each in found
                if not each.problem
            },
            "away": {each.key: display_name(each.broker) for each in found if each.problem}
            | {name: name for name in visit.departed},
        }
    )
