"""Dead letters: the groups that have some, their messages, and requeueing."""

from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import NamedTuple

from rockhopper.broker.gateways.console.browsing import line
from rockhopper.broker.gateways.console.visit import Moved, TemplatePage, Visit, WrongInput, number
from rockhopper.broker.users.access import Action, ResourceKind
from rockhopper.client.errors import ClientError
from rockhopper.protocol.names import DLQ_PREFIX, dlq_topic, is_dlq_topic, retry_topic
from rockhopper.tasks import gather_some_at_a_time

GROUPS_MAX = 200
LETTERS_SHOWN_MAX = 50
REQUEUED_AT_ONCE_MAX = 1000
REASON_CHARS_MAX = 300


async def show_all(visit: Visit) -> TemplatePage:
    """Show the groups with dead letters."""
    names = [
        topic.removeprefix(DLQ_PREFIX)
        for topic in visit.filter_seen(filter(is_dlq_topic, await visit.admin.topics()))
    ]
    counts = await gather_some_at_a_time(visit.admin.dead_letters.count, names[:GROUPS_MAX])
    found = sorted((each for each in counts if each.count), key=lambda each: -each.waiting)
    hidden = max(len(names) - GROUPS_MAX, 0)
    return TemplatePage("dead_letters.html", {"counts": found, "hidden": hidden})


async def show(visit: Visit) -> TemplatePage:
    """Show the dead letters of a group, those not yet sent back first."""
    group = visit.get_needed("group")
    visit.check(Action.SUB, group, ResourceKind.GROUP)
    with_sent = bool(visit.query.get("all"))
    count = await visit.admin.dead_letters.count(group)
    letters = []
    if not count.count:
        await visit.admin.groups.lag(group)  # Raises an error if the group does not exist.
    else:
        read = visit.admin.dead_letters.read(group, only_waiting=not with_sent)
        async with aclosing(read) as found:
            async for each in found:
                letters.append((each, line(each.message)))
                if len(letters) == LETTERS_SHOWN_MAX:
                    break
    values = {
        "group": group,
        "refusal": visit.hindrance(Action.UPDATE, group, ResourceKind.GROUP),
        "count": count,
        "letters": letters,
        "topic": dlq_topic(group),
    }
    return TemplatePage("dead_letters_of.html", values)


class Back(NamedTuple):
    """The parsed form: which dead letters to send where."""

    group: str
    message_id: str | None
    letters: Collection[str] | None
    """The ids that a preview showed; None: the oldest."""
    count_max: int | None
    to: str | None
    """None: to the original topic of each."""


@dataclass
class _RequeueTotals:
    """The results of a requeue or its preview."""

    targets: Counter[str] = field(default_factory=Counter)
    there: int = 0
    """The number of messages that were sent back earlier."""
    letters: list[str] = field(default_factory=list)
    """The ids of the messages that are sent."""
    problems: list[ClientError] = field(default_factory=list)
    """The error of each message that stays."""
    end: ClientError | None = None
    """The error that stopped the run early."""

    @property
    def sum(self) -> int:
        """The number of messages that are sent."""
        return self.targets.total()

    @property
    def reasons(self) -> list[tuple[str, int]]:
        """The most frequent problems with their counts."""
        return Counter(str(each)[:REASON_CHARS_MAX] for each in self.problems).most_common(3)


def _back_of(visit: Visit, fields: Mapping[str, str]) -> Back:
    """Parse the form. Raises WrongInput, NoPermission."""
    group = fields.get("group", "").strip()
    if not group:
        raise WrongInput("group is missing")
    visit.check(Action.UPDATE, group, ResourceKind.GROUP)
    message_id = fields.get("id", "").strip() or None
    letters = frozenset(fields.get("letters", "").split()[:REQUEUED_AT_ONCE_MAX]) or None
    count = number(fields.get("count", ""), 1, least=1, most=REQUEUED_AT_ONCE_MAX)
    to = retry_topic(group) if fields.get("to") == "group" else None
    return Back(group, message_id, letters, None if message_id else count, to)


async def _requeue_all(visit: Visit, asked: Back, *, dry_run: bool) -> _RequeueTotals:
    """Requeue, or with *dry_run* only plan to.

    Returns where each message goes, or why it stays.
    """
    sums = _RequeueTotals()
    requeued = visit.admin.dead_letters.requeue(
        asked.group,
        max_count=asked.count_max,
        message_id=asked.message_id,
        only=asked.letters,
        to=asked.to,
        go_on=True,
        dry_run=dry_run,
    )
    async with visit.turns.get_lock(asked.group), aclosing(requeued) as found:
        try:
            async for each in found:
                if each.problem is not None:
                    sums.problems.append(each.problem)
                elif each.receipt is None and not dry_run:
                    sums.there += 1
                else:
                    sums.targets[each.target] += 1
                    sums.letters.append(each.letter.message.offset_message_id)
        except ClientError as error:
            if dry_run or not sums.sum:
                raise
            sums.end = error
    return sums


async def preview(visit: Visit) -> TemplatePage:
    """Show what sending some back would do, without doing it."""
    asked = _back_of(visit, visit.query)
    sums = await _requeue_all(visit, asked, dry_run=True)
    return TemplatePage("dead_letters_back.html", {"asked": asked, "sums": sums})


async def requeue(visit: Visit, form: Mapping[str, str]) -> Moved:
    """Send the messages of a preview back to their original topics, or only to their group."""
    asked = _back_of(visit, form)
    if asked.message_id is None and asked.letters is None:
        raise WrongInput("ids of dead letters are missing: use the preview")
    sums = await _requeue_all(visit, asked, dry_run=False)
    if sums.problems and not sums.sum:
        raise sums.problems[0]
    return Moved("dead-letters/of", {"group": asked.group}, _notice(asked, sums))


def _notice(asked: Back, sums: _RequeueTotals) -> str:
    where = f"to {asked.group} alone" if asked.to else "to their original topics"
    notice = f"Sent back {sums.sum} of the dead letters of {asked.group}, {where}."
    if sums.there:
        notice += f" {sums.there} had already been sent back."
    for reason, count in sums.reasons:
        notice += f" {count} could not be sent: {reason}."
    left = len(asked.letters or ()) - sums.sum - sums.there - len(sums.problems)
    if sums.end is not None:
        notice += f" Then it stopped, and {left} were not sent: {str(sums.end)[:REASON_CHARS_MAX]}."
    elif left > 0:
        notice += f" {left} of those shown had already been sent back, or no longer exist."
    return notice
