"""Explains why no broker serves a topic, as far as the name server knows.

Rockhopper's name server remembers the brokers that disappeared since it started; Apache's does not.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from rockhopper.client.errors import ClientError
from rockhopper.client.printable import format_age
from rockhopper.protocol.bodies import ClusterInfo
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.names import is_retry_topic

_NAMED_MAX = 5
_PATIENCE_S = 1.0


def describe_away_brokers(info: ClusterInfo) -> list[str]:
    """Describe the brokers that disappeared, and how long ago each was last seen."""
    ages_ms = info.departed_ages_ms or {}
    return [
        f"{name} (last seen {format_age(ages_ms[name])} ago)" if name in ages_ms else name
        for name in sorted(info.departed_brokers or ())
    ]


def format_names(names: Sequence[str]) -> str:
    """Return names as a list in a sentence, with only the first few of many."""
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more:,} more" if more > 0 else "")


async def explain_missing_route(
    ask: Callable[[RequestCode], Awaitable[Command]], topic: str, *, for_sending: bool
) -> tuple[str, str]:
    """Return an addition to the error about a topic without a broker, and a remedy.

    *ask* queries the name server. It is not queried about a retry topic, which is created on
    demand.
    """
    info = None if is_retry_topic(topic) else await _cluster_info(ask)
    away = [] if info is None else describe_away_brokers(info)
    if info is not None and not info.broker_addr_table:
        return "", suggest_any_broker(away)
    more = ", and no broker creates topics on first use" if for_sending else ""
    create = f"`rockhopper topic create {topic}`"
    if away:
        return more, f"{suggest_starting(away)}; if it never existed, create it with {create}"
    return more, f"if it never existed, create it with {create}; if it did, its broker is down"


def suggest_starting(away: Sequence[str]) -> str:
    """Return a remedy if missing brokers may have the topic or group."""
    return (
        f"brokers that may have it are down: {format_names(away)}: start them (their logs have "
        "the reason)"
    )


def suggest_any_broker(away: Sequence[str]) -> str:
    """Return a remedy if no broker is registered."""
    who = f"; not reachable: {format_names(away)}" if away else ""
    return (
        f"no broker is registered there now{who}: start it, or check in its log whether it "
        "registers at this name server (namesrvAddr)"
    )


async def _cluster_info(ask: Callable[[RequestCode], Awaitable[Command]]) -> ClusterInfo | None:
    try:
        async with asyncio.timeout(_PATIENCE_S):
            answer = await ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        return ClusterInfo.decode(answer.body) if answer.code == ResponseCode.SUCCESS else None
    except (ClientError, ProtocolError, TimeoutError):
        return None
