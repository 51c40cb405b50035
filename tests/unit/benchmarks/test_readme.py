"""README tells the newest figures."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import readme, results
from benchmarks.errors import BenchError
from benchmarks.results import Results
from tests.support.bench_runs import ORIGIN, run_of, whole_run


def keep(directory: Path, **runs: Results) -> None:
    """Keep *runs* by their names."""
    for name, found in runs.items():
        (directory / f"{name}.json").write_text(results.as_json(found))


def test_readme_has_the_figures_of_the_newest_kept_run() -> None:
    assert readme.main(["--check"]) == 0, "stale: run python -m benchmarks.readme"


def test_the_newest_run_that_has_all_figures_is_told(tmp_path: Path) -> None:
    keep(
        tmp_path,
        old=whole_run(replace(ORIGIN, date="2026-11-22T00:00:00+00:00")),
        new=whole_run(replace(ORIGIN, date="2026-11-23T00:00:00+00:00"), times=3.0),
        partial=run_of([1.0], origin=replace(ORIGIN, date="2026-11-24T00:00:00+00:00")),
    )
    name, found = readme.newest_whole(tmp_path)
    assert name == "new"
    told = " ".join(readme.figures(name, found).split())
    assert "up in 0.25 s, 40 MB idle" in told
    assert "3.0 times the single sends of Apache's broker 5.5.0" in told
    assert "with 50%, 50% and 50% of the CPU time each" in told
    assert "(benchmarks/results/new.md)" in told


def test_without_a_whole_run_there_is_nothing_to_tell(tmp_path: Path) -> None:
    keep(tmp_path, partial=run_of([1.0]))
    with pytest.raises(BenchError, match="No run"):
        readme.newest_whole(tmp_path)


def test_only_what_stands_between_the_comments_changes() -> None:
    text = f"above {readme.BEGIN}\n  old\n  {readme.END}\nbelow\n"
    once = readme.rewritten(text, "  told")
    assert once == f"above {readme.BEGIN}\n  told\n  {readme.END}\nbelow\n"
    assert readme.rewritten(once, "  told") == once


def test_a_readme_without_the_comments_is_left_alone() -> None:
    with pytest.raises(BenchError, match="has no"):
        readme.rewritten("nothing", "told")
