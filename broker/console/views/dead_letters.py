"""Dead letters: which groups have some, what they are, and sending them back."""

from collections import Counter
from collections.abc import Mapping
from contextlib import aclosing
from typing import NamedTuple

from rockhopper.broker.access.access import Action, Kind
from rockhopper.broker.console.browsing import line
from rockhopper.broker.console.visit import Moved, Shown, Visit, WrongInput, number
from rockhopper.client.admin.topic_figures import together
from rockhopper.protocol.names import DLQ_PREFIX, dlq_topic, retry_topic

GROUPS_MAX = 200
LETTERS_SHOWN_MAX = 50
REQUEUED_AT_ONCE_MAX = 1000


async def show_all(visit: Visit) -> Shown:
    """The groups that gave messages up."""
    names = [
        topic.removeprefix(DLQ_PREFIX)
        for topic in await visit.admin.topics()
        if topic.startswith(DLQ_PREFIX) and visit.sees_topic(topic)
    ]
    counts = await together(map(visit.admin.dead_letters.count, names[:GROUPS_MAX]))
    found = sorted((each for each in counts if each.count), key=lambda each: -each.waiting)
    hidden = max(len(names) - GROUPS_MAX, 0)
    return Shown("dead_letters.html", {"counts": found, "hidden": hidden})


async def show(visit: Visit) -> Shown:
    """The dead letters of a group, those first that wait."""
    group = visit.needed("group")
    visit.check(Action.SUB, group, Kind.GROUP)
    with_sent = bool(visit.query.get("all"))
    count = await visit.admin.dead_letters.count(group)
    letters = []
    if not count.count:
        await visit.admin.groups.lag(group)  # raises where there is no such group
    else:
        read = visit.admin.dead_letters.read(group, only_waiting=not with_sent)
        async with aclosing(read) as found:
            async for each in found:
                letters.append((each, line(each.message)))
                if len(letters) == LETTERS_SHOWN_MAX:
                    break
    values = {"group": group, "count": count, "letters": letters, "topic": dlq_topic(group)}
    return Shown("dead_letters_of.html", values)


class Back(NamedTuple):
    """What a form says: which dead letters go where."""

    group: str
    message_id: str | None
    count_max: int | None
    to: str | None
    """None: where each came from."""


def _back_of(visit: Visit, fields: Mapping[str, str]) -> Back:
    """Raises WrongInput, NoPermission."""
    group = fields.get("group", "").strip()
    if not group:
        raise WrongInput("say of which group")
    visit.check(Action.UPDATE, group, Kind.GROUP)
    message_id = fields.get("id", "").strip() or None
    count = number(fields.get("count", ""), 1, least=1, most=REQUEUED_AT_ONCE_MAX)
    to = retry_topic(group) if fields.get("to") == "group" else None
    return Back(group, message_id, None if message_id else count, to)


async def _counted(visit: Visit, asked: Back, *, dry_run: bool) -> tuple[Counter[str], int]:
    """How many go to each topic, and how many were sent there before."""
    targets: Counter[str] = Counter()
    there = 0
    requeued = visit.admin.dead_letters.requeue(
        asked.group,
        max_count=asked.count_max,
        message_id=asked.message_id,
        to=asked.to,
        dry_run=dry_run,
    )
    async with visit.turns.of(asked.group), aclosing(requeued) as found:
        async for each in found:
            if each.receipt is None and not dry_run:
                there += 1
            else:
                targets[each.target] += 1
    return targets, there


async def preview(visit: Visit) -> Shown:
    """What sending some back would do; nothing is done yet."""
    asked = _back_of(visit, visit.query)
    targets, _ = await _counted(visit, asked, dry_run=True)
    values = {"asked": asked, "targets": sorted(targets.items()), "sum": targets.total()}
    return Shown("dead_letters_back.html", values)


async def requeue(visit: Visit, form: Mapping[str, str]) -> Moved:
    """Send some, or one, back to where they came from, or to their group alone."""
    asked = _back_of(visit, form)
    targets, there = await _counted(visit, asked, dry_run=False)
    where = f"to {asked.group} alone" if asked.to else "to where they came from"
    notice = f"{targets.total()} of the dead letters of {asked.group} went back {where}."
    if there:
        notice += f" {there} had been sent back before."
    return Moved("dead-letters/of", {"group": asked.group}, notice)
