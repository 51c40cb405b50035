"""`--watch`: repeats a list, on a terminal in place."""

import asyncio
import io
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import redirect_stderr, redirect_stdout
from datetime import datetime
from typing import Any, TypeVar

import click

from rockhopper.client.commands.running import Failure, get_context_in_use, run
from rockhopper.client.commands.screen.fitting import cut
from rockhopper.client.printable import make_printable

INTERVAL_S = 2.0
INTERVAL_S_MIN = 0.2
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"

_Command = TypeVar("_Command", bound=Callable[..., Any])
Show = Callable[[], Awaitable[None]]


def watch_options(command: _Command) -> _Command:
    """Add --watch and --interval to a command that ends with ``run_shown``."""
    for option in (interval_option, _watch_option):
        command = option(command)
    return command


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    context.meta[f"{__name__}.{parameter.name}"] = value


_watch_option = click.option(
    "--watch",
    "-w",
    is_flag=True,
    expose_value=False,
    callback=_keep,
    help="Repeat until Ctrl-C.",
)
interval_option = click.option(
    "--interval",
    type=click.FloatRange(min=INTERVAL_S_MIN),
    default=INTERVAL_S,
    metavar="SECONDS",
    expose_value=False,
    callback=_keep,
    help="Interval; 2 seconds by default.",
)


def get_option(name: str) -> Any:
    """Return the value of the option "watch" or "interval"."""
    return click.get_current_context().meta.get(f"{__name__}.{name}")


def run_shown(show: Show) -> None:
    """Run a list's output function once, or with --watch until Ctrl-C."""
    title = _format_title(click.get_current_context())
    run(
        show_repeatedly(show, get_option("interval"), title)
        if get_option("watch")
        else _show_once(show)
    )


def _format_title(context: click.Context) -> str:
    """Return the command with its arguments and the context in use."""
    names = [each.name or "" for each in context.command.params if isinstance(each, click.Argument)]
    values = [str(context.params[name]) for name in names if context.params.get(name)]
    cluster = [f"[{name}]"] if (name := get_context_in_use()) is not None else []
    return " ".join((*cluster, context.command_path, *values))


async def _show_once(show: Show) -> None:
    await show()


class _CapturedOutput(io.TextIOWrapper):
    """Replaces standard output and captures one output of a list."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)
        self._is_terminal = sys.stdout.isatty()

    def isatty(self) -> bool:
        return self._is_terminal

    def lines(self) -> list[str]:
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode().splitlines()


async def show_repeatedly(show: Show, interval_s: float, title: str = "") -> None:
    """Call *show* repeatedly; on a terminal, replace its previous output.

    Only an error of the first call is raised: a broker may return after an outage. If *show* takes
    long, the pause is as long.
    """
    from rockhopper.client.errors import ClientError

    is_first = True
    while True:
        begun_s = time.monotonic()
        page, problem = _CapturedOutput(), ""
        try:
            with redirect_stdout(page), redirect_stderr(page):
                await show()
        except (ClientError, Failure) as error:
            problem = str(error)
            if is_first and problem:
                raise
        # The output before an error, such as that of brokers that did answer, is shown too.
        lines = page.lines() + ([make_printable(f"rockhopper: {problem}")] if problem else [])
        draw(lines, title, interval_s, is_first=is_first)
        is_first = False
        took_s = time.monotonic() - begun_s
        await asyncio.sleep(max(interval_s - took_s, took_s))


def draw(lines: list[str], title: str, interval_s: float, *, is_first: bool) -> None:
    """Write *lines*; on a terminal from its top, as many as fit."""
    out = sys.stdout.buffer
    if not sys.stdout.isatty():
        out.write("".join(f"{line}\n" for line in lines).encode())
        out.flush()
        return
    import shutil  # see find_terminal_width

    size = shutil.get_terminal_size()
    room = max(size.lines - 2, 1)
    if len(lines) > room:
        hidden = len(lines) - room + 1
        lines = [*lines[: room - 1], f"… {hidden:,} more lines: make the terminal taller"]
    head = f"every {interval_s:g} s   {title}   {datetime.now():%H:%M:%S}   Ctrl-C exits"
    if is_first:
        # Scroll the previous content up, so that it can be scrolled back to.
        out.write(b"\n" * size.lines)
    shown = "\n".join(line + _REST_OF_LINE for line in (cut(head, size.columns), *lines))
    out.write(f"{_HOME}{shown}\n{_REST_OF_SCREEN}".encode())
    out.flush()
