"""What counts as a change between two runs."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import compare, results
from tests.support.bench_runs import ORIGIN, run_of


@pytest.mark.parametrize(
    ("before", "after", "share"),
    [
        ([1.0, 1.1, 1.2], [1.2, 1.25, 1.3], 0.0),  # the medians are nearer than the rounds
        ([1.0, 1.1, 1.2], [1.4, 1.45, 1.5], 0.318),
        ([1.0, 1.0, 1.0], [1.02, 1.02, 1.02], 0.0),  # too little to tell, however still it is
        ([1.0, 1.0, 1.0], [0.9, 0.9, 0.9], -0.1),
        ([1.0], [1.09], 0.0),
        ([1.0], [1.2], 0.2),
    ],
)
def test_a_change_is_larger_than_the_rounds_lie_apart(
    before: list[float], after: list[float], share: float
) -> None:
    assert compare.change(before, after) == pytest.approx(share, abs=1e-3)


def test_less_cpu_is_better_and_fewer_messages_are_worse() -> None:
    told = compare.render(
        run_of([400.0, 404.0, 396.0], [2.0, 2.0, 2.0]), run_of([300.0, 303.0, 297.0])
    )
    (row,) = [line for line in told.splitlines() if line.startswith("| single sends ")]
    assert "0.400 -> 0.300 -25% WORSE" in row
    assert "2.000 -> 1.000 -50% better" in row


def test_what_did_not_change_is_equal() -> None:
    run = run_of([400.0, 404.0, 396.0])
    assert "0.400 -> 0.400 =" in compare.render(run, run)


def test_only_cases_of_both_runs_are_compared() -> None:
    one, other = run_of([1.0, 1.0]), run_of([1.0, 1.0], case="batch")
    assert compare.render(one, other) == "The two runs have no case in common."


def test_other_machines_and_single_rounds_are_told() -> None:
    one = run_of([400.0])
    other = run_of([400.0, 400.0], origin=replace(ORIGIN, cpu_model="Another"))
    told = compare.render(one, other)
    assert "A has cases of one quiet round" in told
    assert "B has cases of one quiet round" not in told
    assert "different machines" in told


def test_two_names_are_wanted_and_must_be_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare.main([]) == 2
    assert compare.main(["2026-11-20", "no-such-run"]) == 2
    assert "no-such-run" in capsys.readouterr().err


def test_kept_runs_are_found_by_name_and_by_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.json"
    path.write_text(results.as_json(run_of([400.0, 400.0])))
    assert compare.main(["2026-11-20", str(path)]) == 0
    assert "single sends" in capsys.readouterr().out
