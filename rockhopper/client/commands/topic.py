"""`rockhopper topic`."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from rockhopper.client.commands.output import (
    format_count,
    format_time,
    print_table,
    write_json,
    write_line,
    write_note,
)
from rockhopper.client.commands.parameters import TOPIC
from rockhopper.client.commands.running import (
    Failure,
    NoTerminal,
    broker_option,
    check_may_ask,
    choose_nameserver,
    confirm,
    may_ask,
    nameserver_option,
    report,
    run,
)
from rockhopper.client.commands.screen.family import AliasedGroup
from rockhopper.client.commands.screen.watching import run_shown, watch_options
from rockhopper.client.commands.shell.reachable_brokers import list_reachable

if TYPE_CHECKING:
    from rockhopper.protocol.bodies.stats import Figures

_PERMISSIONS = {"r": 4, "w": 2, "rw": 6, "none": 0}


@click.group(cls=AliasedGroup)
def topic() -> None:
    """List, create, show, purge and delete topics."""


@topic.command("list")
@click.option("--all", "-a", "is_all", is_flag=True, help="Also the system's own.")
@click.option(
    "--long", "-l", "is_long", is_flag=True, help="With messages, rate, newest message and groups."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per topic.")
@watch_options
@nameserver_option
def list_topics(is_all: bool, is_long: bool, as_json: bool) -> None:
    """List the topics that the name server knows."""
    names = choose_nameserver()
    run_shown(lambda: _list(is_all, is_long, as_json, names))


async def _list(is_all: bool, is_long: bool, as_json: bool, nameserver: str | None) -> None:
    from rockhopper.client.commands.screen.rates import is_systems

    figures: Figures | None = None
    async with list_reachable(nameserver) as admin:
        topics, brokers = await asyncio.gather(admin.topics(), admin.brokers())
        if not topics:
            await admin.masters()  # raises the more precise error that there is no broker
        if is_long:
            figures = await admin.figures.read(details=True)
    own = [name for name in topics if is_all or not is_systems(name, brokers)]
    if figures is not None:
        _print_figures(own, figures, as_json)
    else:
        for name in own:
            if as_json:
                write_json({"topic": name})
            else:
                write_line(name)
    hidden = len(topics) - len(own)
    if not own and not as_json:
        write_note(f"no topics yet ({hidden} of the system's own: --all)")


def _print_figures(names: Sequence[str], figures: "Figures", as_json: bool) -> None:
    known = {each.name: each for each in figures.topics}
    # A topic whose broker is away has no statistics.
    found = [known[name] for name in names if name in known]
    if as_json:
        for each in found:
            write_json(
                {
                    "topic": each.name,
                    "messages": each.messages,
                    "inPerSecond": round(each.sent_per_s, 3),
                    "newestStoreTime": each.newest_ms if each.newest_ms > 0 else None,
                    "groups": each.groups,
                }
            )
        return
    rows = [
        (
            each.name,
            each.messages,
            f"{each.sent_per_s:,.1f}",
            format_time(each.newest_ms),
            ", ".join(each.groups) or "-",
        )
        for each in found
    ]
    if rows:
        print_table(("TOPIC", "MESSAGES", "IN/S", "NEWEST", "GROUPS"), rows)


@topic.command()
@click.argument("name", type=TOPIC, metavar="TOPIC")
@click.option(
    "--queues",
    "-q",
    type=click.IntRange(min=1),
    default=8,
    metavar="N",
    help="Per broker; 8 by default.",
)
@click.option(
    "--perm",
    type=click.Choice(list(_PERMISSIONS)),
    default="rw",
    help="What clients may do; default rw.",
)
@click.option(
    "--attribute",
    "attributes",
    multiple=True,
    metavar="NAME=VALUE",
    help="For example message.type=DELAY or queue.type=BatchCQ; repeatable.",
)
@broker_option
@click.option("--yes", "-y", is_flag=True, help="Close queues that hold messages without asking.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per broker.")
@nameserver_option
def create(
    name: str,
    queues: int,
    perm: str,
    attributes: tuple[str, ...],
    broker: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Create TOPIC, or change an existing one.

    If the number of queues is reduced, removed queues that still hold messages accept no new ones
    and stay readable until you run this again and they are empty.
    """
    pairs: dict[str, str] = {}
    for text in attributes:
        key, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"--attribute {text!r} must look like NAME=VALUE")
        pairs[key] = value
    run(_create(name, queues, _PERMISSIONS[perm], pairs, broker, yes, as_json, choose_nameserver()))


