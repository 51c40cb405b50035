"""`rockhopper top`: a live view of topics by their rates, and of groups by their lag."""

import asyncio
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from rockhopper.client.commands.output import (
    find_terminal_width,
    format_count,
    format_seconds,
    write_json,
)
from rockhopper.client.commands.running import (
    choose_nameserver,
    get_context_in_use,
    nameserver_option,
    report,
    run,
)
from rockhopper.client.commands.screen.fitting import cut, fit_table
from rockhopper.client.commands.screen.keyboard import HAS_KEYS, Keyboard
from rockhopper.client.commands.screen.rates import Flow, Sample
from rockhopper.client.commands.screen.watching import get_option, interval_option
from rockhopper.client.commands.shell.reachable_brokers import (
    Away,
    leave_out_unreachable,
    make_unreachable_brokers,
)
from rockhopper.client.printable import make_printable

if TYPE_CHECKING:
    from rockhopper.client.admin.admin import Admin
    from rockhopper.client.admin.unreachable_brokers import UnreachableBrokers

SORTS = ("in", "out", "lag", "name")
_KEYS = {"i": "in", "o": "out", "l": "lag", "n": "name"}
_TOPIC_COLUMNS = ("TOPIC", "IN/S", "OUT/S", "SENT", "GROUPS")
_GROUP_COLUMNS = ("GROUP", "LAG", "OLDEST", "GROWS/S", "OUT/S", "MEMBERS", "TOPICS")
_HELP = "i in  o out  l lag  n name  ↑↓ scroll  space pause  q quit"
_ROWS_WITHOUT_TERMINAL = 20
# Pause ten times as long as a query took, so watching costs a broker a tenth of its time at most.
_REST_TIMES = 10
# Query the age of the oldest message only for this many groups, those with the largest lag.
_AGES_MAX = 32
_ENTER, _LEAVE = b"\x1b[?1049h\x1b[?25l", b"\x1b[?25h\x1b[?1049l"


@dataclass
class _TopView:
    """The state of the view, which keys change."""

    sort: str
    as_json: bool
    row_count: int | None
    with_system: bool
    first: int = 0
    is_paused: bool = False


@click.command()
@click.option(
    "--sort",
    type=click.Choice(SORTS),
    default="in",
    show_default=True,
    help="Sort order; keys i, o, l and n change it.",
)
@interval_option
@click.option("--once", is_flag=True, help="Measure for one interval, print the result and exit.")
@click.option(
    "--rows",
    "row_count",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of topics and groups; default: as many as fit, 20 without a terminal.",
)
@click.option("--all", "-a", "is_all", is_flag=True, help="Also the system's own.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per interval.")
@nameserver_option
def top(sort: str, once: bool, row_count: int | None, is_all: bool, as_json: bool) -> None:
    """Show the rates of topics live, and which groups are behind.

    \b
    Examples:
      rockhopper top
      rockhopper top --sort lag --interval 5
      rockhopper top --once --json | jq '.groups[] | select(.lag > 1000)'
    """  # noqa: D301  click's mark for a paragraph that stays as it is
    is_live = HAS_KEYS and sys.stdout.isatty() and sys.stdin.isatty() and not once and not as_json
    view = _TopView(sort, as_json, row_count, is_all)
    show = _run_live if is_live else _print
    run(show(view, get_option("interval"), once, choose_nameserver()))


async def _print(view: _TopView, interval_s: float, once: bool, names: str | None) -> None:
    """Print one report per interval; continue after a temporary outage of a broker."""
    from rockhopper.client.admin.admin import Admin
    from rockhopper.client.errors import ClientError

    async with Admin(names) as admin:
        unreachable, told = make_unreachable_brokers(), Away()
        before, away = await _sample(admin, unreachable, view)
        is_first = True
        while True:
            if away.names != told.names:
                away.tell()
                told = away
            await asyncio.sleep(_rest_s(before, interval_s))
            try:
                sample, away = await _sample(admin, unreachable, view)
            except ClientError as error:
                if once:
                    raise
                report(error)
                continue
            flow, before = sample.since(before), sample
            if view.as_json:
                write_json(_json(flow))
            else:
                _print_report(flow, view, is_first=is_first)
            sys.stdout.buffer.flush()
            is_first = False
            if once:
                return


