"""`rockhopper group`: consumer groups and their lag."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from rockhopper.client.commands.output import (
    find_terminal_width,
    format_count,
    format_seconds,
    format_time,
    print_table,
    write_json,
    write_line,
    write_note,
)
from rockhopper.client.commands.parameters import (
    GROUP,
    TOPIC,
    PositionType,
    QueueType,
    select_queues,
)
from rockhopper.client.commands.running import (
    choose_nameserver,
    confirm,
    may_ask,
    nameserver_option,
    run,
)
from rockhopper.client.commands.screen.family import AliasedGroup
from rockhopper.client.commands.screen.watching import run_shown, watch_options
from rockhopper.client.commands.shell.reachable_brokers import list_reachable

if TYPE_CHECKING:
    from rockhopper.client.admin.admin import Admin
    from rockhopper.client.admin.admin_groups import OffsetMove, Target
    from rockhopper.client.admin.group_states import GroupMember, GroupState, QueueLag
    from rockhopper.client.queues import MessageQueue

    _Seconds = Mapping[MessageQueue, float]

_MODELS = {"CLUSTERING": "shared", "BROADCASTING": "broadcast"}
_WIDE = 132
_LAG_COLUMNS = ("TOPIC", "BROKER", "QUEUE", "END", "CONSUMED", "LAG", "OLDEST", "LAST CONSUMED")


@click.group(cls=AliasedGroup)
def group() -> None:
    """Create, list, show, reset and delete consumer groups."""


@group.command()
@click.argument("name", type=GROUP, metavar="GROUP")
@click.option(
    "--orderly/--concurrent",
    default=None,
    help="Whether each queue's messages are consumed one after the other.",
)
@click.option(
    "--retries",
    type=click.IntRange(0),
    metavar="N",
    help="After how many deliveries a message becomes a dead letter.",
)
@nameserver_option
def create(name: str, orderly: bool | None, retries: int | None) -> None:
    """Create GROUP on every broker, or change the settings that the options name.

    This is not needed if groups are created on first use.
    """
    run(_create(name, orderly, retries, choose_nameserver()))


async def _create(
    name: str, orderly: bool | None, retries: int | None, nameserver: str | None
) -> None:
    async with list_reachable(nameserver, changes=True) as admin:
        for master in await admin.groups.create(name, orderly=orderly, retries_max=retries):
            write_line(f"{name} is a group on {master.name} ({master.address})")


@group.command("list")
@click.option("--all", "-a", "is_all", is_flag=True, help="Also the groups of tools and brokers.")
@click.option("--by-lag", is_flag=True, help="Groups with the largest lag first.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per group.")
@watch_options
@nameserver_option
def list_groups(is_all: bool, by_lag: bool, as_json: bool) -> None:
    """List the consumer groups with their members and their lag."""
    names = choose_nameserver()
    run_shown(lambda: _list(is_all, by_lag, as_json, names))


async def _list(is_all: bool, by_lag: bool, as_json: bool, nameserver: str | None) -> None:
    from rockhopper.client.admin.group_summaries import summarise_groups

    async with list_reachable(nameserver) as admin:
        found = await summarise_groups(admin, with_system=is_all)
    if by_lag:
        found = sorted(found, key=lambda each: -(each.lag or 0))
    if as_json:
        for each in found:
            write_json(
                {
                    "group": each.name,
                    "members": each.members,
                    "model": each.model,
                    "topics": each.topics,
                    "lag": each.lag,
                    "lagSeconds": each.oldest_s,
                }
            )
        return
    rows = [
        (
            each.name,
            each.members,
            _model(each.model),
            "-" if each.lag is None else each.lag,
            format_seconds(each.oldest_s),
            ", ".join(each.topics) or "-",
        )
        for each in found
    ]
    if rows:
        print_table(("GROUP", "MEMBERS", "MODEL", "LAG", "OLDEST", "TOPICS"), rows)
    else:
        write_note("no groups yet (--all shows those of tools and brokers)")


def _model(model: str | None) -> str:
    return "-" if model is None else _MODELS.get(model, model)


def _lag(state: "GroupState") -> int | None:
    """Return the lag; None in broadcast, where the members store their own offsets."""
    return None if state.model == "BROADCASTING" else state.lag


@group.command()
@click.argument("name", type=GROUP, metavar="GROUP")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@watch_options
@nameserver_option
def show(name: str, as_json: bool) -> None:
    """Show the settings, members, subscriptions and queues of GROUP."""
    names = choose_nameserver()
    run_shown(lambda: _show(name, as_json, names))


async def _show(name: str, as_json: bool, nameserver: str | None) -> None:
    async with list_reachable(nameserver) as admin:
        state = await admin.groups.state(name)
        seconds = await _seconds(admin, state.queues)
    if as_json:
        write_json(_state_json(state, seconds))
        return
    _print_head(state)
    numbers = _numbers(state) if _is_narrow() else {}
    if state.members:
        write_line("")
        _print_members(state.members, numbers)
    if state.silent:
        write_line(
            f"{format_count(len(state.silent), 'member')} did not report their queues in time"
        )
    if not state.is_consistent:
        _print_differences(state, numbers)
    elif state.subscriptions:
        write_line("")
        print_table(("SUBSCRIBES TO", "FILTER"), list(state.subscriptions.items()))
    if state.queues:
        write_line("")
        owners = {queue: numbers.get(who, who) for queue, who in state.owners.items()}
        _print_lag(state.queues, seconds, owners)


def _print_members(members: "Sequence[GroupMember]", numbers: "Mapping[str, str]") -> None:
    columns: tuple[str, ...] = ("MEMBER", "ADDRESS", "LANGUAGE", "VERSION")
    rows = [(each.client_id, each.address, each.language, str(each.version)) for each in members]
    if numbers:
        print_table(("#", *columns), [(numbers[row[0]], *row) for row in rows])
    else:
        print_table(columns, rows)


def _print_differences(state: "GroupState", numbers: Mapping[str, str]) -> None:
    write_line("")
    write_line("The members have different subscriptions (docs/rolling-deployments.md):")
    rows = []
    for who, topics in state.filters.items():
        model = state.models.get(who, state.model or "-")
        shown = numbers.get(who, who), _MODELS.get(model, model)
        rows += [(*shown, topic, wanted) for topic, wanted in sorted(topics.items())]
    print_table(("MEMBER", "MODEL", "SUBSCRIBES TO", "FILTER"), rows)


def _is_narrow() -> bool:
    """Whether the terminal is too narrow for a queue and its owner on one line."""
    width = find_terminal_width()
    return width is not None and width < _WIDE


def _numbers(state: "GroupState") -> dict[str, str]:
    """Return short names of the members."""
    return {each.client_id: f"#{number}" for number, each in enumerate(state.members, 1)}


def _print_head(state: "GroupState") -> None:
    count = len(state.members)
    who = format_count(count, "member") if count else "no member is online"
    write_line(f"group      {state.name}")
    write_line(f"online     {who}")
    if state.model is not None:
        begins = (state.start_from or "-").removeprefix("CONSUME_FROM_").lower().replace("_", " ")
        write_line(f"model      {_model(state.model)}, starts at: {begins}")
    for client_id in state.shared_ids:
        write_line(f"WARNING    several members share the id {client_id}: each gets all messages")
    for broker, settings in sorted(state.settings.items()):
        write_line(f"settings   {broker}: {_settings_text(settings)}")


def _settings_text(settings: Mapping[str, Any]) -> str:
    """Return the main settings: retries, and switches that differ from the default."""
    texts = [
        f"{settings.get('retryMaxTimes', 16)} retries",
        "consuming " + ("allowed" if settings.get("consumeEnable", True) else "FORBIDDEN"),
    ]
    if not settings.get("consumeBroadcastEnable", True):
        texts.append("broadcast forbidden")
    if settings.get("consumeMessageOrderly"):
        texts.append("in order")
    if settings.get("retryQueueNums", 1) != 1:
        texts.append(format_count(settings["retryQueueNums"], "retry queue"))
    return ", ".join(texts)


async def _seconds(admin: "Admin", queues: "Sequence[QueueLag]") -> "_Seconds":
    from rockhopper.client.admin.topic_stats import measure_lag_seconds
    from rockhopper.client.consuming.pulling import GroupPuller

    return await measure_lag_seconds(GroupPuller(admin.session, None, is_browsing=True), queues)


def _state_json(state: "GroupState", seconds: "_Seconds") -> dict[str, Any]:
    return {
        "group": state.name,
        "model": state.model,
        "consumeType": state.consume_type,
        "startFrom": state.start_from,
        "settings": {broker: dict(settings) for broker, settings in state.settings.items()},
        "members": [
            {
                "clientId": each.client_id,
                "address": each.address,
                "language": each.language,
                "version": each.version,
            }
            for each in state.members
        ],
        "subscriptions": dict(state.subscriptions),
        "consistent": state.is_consistent,
        "filters": {who: dict(topics) for who, topics in state.filters.items()},
        "models": dict(state.models),
        "silent": list(state.silent),
        "sharedClientIds": list(state.shared_ids),
        "queues": [
            {**_lag_json(each, seconds), "owner": state.owners.get(each.queue)}
            for each in state.queues
        ],
        "lag": _lag(state),
        "lagSeconds": None if _lag(state) is None else max(seconds.values(), default=None),
    }


@group.command()
@click.argument("name", type=GROUP, metavar="GROUP")
@click.option("--total", "is_total", is_flag=True, help="Print the sum over all queues alone.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per queue.")
@watch_options
@nameserver_option
def lag(name: str, is_total: bool, as_json: bool) -> None:
    """Show the offset and lag of GROUP in each queue of its topics."""
    names = choose_nameserver()
    run_shown(lambda: _show_lag(name, is_total, as_json, names))


async def _show_lag(name: str, is_total: bool, as_json: bool, nameserver: str | None) -> None:
    async with list_reachable(nameserver) as admin:
        queues, online = await asyncio.gather(admin.groups.lag(name), admin.groups.online(name))
        seconds = await _seconds(admin, queues)
    behind = sum(each.lag for each in queues)
    if is_total and as_json:
        write_json(
            {
                "group": name,
                "lag": behind,
                "lagSeconds": max(seconds.values(), default=None),
                "queues": len(queues),
                "members": len(online.members),
            }
        )
    elif is_total:
        write_line(str(behind))
    elif as_json:
        for each in queues:
            write_json(_lag_json(each, seconds))
    elif queues:
        _print_lag(queues, seconds, {})
        if online.members:
            who = format_count(len(online.members), "member")
            write_line(f"{who} online; which member reads what: rockhopper group show {name}")
        else:
            write_line("no member is online")
    else:
        write_note(f"the group {name} has consumed nothing yet")


def _lag_json(each: "QueueLag", seconds: "_Seconds") -> dict[str, Any]:
    return {
        "topic": each.queue.topic,
        "broker": each.queue.broker_name,
        "queue": each.queue.queue_id,
        "brokerOffset": each.broker_offset,
        "consumerOffset": each.consumer_offset,
        "lag": each.lag,
        "lagSeconds": seconds.get(each.queue),
        "lastTimestamp": each.consumed_time_ms,
    }


def _print_lag(
    queues: "Sequence[QueueLag]", seconds: "_Seconds", owners: Mapping[Any, str]
) -> None:
    columns = (*_LAG_COLUMNS, "OWNER") if owners else _LAG_COLUMNS
    rows: list[tuple[object, ...]] = []
    for each in queues:
        cells: tuple[object, ...] = (
            each.queue.topic,
            each.queue.broker_name,
            each.queue.queue_id,
            each.broker_offset,
            each.consumer_offset,
            each.lag,
            format_seconds(seconds.get(each.queue)),
            # Omit milliseconds so that a row fits into 80 columns.
            format_time(each.consumed_time_ms).partition(".")[0],
        )
        rows.append((*cells, owners.get(each.queue, "-")) if owners else cells)
    if len(rows) > 1 and not owners:
        oldest = format_seconds(max(seconds.values(), default=None))
        rows.append(("TOTAL", "", "", "", "", sum(each.lag for each in queues), oldest, ""))
    print_table(columns, rows)
    behind = [each.lag for each in queues if each.lag]
    if behind:
        write_line(
            f"{format_count(sum(behind), 'message')} behind in {format_count(len(behind), 'queue')}"
        )
    else:
        write_line("no queue is behind")


@group.command()
@click.argument("name", type=GROUP, metavar="GROUP")
@click.option("--topic", "-t", type=TOPIC, required=True, help="In this topic.")
@click.option(
    "--to",
    "target",
    type=PositionType(),
    required=True,
    metavar="earliest|latest|OFFSET|TIME",
    help="Where the group continues; TIME is 2024-05-01T12:00, 12:30, @MILLISECONDS or -30m (ago).",
)
@click.option(
    "--queue",
    "-q",
    "queues",
    type=QueueType(),
    metavar="[BROKER:]ID",
    multiple=True,
    help="Only in this queue; repeatable.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be done.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per queue.")
@nameserver_option
def reset(
    name: str,
    topic: str,
    target: "Target",
    queues: tuple[tuple[str | None, int], ...],
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Move GROUP to another position in a topic; its members may be online.

    \b
    Examples:
      rockhopper group reset billing --topic orders --to -1h
      rockhopper group reset billing --topic orders --to 42 --queue broker-a:0 --dry-run
    """  # noqa: D301  click's mark for a paragraph that stays as it is
    run(_reset(name, topic, target, queues, dry_run, yes, as_json, choose_nameserver()))