async def _create(
    name: str,
    queues: int,
    perm: int,
    attributes: dict[str, str],
    broker: str | None,
    yes: bool,
    as_json: bool,
    nameserver: str | None,
) -> None:
    from rockhopper.client.admin.admin import name_queues

    async with list_reachable(nameserver, broker=broker, changes=True) as admin:
        masters = [each.name for each in await admin.masters(broker)]
        if full := await admin.queues_beyond(name, queues, masters):
            held = format_count(sum(each.count for each in full), "message")
            where = f"{name_queues(full)} of {name}"
            if not yes and not may_ask():
                raise NoTerminal(
                    f"with {format_count(queues, 'queue')} no consumer would read {held} in "
                    f"{where}: --yes closes these queues for new messages, and keeps them "
                    "readable until they are empty"
                )
            confirm(f"{where} hold {held}. Close them for new messages, keep them readable?", yes)
        targets = await admin.create_topic(
            name, queues=queues, perm=perm, attributes=attributes, broker=broker, drain=True
        )
    if full:
        report(
            f"{name_queues(full)} still hold {held}: they are readable and accept no new "
            "messages; run this again when they are empty"
        )
    for target in targets:
        if as_json:
            write_json(
                {"topic": name, "broker": target.name, "address": target.address, "queues": queues}
            )
        else:
            write_line(
                f"{name} has {format_count(queues, 'queue')} on {target.name} ({target.address})"
            )


@topic.command()
@click.argument("name", type=TOPIC, metavar="TOPIC")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@nameserver_option
def delete(name: str, yes: bool) -> None:
    """Delete TOPIC with all its messages, on every broker."""
    question = f"Delete {name} with all its messages?"
    check_may_ask(question, yes)
    run(_delete(name, question, yes, choose_nameserver()))


async def _delete(name: str, question: str, yes: bool, nameserver: str | None) -> None:
    from rockhopper.client.errors import RouteNotFoundError

    async with list_reachable(nameserver, topic=name, changes=True) as admin:
        confirm(question, yes)
        try:
            targets = await admin.delete_topic(name)
        except RouteNotFoundError as error:
            what = f"there is no topic {name!r} to delete"
            raise RouteNotFoundError(what, address=error.address).about(topic=name) from None
    for target in targets:
        write_line(f"deleted {name} on {target.name} ({target.address})")


@topic.command()
@click.argument("name", type=TOPIC, metavar="TOPIC")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@nameserver_option
def purge(name: str, yes: bool) -> None:
    """Empty TOPIC on every broker; the topic, its settings and its groups stay.

    Groups, online ones included, continue with messages sent afterwards. Offsets do not start at 0
    again. Delayed messages and retries are stored elsewhere and are still delivered.
    """
    question = f"Delete all messages of {name}?"
    check_may_ask(question, yes)
    run(_purge(name, question, yes, choose_nameserver()))


async def _purge(name: str, question: str, yes: bool, nameserver: str | None) -> None:
    async with list_reachable(nameserver, topic=name, changes=True) as admin:
        confirm(question, yes)
        before = {each.queue: each for each in await admin.ranges(name)}
        targets = await admin.purge_topic(name)
        after = {each.queue: each for each in await admin.ranges(name)}
    for target in targets:
        gone = sum(
            each.min_offset - before[queue].min_offset
            for queue, each in after.items()
            if queue.broker_name == target.name and queue in before
        )
        write_line(
            f"purged {name} on {target.name} ({target.address}): {format_count(gone, 'message')}"
        )


@topic.command()
@click.argument("name", type=TOPIC, metavar="TOPIC")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per queue.")
@watch_options
@nameserver_option
def show(name: str, as_json: bool) -> None:
    """Show where the queues of TOPIC are and what they hold."""
    names = choose_nameserver()
    run_shown(lambda: _show(name, as_json, names))


async def _show(name: str, as_json: bool, nameserver: str | None) -> None:
    async with list_reachable(nameserver, topic=name) as admin:
        route = await admin.route(name)
        ranges = await admin.ranges(name)
        earliest = await asyncio.gather(
            *(admin.offsets.earliest_store_time_ms(each.queue) for each in ranges)
        )
    readable, writable = set(route.read_queues), set(route.write_queues)
    rows = []
    for each, oldest_ms in zip(ranges, earliest, strict=True):
        queue = each.queue
        oldest = oldest_ms if each.count else None
        if as_json:
            write_json(
                {
                    "topic": name,
                    "broker": queue.broker_name,
                    "address": route.reader(queue.broker_name),
                    "queue": queue.queue_id,
                    "minOffset": each.min_offset,
                    "maxOffset": each.max_offset,
                    "oldestStoreTime": oldest,
                    "readable": queue in readable,
                    "writable": queue in writable,
                }
            )
        access = "r" * (queue in readable) + "w" * (queue in writable)
        rows.append(
            (
                queue.broker_name,
                queue.queue_id,
                access,
                each.min_offset,
                each.max_offset,
                each.count,
                format_time(oldest),
            )
        )
    if not ranges:
        raise Failure(
            f"the queues of topic {name!r} are neither readable nor writable, so their content "
            f"is not shown; `rockhopper topic create {name} --perm rw` opens it again"
        )
    if not as_json:
        print_table(("BROKER", "QUEUE", "ACCESS", "MIN", "MAX", "MESSAGES", "OLDEST"), rows)
        total = sum(each.count for each in ranges)
        write_line(f"{format_count(total, 'message')} in {format_count(len(ranges), 'queue')}")