def _print_report(flow: Flow, view: _TopView, *, is_first: bool) -> None:
    width = find_terminal_width()
    rows = view.row_count or _ROWS_WITHOUT_TERMINAL
    lines = [] if is_first else [""]
    lines += [_head(flow), *_topics(flow, view, rows, width), ""]
    lines += _groups(flow, view, rows, width)
    sys.stdout.buffer.write("".join(f"{line}\n" for line in lines).encode())


async def _run_live(view: _TopView, interval_s: float, _once: bool, names: str | None) -> None:
    """Update the screen in place until q or Ctrl-C; continue after an outage of a broker."""
    from rockhopper.client.admin.admin import Admin
    from rockhopper.client.errors import ClientError

    async with Admin(names) as admin:
        unreachable = make_unreachable_brokers()
        before, away = await _sample(admin, unreachable, view)
        flow, problem = before.since(before), away.said
        with Keyboard() as keyboard:
            sys.stdout.buffer.write(_ENTER)
            try:
                next_s = time.monotonic() + min(1.0, interval_s)
                while True:
                    _draw(_format_screen(flow, view, interval_s, problem))
                    key = await keyboard.key(next_s - time.monotonic())
                    if key is not None:
                        if not _obey(key, view):
                            return
                        continue
                    try:
                        if not view.is_paused:
                            sample, away = await _sample(admin, unreachable, view)
                            flow, before, problem = sample.since(before), sample, away.said
                    except ClientError as error:
                        problem = str(error)
                    next_s = time.monotonic() + _rest_s(before, interval_s)
            finally:
                sys.stdout.buffer.write(_LEAVE)
                sys.stdout.buffer.flush()


async def _sample(
    admin: "Admin", unreachable: "UnreachableBrokers", view: _TopView
) -> tuple[Sample, Away]:
    from rockhopper.client.admin.topic_stats import find_oldest_of_groups

    away = await leave_out_unreachable(admin, unreachable)
    begun_s = time.monotonic()
    figures, brokers = await asyncio.gather(admin.figures.read(), admin.brokers())
    now_s = time.monotonic()
    sample = Sample.from_figures(
        figures,
        brokers,
        # Brokers take their counts about halfway through the query.
        at_s=(begun_s + now_s) / 2,
        took_s=now_s - begun_s,
        with_system=view.with_system,
    )
    behind = [each for each in sample.groups.values() if each.lag > 0]
    furthest = sorted(behind, key=lambda each: -each.lag)[:_AGES_MAX]
    ages_s = await find_oldest_of_groups(admin, [each.name for each in furthest])
    return sample._replace(ages_s=ages_s, took_s=time.monotonic() - begun_s), away


def _rest_s(sample: Sample, interval_s: float) -> float:
    return max(interval_s - sample.took_s, sample.took_s * _REST_TIMES)


def _obey(key: str, view: _TopView) -> bool:
    """Handle a key; return False to end."""
    if key in ("q", "Q", "\x1b"):
        return False
    if key in _KEYS:
        view.sort, view.first = _KEYS[key], 0
    elif key == " ":
        view.is_paused = not view.is_paused
    elif key in ("down", "j"):
        view.first += 1
    elif key in ("up", "k"):
        view.first = max(view.first - 1, 0)
    elif key == "page down":
        view.first += 20
    elif key == "page up":
        view.first = max(view.first - 20, 0)
    return True