async def _reset(
    name: str,
    topic: str,
    target: "Target",
    wanted: Sequence[tuple[str | None, int]],
    dry_run: bool,
    yes: bool,
    as_json: bool,
    nameserver: str | None,
) -> None:
    from rockhopper.client.admin.admin_groups import sum_moves

    async with list_reachable(nameserver, changes=not dry_run) as admin:
        await admin.groups.lag(name)  # raises an error if no broker knows the group
        queues = None
        if wanted:
            queues = select_queues((await admin.route(topic)).read_queues, wanted, topic)
        moves = await admin.groups.plan_reset(name, topic, target, queues=queues)
        if not dry_run:
            moving = sum_moves(moves).queue_count
            question = f"Move {name} in {moving} of {len(moves)} queues of {topic}?"
            if not yes and may_ask():
                _print_moves(moves, as_json=False, title="WOULD BE")
                _print_sum(moves, target)
            confirm(question, yes)
            moves = await admin.groups.reset_offsets(name, topic, target, queues=queues)
    _print_moves(moves, as_json=as_json, title="WOULD BE" if dry_run else "AFTER")
    if not as_json:
        _print_sum(moves, target)


def _print_sum(moves: "Sequence[OffsetMove]", target: "Target") -> None:
    from rockhopper.client.admin.admin_groups import describe_target, sum_moves

    sums = sum_moves(moves)
    again = f"{format_count(sums.again, 'message')} consumed again"
    skipped = f"{format_count(sums.skipped, 'message')} skipped"
    write_line(f"to {describe_target(target)}: {again}, {skipped}")


