"""Bounds: one that gets easier to keep, or goes, is named by a decision."""

import subprocess
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.house.__main__ import is_worse

ROOT = Path(__file__).parents[3]
DECISIONS = ROOT / "docs/decisions"
FIRST_RECORD = DECISIONS / "0020-concepts-are-bounded.md"
BOUNDS = "tests/house/bounds.toml"
Row = dict[str, Any]


def git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def history() -> list[dict[str, Row]]:
    """The bounds since the first record, the oldest first; at the end those that are here now."""
    now = tomllib.loads((ROOT / BOUNDS).read_text())
    try:
        (first, *_) = git("log", "--diff-filter=A", "--format=%H", "--", str(FIRST_RECORD)).split()
        later = git("log", "--reverse", "--format=%H", f"{first}..HEAD", "--", BOUNDS).split()
    except (OSError, subprocess.CalledProcessError, ValueError):
        return [now]
    return [*(tomllib.loads(git("show", f"{each}:{BOUNDS}")) for each in (first, *later)), now]


def unrecorded(before: dict[str, Row], after: dict[str, Row], decisions: Path) -> list[str]:
    """The figures whose bound was raised or dropped without a decision that names them."""
    found = []
    for figure, old in before.items():
        row = after.get(figure, {})
        if "bound" not in old:
            continue
        if "bound" not in row:
            is_recorded = is_named(figure, "*", decisions)
        elif is_worse(row["bound"], old):
            record = row.get("raised")
            is_new = record is not None and record != old.get("raised")
            is_recorded = is_new and is_named(figure, f"{record}-*", decisions)
        else:
            continue
        if not is_recorded:
            found.append(figure)
    return found


def is_named(figure: str, pattern: str, decisions: Path) -> bool:
    """Whether a decision after the first, which names all figures, names this one."""
    return any(
        f"`{figure}`" in path.read_text()
        for path in decisions.glob(f"{pattern}.md")
        if path.name > FIRST_RECORD.name
    )


def test_no_bound_was_raised_or_dropped_without_a_decision() -> None:
    versions = history()
    found = [
        figure
        for before, after in pairwise(versions)
        for figure in unrecorded(before, after, DECISIONS)
    ]
    assert not found, (
        f"bounds were raised or dropped: {', '.join(found)}. Record why in docs/decisions, name "
        'each figure there in backticks, and set raised = "NNNN" in its row of bounds.toml'
    )


def test_the_first_record_defines_each_bounded_figure() -> None:
    rows = tomllib.loads((ROOT / BOUNDS).read_text())
    text = FIRST_RECORD.read_text()
    assert [name for name, row in rows.items() if "bound" in row and f"`{name}`" not in text] == []


def bounded(bound: int, **more: object) -> dict[str, Row]:
    return {"complex": {"bound": bound, "reach": 0, **more}}


REPORTED: dict[str, Row] = {"complex": {"before": 5}}


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (bounded(4), bounded(4), False),
        (bounded(4), bounded(3), False),
        (bounded(4), bounded(5), True),
        (bounded(4), bounded(5, raised="0099"), False),
        (bounded(4), bounded(5, raised="0098"), True),
        (bounded(4), bounded(5, raised="0097"), True),
        (bounded(4, raised="0099"), bounded(5, raised="0099"), True),
        (bounded(7, more_is_better=True), bounded(8, more_is_better=True), False),
        (bounded(7, more_is_better=True), bounded(6, more_is_better=True), True),
        (bounded(4), {}, False),
        (bounded(4), REPORTED, False),
        (REPORTED, bounded(5), False),
        ({}, bounded(5), False),
    ],
)
def test_a_bound_is_raised_with_a_new_decision_that_names_the_figure(
    tmp_path: Path, before: dict[str, Row], after: dict[str, Row], found: bool
) -> None:
    (tmp_path / "0099-why.md").write_text("The bound of `complex` is 5.\n")
    (tmp_path / "0098-other.md").write_text("Nothing about complex functions.\n")
    assert unrecorded(before, after, tmp_path) == ["complex"] * found


def test_a_bound_is_dropped_with_a_decision_too(tmp_path: Path) -> None:
    (tmp_path / FIRST_RECORD.name).write_text("`complex`")
    assert unrecorded(bounded(4), {}, tmp_path) == ["complex"]
    assert unrecorded(bounded(4), REPORTED, tmp_path) == ["complex"]