def _format_screen(flow: Flow, view: _TopView, interval_s: float, problem: str) -> list[str]:
    """Return the lines of the full screen: topics above, groups below."""
    size = shutil.get_terminal_size()
    room = max(size.lines - 6, 4)
    group_room = min(len(flow.groups), room // 2)
    topic_room = min(len(flow.topics), room - group_room)
    group_room = room - topic_room
    if view.row_count is not None:
        topic_room, group_room = (min(each, view.row_count) for each in (topic_room, group_room))
    # Scrolling ends when the last topic or group is visible.
    longest = max(len(flow.topics) - topic_room, len(flow.groups) - group_room, 0)
    view.first = min(view.first, longest)
    state = problem or ("paused" if view.is_paused else f"every {interval_s:g} s")
    lines = [cut(_head(flow), size.columns)]
    lines.append(cut(f"by {view.sort}   {state}   {_HELP}", size.columns))
    lines += ["", *_topics(flow, view, topic_room, size.columns)]
    lines += ["", *_groups(flow, view, group_room, size.columns)]
    return lines[: size.lines]


def _draw(lines: list[str]) -> None:
    shown = "\x1b[K\r\n".join(lines)
    sys.stdout.buffer.write(f"\x1b[H{shown}\x1b[K\x1b[J".encode())
    sys.stdout.buffer.flush()


def _head(flow: Flow) -> str:
    brokers = format_count(flow.broker_count, "broker")
    name = get_context_in_use()
    where = "" if name is None else f" [{name}]"
    return (
        f"rockhopper top{where}   {datetime.now():%H:%M:%S}   {brokers}   "
        f"in {_rate(flow.in_per_s)}/s   out {_rate(flow.out_per_s)}/s   {flow.lag:,} behind"
    )


def _topics(flow: Flow, view: _TopView, count: int, width: int | None) -> list[str]:
    orders: dict[str, Callable[[Any], Any]] = {
        "in": lambda each: (-each.in_per_s, -each.sent, each.name),
        "out": lambda each: (-each.out_per_s, -each.sent, each.name),
        "name": lambda each: each.name,
    }
    # Only groups have a lag; when groups are sorted by it, topics are sorted by "in".
    ordered = sorted(flow.topics, key=orders.get(view.sort, orders["in"]))
    rows = [
        (
            make_printable(each.name),
            _rate(each.in_per_s),
            _rate(each.out_per_s),
            f"{each.sent:,}",
            f"{len(each.groups):,}",
        )
        for each in _select_shown(ordered, view, count)
    ]
    return _table(_TOPIC_COLUMNS, rows, width)


def _groups(flow: Flow, view: _TopView, count: int, width: int | None) -> list[str]:
    orders: dict[str, Callable[[Any], Any]] = {
        "out": lambda each: (-each.out_per_s, -(each.lag or 0), each.name),
        "name": lambda each: each.name,
        "lag": lambda each: (-(each.lag or 0), -each.out_per_s, each.name),
    }
    ordered = sorted(flow.groups, key=orders.get(view.sort, orders["lag"]))
    rows = [
        (
            make_printable(each.name),
            "-" if each.lag is None else f"{each.lag:,}",
            format_seconds(each.oldest_s),
            "-" if each.grows_per_s is None else f"{each.grows_per_s:+,.0f}",
            _rate(each.out_per_s),
            f"{each.members:,}",
            make_printable(", ".join(each.topics) or "-"),
        )
        for each in _select_shown(ordered, view, count)
    ]
    return _table(_GROUP_COLUMNS, rows, width)


def _select_shown(ordered: list[Any], view: _TopView, count: int) -> list[Any]:
    first = min(view.first, max(len(ordered) - count, 0))
    return ordered[first : first + count]


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    head, lines = fit_table(columns, rows, width)
    return [*(head if width is None else [f"\x1b[1m{line}\x1b[0m" for line in head]), *lines]


def _rate(per_s: float) -> str:
    return f"{per_s:,.1f}" if per_s < 10 else f"{per_s:,.0f}"


def _json(flow: Flow) -> dict[str, Any]:
    return {
        "time": round(time.time() * 1000),
        "seconds": round(flow.seconds, 3),
        "brokers": flow.broker_count,
        "inPerSecond": round(flow.in_per_s, 3),
        "outPerSecond": round(flow.out_per_s, 3),
        "lag": flow.lag,
        "topics": [
            {
                "topic": each.name,
                "inPerSecond": round(each.in_per_s, 3),
                "outPerSecond": round(each.out_per_s, 3),
                "sent": each.sent,
                "groups": each.groups,
            }
            for each in flow.topics
        ],
        "groups": [
            {
                "group": each.name,
                "lag": each.lag,
                "lagSeconds": each.oldest_s,
                "lagPerSecond": None if each.grows_per_s is None else round(each.grows_per_s, 3),
                "outPerSecond": round(each.out_per_s, 3),
                "members": each.members,
                "topics": each.topics,
            }
            for each in flow.groups
        ],
    }