def _print_moves(moves: "Sequence[OffsetMove]", *, as_json: bool, title: str) -> None:
    rows = []
    for move in moves:
        queue = move.queue
        if as_json:
            write_json(
                {
                    "topic": queue.topic,
                    "broker": queue.broker_name,
                    "queue": queue.queue_id,
                    "before": move.before,
                    "after": move.after,
                }
            )
        change = "-" if move.before is None else f"{move.after - move.before:+,}"
        before = "-" if move.before is None else move.before
        rows.append((queue.topic, queue.broker_name, queue.queue_id, before, move.after, change))
    if not as_json:
        print_table(("TOPIC", "BROKER", "QUEUE", "BEFORE", title, "MOVED"), rows)


@group.command()
@click.argument("name", type=GROUP, metavar="GROUP")
@click.option("--offsets", "with_offsets", is_flag=True, help="Delete its committed offsets, too.")
@click.option("--retry-topic", "with_retry", is_flag=True, help="Delete %RETRY%GROUP, too.")
@click.option("--dead-letters", "with_dead", is_flag=True, help="Delete %DLQ%GROUP, too.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@nameserver_option
def delete(name: str, with_offsets: bool, with_retry: bool, with_dead: bool, yes: bool) -> None:
    """Delete the settings of GROUP on every broker, and the data that the options name."""
    run(_delete(name, with_offsets, with_retry, with_dead, yes, choose_nameserver()))


async def _delete(
    name: str,
    with_offsets: bool,
    with_retry: bool,
    with_dead: bool,
    yes: bool,
    nameserver: str | None,
) -> None:
    async with list_reachable(nameserver, changes=True) as admin:
        state = await admin.groups.state(name)
        doomed = [
            name,
            *["its offsets"] * with_offsets,
            *["its retry topic"] * with_retry,
            *["its dead letters"] * with_dead,
        ]
        what = ", ".join(doomed)
        if state.members:
            write_note(
                f"rockhopper: {len(state.members)} of its members are online: a broker that "
                "creates groups on first use creates it again"
            )
        confirm(f"Delete {what}?", yes)
        targets = await admin.groups.delete(
            name,
            with_offsets=with_offsets,
            with_retry_topic=with_retry,
            with_dead_letters=with_dead,
        )
    for target in targets:
        write_line(f"deleted {what} on {target.name} ({target.address})")
