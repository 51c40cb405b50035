"""Dead letters: which groups have some, what they are, and sending them back."""

from collections.abc import Mapping
from contextlib import aclosing

from rockhopper.broker.access.access import Action, Kind
from rockhopper.broker.console.browsing import line
from rockhopper.broker.console.visit import Moved, Shown, Visit, WrongInput, number
from rockhopper.client.admin.topic_figures import together
from rockhopper.protocol.names import DLQ_PREFIX, dlq_topic

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


async def requeue(visit: Visit, form: Mapping[str, str]) -> Moved:
    """Send some, or one, back to where they came from."""
    group = form.get("group", "").strip()
    if not group:
        raise WrongInput("say of which group")
    visit.check(Action.UPDATE, group, Kind.GROUP)
    message_id = form.get("id", "").strip() or None
    count = number(form.get("count", ""), 1, least=1, most=REQUEUED_AT_ONCE_MAX)
    sent = there = 0
    requeued = visit.admin.dead_letters.requeue(
        group, max_count=None if message_id else count, message_id=message_id
    )
    async with visit.turns.of(group), aclosing(requeued) as found:
        async for each in found:
            if each.receipt is None:
                there += 1
            else:
                sent += 1
    notice = f"{sent} of the dead letters of {group} went back to where they came from."
    if there:
        notice += f" {there} had been sent back before."
    return Moved("dead-letters/of", {"group": group}, notice)
