"""The command: its table, and when it fails."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.house import __main__ as command
from tests.house import traces
from tests.house.figures import Figure

FIGURES = [
    Figure("complex", "complex functions", 5, ("a.py:1 f", "b.py:2 g")),
    Figure("lines", "lines of code", 70),
]


@pytest.fixture
def bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "bounds.toml"
    path.write_text('[complex]\nbefore = 9\nbound = 5\nreach = 2\nraised = "0099"\n')
    monkeypatch.setattr(command, "BOUNDS", path)
    monkeypatch.setattr(command, "measure", lambda *_: FIGURES)
    monkeypatch.setattr(traces, "run", lambda _: ({}, {}))
    return path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command.main, arguments)


def test_a_figure_on_its_bound_passes_and_one_without_a_row_is_reported(bounds: Path) -> None:
    result = run()
    rows = [line.split() for line in result.output.splitlines()]
    assert result.exit_code == 0
    assert rows[1] == ["complex", "complex", "functions", "9", "5", "5", "2"]
    assert rows[2] == ["lines", "lines", "of", "code", "-", "70", "-", "-"]
    assert [row[0] for row in rows[3:]] == ["redelivered", "bench", "mutants"]


def test_a_figure_over_its_bound_fails_and_says_how_to_see_the_places(bounds: Path) -> None:
    bounds.write_text("[complex]\nbound = 4\n")
    result = run()
    assert result.exit_code == 1
    assert "the bound is 4: python -m tests.house --show complex" in result.output


def test_the_places_of_one_figure_are_shown(bounds: Path) -> None:
    assert run("--show", "complex").output == "a.py:1 f\nb.py:2 g\n"
    assert "there are complex, lines" in run("--show", "other").output


def test_a_row_without_a_figure_fails(bounds: Path) -> None:
    bounds.write_text("[renamed]\nbound = 4\n")
    result = run()
    assert result.exit_code == 1
    assert "no figure is called renamed" in result.output


def test_better_figures_become_bounds(bounds: Path) -> None:
    bounds.write_text(
        '[complex]\nbound = 9\nraised = "0099"\nmore_is_better = false\n\n[lines]\nbefore = 7.5\n'
    )
    assert run("--tighten").exit_code == 0
    assert bounds.read_text() == (
        '[complex]\nbound = 5\nraised = "0099"\nmore_is_better = false\n\n[lines]\nbefore = 7.5\n'
    )
