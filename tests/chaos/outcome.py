"""Outcome: the result of one round of a fault; a file of outcomes; the table of all.

The file has one line of JSON per outcome, written as outcomes arrive. An interrupted long run
therefore continues where it stopped:

    {"fault": …, "variant": …, "seed": …, "rounds": …, "acknowledged": …, "lost": …,
     "repeated": …, "wrong": …, "window_ms": …, "recovery_s": …, "complaints": […], "note": …}
"""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from tests.chaos.verdict import EXAMPLES, Verdict, describe


class Outcome(msgspec.Struct, kw_only=True):
    """One round, or several that were judged together."""

    fault: str
    """The fault's name on the command line."""
    variant: str
    """The line of the table to which the outcome belongs."""
    seed: int
    rounds: int = 1
    acknowledged: int = 0
    lost: int = 0
    repeated: int = 0
    wrong: int = 0
    window_ms: float = 0.0
    """The age of the oldest message that the fault lost or repeated, or the longest wait."""
    recovery_s: float = 0.0
    """The duration of the longest start after the fault."""
    complaints: list[str] = []
    """The reasons why the round failed."""
    note: str = ""

    @property
    def is_good(self) -> bool:
        """Whether every promise was kept."""
        return not self.complaints


def outcome_of(
    fault: str,
    seed: int,
    verdict: Verdict,
    *,
    variant: str = "",
    may_lose: bool = False,
    may_repeat: bool = True,
) -> Outcome:
    """Return a verdict's outcome; losses and repeats are complaints unless they are allowed."""
    complaints = list(verdict.wrong)
    if verdict.lost and not may_lose:
        names = ", ".join(describe(fact) for fact in verdict.lost[:EXAMPLES])
        complaints.append(f"lost: {names}{_more(len(verdict.lost))}")
    if verdict.repeated and not may_repeat:
        names = ", ".join(describe(fact) for fact, _ in verdict.repeated[:EXAMPLES])
        complaints.append(f"repeated: {names}{_more(len(verdict.repeated))}")
    return Outcome(
        fault=fault,
        variant=variant or fault,
        seed=seed,
        acknowledged=verdict.acknowledged,
        lost=len(verdict.lost),
        repeated=len(verdict.repeated),
        wrong=len(verdict.wrong),
        complaints=complaints,
    )


def _more(count: int) -> str:
    return f" and {count - EXAMPLES} more" if count > EXAMPLES else ""


class ResultsFile:
    """Outcomes in a file, or only in memory if there is no path."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.outcomes: list[Outcome] = []
        if path is not None and path.exists():
            self.outcomes = _read(path)

    def add(self, outcome: Outcome) -> None:
        """Append an outcome."""
        self.outcomes.append(outcome)
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(outcome) + b"\n")

    def rounds(self, fault: str) -> int:
        """Return the number of rounds of a fault so far."""
        return sum(one.rounds for one in self.outcomes if one.fault == fault)

    def next_seed(self, fault: str, first: int) -> int:
        """Return the seed of the next round."""
        return max((one.seed + 1 for one in self.outcomes if one.fault == fault), default=first)


def _read(path: Path) -> list[Outcome]:
    outcomes = []
    for line in path.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):  # the last line may be incomplete
            outcomes.append(msgspec.json.decode(line, type=Outcome))
    whole = b"".join(msgspec.json.encode(one) + b"\n" for one in outcomes)
    if whole != path.read_bytes():
        path.write_bytes(whole)
    return outcomes


def print_table(
    outcomes: Iterable[Outcome], skipped: dict[str, str], console: Console | None = None
) -> None:
    """Print one line for each fault."""
    table = Table(title="make chaos", title_justify="left")
    table.add_column("fault")
    for name in ("rounds", "acknowledged", "lost", "repeated", "wrong"):
        table.add_column(name, justify="right")
    table.add_column("worst window", justify="right")
    table.add_column("longest recovery", justify="right")
    table.add_column("")
    of_fault = defaultdict[str, list[Outcome]](list)
    for outcome in outcomes:
        of_fault[outcome.variant].append(outcome)
    for fault, ones in of_fault.items():
        bad = sum(not one.is_good for one in ones)
        table.add_row(
            fault,
            f"{sum(one.rounds for one in ones):,}",
            *(
                f"{sum(getattr(one, name) for one in ones):,}"
                for name in ("acknowledged", "lost", "repeated", "wrong")
            ),
            f"{max(one.window_ms for one in ones):,.0f} ms",
            f"{max(one.recovery_s for one in ones):.1f} s",
            f"[bold red]{bad} failed[/]" if bad else "[green]kept[/]",
        )
    for fault, reason in skipped.items():
        table.add_row(fault, *["–"] * 7, f"[yellow]skipped: {reason}[/]")
    (console or Console()).print(table)
