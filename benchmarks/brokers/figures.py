"""The figures that we want to reach, with those of every broker of the same run: one table.

A target is a ratio to the bare echo of the same shape or to Apache RocketMQ in the same run, or an
absolute figure of one machine. What other commands measure is named, so that no row is missing.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.brokers.clients.client import (
    BATCHES,
    CATCH_UP,
    EACH,
    GATHERED,
    IN_BATCHES,
    LIVE,
    MANY,
)
from benchmarks.brokers.results import (
    ECHO,
    OURS,
    Comparison,
    cell,
    middle_of,
)
from benchmarks.load import Sample
from benchmarks.report import table
from benchmarks.results import cpu_us, median, rate

APACHE = "Apache RocketMQ"
SIZE_BYTES = 128
LIBRARIES = "an interpreter with our libraries"
LISTENING = "start to listening"
"""The names of two starts among the times of commands: the second is our broker's."""
MISSING = "–"


@dataclass(frozen=True, slots=True)
class Goal:
    """One bound of a figure of ours."""

    what: str
    """In words: k/s of the echo, CPU of Apache's, us."""
    limit: float
    find: Callable[[Comparison], float | None]
    """Return our figure; None if the run does not have it."""
    at_most: bool = False

    def text(self) -> str:
        """Return the bound for people."""
        return f"{'<=' if self.at_most else '>='} {self.limit:g} {self.what}"

    def judge(self, found: Comparison) -> tuple[float, bool] | None:
        """Return our figure, and whether it is good enough."""
        value = self.find(found)
        if value is None:
            return None
        return value, value <= self.limit if self.at_most else value >= self.limit


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the table."""

    title: str
    goals: tuple[Goal, ...]
    show: Callable[[Comparison, str], str]
    """Return the cell of a broker, empty if there is none."""
    command: str | None = None
    """The command that measures it, if this one does not."""


def _middle(values: Sequence[float] | None) -> float | None:
    return statistics.median(values) if values else None


def _of(found: Comparison, name: str, shape: str) -> list[Sample]:
    return found.of(name, cell(SIZE_BYTES, shape))


def _over(
    shape: str, other: str, value: Callable[[list[Sample]], float]
) -> Callable[[Comparison], float | None]:
    """Return a function for our figure over another broker's."""

    def find(found: Comparison) -> float | None:
        ours, theirs = _of(found, OURS, shape), _of(found, other, shape)
        return value(ours) / value(theirs) if ours and theirs and value(theirs) else None

    return find


def _of_echo(shape: str, limit: float) -> Goal:
    return Goal("of echo", limit, _over(shape, ECHO, rate))


def _of_apache(shape: str, limit: float) -> Goal:
    return Goal("of Apache's k/s", limit, _over(shape, APACHE, rate))


def _of_apache_cpu(shape: str, limit: float) -> Goal:
    return Goal("of Apache's CPU", limit, _over(shape, APACHE, cpu_us), at_most=True)


def _above_echo_us(found: Comparison) -> float | None:
    ours, echo = _of(found, OURS, "1x1"), _of(found, ECHO, "1x1")
    return _p50_us(ours) - _p50_us(echo) if ours and echo else None


def _beside_idle(found: Comparison) -> float | None:
    with_idle, without = _of(found, OURS, "idle"), _of(found, OURS, "4x64")
    return rate(with_idle) / rate(without) if with_idle and without else None


def _p50_us(samples: list[Sample]) -> float:
    return median(samples, lambda sample: sample.p50_us)


def _native(shape: str) -> Callable[[Comparison, str], str]:
    def show(found: Comparison, name: str) -> str:
        samples = _of(found, name, shape)
        if not samples:
            return ""
        return f"{rate(samples) / 1000:,.1f} k/s, {cpu_us(samples):.1f} us"

    return show


def _show_alone(found: Comparison, name: str) -> str:
    samples = _of(found, name, "1x1")
    return f"{_p50_us(samples):.0f} us" if samples else ""


