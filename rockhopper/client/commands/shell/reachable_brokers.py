"""Finds the brokers that answer a command: it names the missing ones and uses the others.

A missing broker is a master that does not answer, or a broker that disappeared from the name
server. The exit code is then 1. But a read-only command still exits 0 if only brokers of the second
kind are missing: they may be gone for good.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from rockhopper.client.commands.running import note_incomplete, report

if TYPE_CHECKING:
    from rockhopper.client.admin.admin import Admin
    from rockhopper.client.admin.unreachable_brokers import UnreachableBrokers

ANSWERS_WITHIN_S = 3.0


class Away(NamedTuple):
    """The missing brokers, described in words."""

    silent: tuple[str, ...] = ()
    departed: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """All unreachable brokers in one line; empty if there are none."""
        who = ", ".join((*self.silent, *self.departed))
        return who and f"not reachable: {who}"

    @property
    def names(self) -> list[str]:
        """Only their names."""
        return [who.partition(" ")[0] for who in (*self.silent, *self.departed)]

    def tell(self, *, changes: bool = False) -> None:
        """Name the unreachable brokers on standard error."""
        for who in (*self.silent, *self.departed):
            report(f"not reachable: {who}: not {'changed' if changes else 'asked'}")
        if self.silent or (changes and self.departed):
            note_incomplete()


def make_unreachable_brokers() -> "UnreachableBrokers":
    """Return an object that finds unreachable brokers, with a command's timeout."""
    from rockhopper.client.admin.unreachable_brokers import UnreachableBrokers

    return UnreachableBrokers(answer_within_s=ANSWERS_WITHIN_S)


async def leave_out_unreachable(
    admin: "Admin", unreachable: "UnreachableBrokers", topic: str | None = None
) -> Away:
    """Make *admin* ignore masters that do not answer; with *topic*, those of the topic.

    If there is no such topic, or no broker at all, the command's own error names the missing
    brokers. If the user may not list the brokers, nothing is checked. Raises BrokerUnreachableError
    if none answers.
    """
    from rockhopper.client.errors import (
        BrokerUnreachableError,
        RequestRefusedError,
        RouteNotFoundError,
    )

    names, whose = None, ""
    if topic is not None:
        whose = f" of the topic {topic!r}"
        try:
            names = (await admin.route(topic)).brokers
        except RouteNotFoundError:
            return Away()
    try:
        silent, there = await unreachable.leave_out(
            admin, lambda each: each.is_master and (names is None or each.name in names)
        )
    except RequestRefusedError:
        return Away()
    if not silent and not there:
        return Away()
    away = Away(
        tuple(f"{each.name} ({problem})" for each, problem in silent), tuple(await admin.away())
    )
    if not there:
        raise BrokerUnreachableError(f"no broker{whose} answers; {away.said}")
    return away


@asynccontextmanager
async def list_reachable(
    nameserver: str | None,
    *,
    topic: str | None = None,
    broker: str | None = None,
    changes: bool = False,
) -> AsyncIterator["Admin"]:
    """Yield an Admin for the brokers that answer, those of *topic* if given; name the others.

    If the command is for one *broker*, its own error reports that it is missing.
    """
    from rockhopper.client.admin.admin import Admin

    async with Admin(nameserver) as admin:
        if broker is None:
            (await leave_out_unreachable(admin, make_unreachable_brokers(), topic)).tell(
                changes=changes
            )
        yield admin
