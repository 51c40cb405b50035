"""The brokers that a command asks: those that are away are named, and it goes on with the others.

Away are masters that do not answer, and brokers that the name service misses. The exit code is 1
then, but for who only reads and misses none but the latter: they may be gone for good.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rockhopper.client.commands.running import note_incomplete, report

if TYPE_CHECKING:
    from rockhopper.client.admin.admin import Admin
    from rockhopper.client.admin.silence import Silence

ANSWERS_WITHIN_S = 3.0


@dataclass(frozen=True)
class Away:
    """Who is away, in words."""

    silent: tuple[str, ...] = ()
    departed: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """All of them in a line; empty for none."""
        who = ", ".join((*self.silent, *self.departed))
        return who and f"away: {who}"

    @property
    def names(self) -> list[str]:
        """Their names alone."""
        return [who.partition(" ")[0] for who in (*self.silent, *self.departed)]

    def tell(self, *, changes: bool = False) -> None:
        """Name them on standard error."""
        for who in (*self.silent, *self.departed):
            report(f"away: {who}: not {'changed' if changes else 'asked'}")
        if self.silent or (changes and self.departed):
            note_incomplete()


def new_silence() -> "Silence":
    """Return what finds silent brokers with a command's patience."""
    from rockhopper.client.admin.silence import Silence

    return Silence(answer_within_s=ANSWERS_WITHIN_S)


async def leave_out_silent(admin: "Admin", silence: "Silence", topic: str | None = None) -> Away:
    """Let *admin* know nothing of masters that are silent; with *topic* it is about that one's.

    Where there is no such topic, or no broker at all, the command's own error says who is away; who
    may not ask which brokers there are goes without. Raises BrokerUnreachableError: none answers.
    """
    from rockhopper.client.errors import (
        BrokerUnreachableError,
        RequestRefusedError,
        RouteNotFoundError,
    )

    names = None
    if topic is not None:
        try:
            names = (await admin.route(topic)).brokers
        except RouteNotFoundError:
            return Away()
    try:
        silent, there = await silence.leave_out(
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
        whose = "" if topic is None else f" of the topic {topic!r}"
        raise BrokerUnreachableError(f"no broker{whose} answers; {away.said}")
    return away


@asynccontextmanager
async def reached(
    nameserver: str | None,
    *,
    topic: str | None = None,
    broker: str | None = None,
    changes: bool = False,
) -> AsyncIterator["Admin"]:
    """An Admin for the brokers that answer, of *topic* if that is given; the others are named.

    Where the one *broker* is meant, its own error says that it is away.
    """
    from rockhopper.client.admin.admin import Admin

    async with Admin(nameserver) as admin:
        if broker is None:
            (await leave_out_silent(admin, new_silence(), topic)).tell(changes=changes)
        yield admin