def _send(title: str, shape: str, *goals: Goal) -> Figure:
    return Figure(title, goals, _native(shape))


def _client(way: str, name: str) -> Callable[[Comparison], float | None]:
    """Return a function for a figure of our client on our broker."""

    def find(found: Comparison) -> float | None:
        for entry in found.clients:
            samples = found.client_samples.get(entry.name, {}).get(way)
            if entry.broker == OURS and samples:
                return middle_of(samples, name)
        return None

    return find


def _python(title: str, way: str, k_per_s: float | None = None, us: float | None = None) -> Figure:
    goals = []
    if k_per_s is not None:
        find_rate = _client(way, "messages_per_s")
        goals.append(Goal("k/s", k_per_s, lambda found: _in(1000, find_rate(found))))
    if us is not None:
        goals.append(Goal("us", us, _client(way, "client_us"), at_most=True))
    return Figure(title, tuple(goals), _python_cell(way))


def _in(unit: float, value: float | None) -> float | None:
    return None if value is None else value / unit


def _python_cell(way: str) -> Callable[[Comparison, str], str]:
    def show(found: Comparison, name: str) -> str:
        texts = {}
        for entry in found.clients:
            samples = found.client_samples.get(entry.name, {}).get(way)
            if entry.broker != name or not samples:
                continue
            first = f"{middle_of(samples, 'messages_per_s') / 1000:,.0f} k/s"
            if way == LIVE:
                first = f"{middle_of(samples, 'p50_us') / 1000:.2f} ms"
            elif way == CATCH_UP:
                first = f"{2e6 / middle_of(samples, 'messages_per_s'):.1f} s"
            text = f"{first}, {middle_of(samples, 'client_us'):.2f} us"
            texts[entry.library] = text
        if len(texts) == 1:
            return next(iter(texts.values()))
        return "; ".join(f"{library} {text}" for library, text in texts.items())

    return show


def _start_ratio(found: Comparison) -> float | None:
    start, base = (_middle(found.command_s.get(each)) for each in (LISTENING, LIBRARIES))
    return start / base if start and base else None


def _show_process(found: Comparison, name: str) -> str:
    start, idle = _middle(found.start_s.get(name)), _middle(found.idle_mb.get(name))
    return f"{start:.2f} s, {idle:,.0f} MB" if start and idle else ""


def _command(title: str, words: str, limit: float) -> Figure:
    def find(found: Comparison) -> float | None:
        return _middle(found.command_s.get(words))

    def show(found: Comparison, name: str) -> str:
        value = find(found)
        return f"{value:.3f} s" if name == OURS and value else ""

    return Figure(title, (Goal("s", limit, find, at_most=True),), show)


def _elsewhere(title: str, to_reach: str, command: str) -> Figure:
    goal = Goal(to_reach, 0, lambda found: None)
    return Figure(title, (goal,), lambda found, name: "", command)


