"""Outcomes are kept as they come, gone on with, and shown as one table."""

import io
from pathlib import Path

from rich.console import Console

from tests.chaos.outcome import Outcome, ResultsFile, print_table


def outcome(seed: int, **changes: object) -> Outcome:
    return Outcome(**({"fault": "kill", "variant": "kill -9", "seed": seed, "rounds": 3} | changes))  # type: ignore[arg-type]


def test_a_run_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    path = tmp_path / "results"
    first = ResultsFile(path)
    assert first.next_seed("kill", 7) == 7
    first.add(outcome(7))
    first.add(outcome(8, complaints=["lost"]))
    path.write_bytes(path.read_bytes() + b'{"fault": "kill", "se')  # cut short by a kill
    second = ResultsFile(path)
    assert second.outcomes == first.outcomes
    assert (second.rounds("kill"), second.next_seed("kill", 7)) == (6, 9)
    assert second.rounds("power-cut") == 0
    second.add(outcome(9))
    assert ResultsFile(path).outcomes == second.outcomes


def test_the_table_has_a_line_for_each_fault_and_says_what_failed() -> None:
    console = Console(width=140, record=True, file=io.StringIO())
    outcomes = [
        outcome(1, acknowledged=1000, window_ms=20.4, recovery_s=0.5),
        outcome(2, acknowledged=234, lost=2, complaints=["lost"], recovery_s=1.25),
        outcome(1, fault="flood", variant="flood", repeated=4),
    ]
    print_table(outcomes, {"power-cut": "needs to be root"}, console)
    kill, flood, skipped = (
        line.split() for line in console.export_text().splitlines()[3:-1] if "│" in line
    )
    assert " ".join(kill) == "│ kill -9 │ 6 │ 1,234 │ 2 │ 0 │ 0 │ 20 ms │ 1.2 s │ 1 failed │"
    assert "kept" in flood
    assert "skipped: needs to be root" in " ".join(skipped)