VERSION, HELP, LIST = "--version", "--help", "topic list"
FIGURES = (
    _send(
        "100 connections, one send each", "100x1", _of_echo("100x1", 0.42), _of_apache("100x1", 2.5)
    ),
    _send("1,000 connections, one send each", "1000x1", _of_echo("1000x1", 0.38)),
    _send("5,000 connections, one send each", "5000x1", _of_echo("5000x1", 0.38)),
    _send("16 connections, one send each", "16x1", _of_echo("16x1", 0.33)),
    _send("4 connections, one send each", "4x1"),
    Figure(
        "one connection, one send: p50",
        (Goal("us above echo", 12, _above_echo_us, at_most=True),),
        _show_alone,
    ),
    _send("4 connections, 64 sends each", "4x64"),
    _send("4 x 64 beside 1,000 idle connections", "idle", Goal("of without", 0.9, _beside_idle)),
    _send("batches of 32", "batch"),
    _send("pulls of 32", "pull"),
    _send(
        "parked pulls of one, and their sends",
        "longpull",
        _of_apache("longpull", 3),
        _of_apache_cpu("longpull", 0.2),
    ),
    _send("pops of 32, each acknowledged", "pop", _of_apache("pop", 3)),
    _send("half messages, committed", "half", _of_apache("half", 3)),
    Figure(
        "Python, end to end at 1,000/s: p50",
        (
            Goal("ms", 0.3, lambda found: _in(1000, _client(LIVE, "p50_us")(found)), at_most=True),
            Goal("us", 110, _client(LIVE, "client_us"), at_most=True),
        ),
        _python_cell(LIVE),
    ),
    _python("Python, consume in batches of 500", IN_BATCHES, 800, 1.2),
    _python("Python, consume one by one", EACH, 600, 1.6),
    _python("Python, batches of 1,000 sends", BATCHES, 600, 1.5),
    _python("Python, 1,000 sends gathered", GATHERED, 100),
    _python("Python, 1,000 sends in a list, a receipt each", MANY, 300),
    Figure(
        "Python, catch-up: time for 2 million of 1 KiB",
        (
            Goal(
                "s",
                5,
                lambda found: (
                    2e6 / value if (value := _client(CATCH_UP, "messages_per_s")(found)) else None
                ),
                at_most=True,
            ),
        ),
        _python_cell(CATCH_UP),
    ),
    Figure(
        "start to a first send; idle memory",
        (
            Goal("start to listening / libraries imported", 2.5, _start_ratio, at_most=True),
            Goal("MB", 38, lambda found: _middle(found.idle_mb.get(OURS)), at_most=True),
        ),
        _show_process,
    ),
    _command("command line: --version", VERSION, 0.06),
    _command("command line: --help", HELP, 0.06),
    _command("command line: a command", LIST, 0.15),
    _elsewhere("gRPC beside Apache's proxy, CPU", "<= 0.3 each", "make bench-grpc"),
    _elsewhere("clean stop with 40,000 new queues", "<= 2 s", "make bench-queues"),
    _elsewhere("open with 40,000 queues: clean; killed", "<= 0.5 s; <= 2 s", "make bench-queues"),
    _elsewhere("first send to a new queue", "<= 60 us in the loop", "make bench-queues"),
    _elsewhere("10,000 topics: CPU of a send", "<= 1.5 of one topic's", "make bench-queues"),
    _elsewhere("signed requests, users and rules on", ">= 0.5 of open", "make bench"),
)


def _judged(figure: Figure, found: Comparison) -> Iterator[str]:
    for goal in figure.goals:
        judged = goal.judge(found)
        if judged is not None:
            value, is_reached = judged
            yield f"{value:.3g} {'ok' if is_reached else 'ABOVE' if goal.at_most else 'BELOW'}"


def _texts(figure: Figure) -> str:
    if figure.command is not None:
        return figure.goals[0].what
    return "; ".join(goal.text() for goal in figure.goals)


def _names(found: Comparison) -> list[str]:
    """Return the brokers of the table's columns: ours, the echo, then the others."""
    others = [each.name for each in found.entries if each.is_default and each.name != OURS]
    return [OURS, ECHO, *others]


def render(found: Comparison) -> str:
    """Return the table; empty if a run measured none of the Python clients, as earlier ones."""
    if not found.clients:
        return ""
    names = _names(found)
    rows = [["figure", "to reach", "reached", *names]]
    for figure in FIGURES:
        reached = "; ".join(_judged(figure, found))
        if figure.command is not None:
            reached = f"see `{figure.command}`"
        cells = [figure.show(found, name) or MISSING for name in names]
        rows.append([figure.title, _texts(figure) or MISSING, reached or MISSING, *cells])
    return table(rows)


def as_documents(found: Comparison) -> list[dict[str, object]]:
    """Return the rows of the table, for programs."""
    return [
        {
            "figure": figure.title,
            "to_reach": _texts(figure),
            "reached": list(_judged(figure, found)),
            "by": figure.command,
            "brokers": {name: text for name in _names(found) if (text := figure.show(found, name))},
        }
        for figure in FIGURES
    ]
