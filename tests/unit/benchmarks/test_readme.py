"""README and the comparison page have the newest figures, with the rows in which we lose."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import readme, results
from benchmarks.brokers import results as comparison_results
from benchmarks.brokers.results import Comparison, Entry
from benchmarks.cases import CASES, FEW_IN_FLIGHT, TABLE, Case
from benchmarks.errors import BenchError
from benchmarks.results import OURS, Results
from tests.support.bench_runs import ORIGIN, PEER, run_of, sample

NAME = "brokers-2026-11-29"


def beside_apache(cases: Iterable[Case], times: dict[str, float]) -> Results:
    """A run of *cases* in which ours is twice as quick, or as *times* says."""
    found = Results("a machine", ORIGIN)
    for case in cases:
        found.add(OURS, case.name, sample(100.0 * times.get(case.name, 2.0)))
        found.add(PEER, case.name, sample(100.0, 4.0))
    return found


def compared(*, redis: float = 60_000.0) -> Comparison:
    """Rockhopper and Redis; the second has no batches."""
    found = Comparison("a machine", ORIGIN)
    for name, rates in ((OURS, (30_000.0, 21_000.0)), ("Redis Streams", (redis, 50_000.0))):
        found.entries.append(Entry(name, "1.0", "settings", is_synced=False, is_default=True))
        for size_bytes, rate in zip(comparison_results.SIZES, rates, strict=True):
            found.add(name, comparison_results.cell(size_bytes, "100x1"), sample(rate))
        found.start_s[name], found.idle_mb[name] = [0.31], [38.4]
    found.add(OURS, comparison_results.cell(128, "batch"), sample(900_000.0))
    return found


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A directory with one run of each kind."""
    (tmp_path / f"{NAME}.json").write_text(comparison_results.as_json(compared()))
    for name, run in (
        ("run", beside_apache(CASES, {"pop": 9.26, "batch": 1.5})),
        ("table", beside_apache(TABLE, {"body-1048576": 1.25})),
    ):
        (tmp_path / f"{name}.json").write_text(results.as_json(run))
    return tmp_path


def cells(told: str, beginning: str) -> list[str]:
    (line,) = [each for each in told.splitlines() if each.startswith(f"| {beginning} ")]
    return [cell.strip() for cell in line.split("|")[2:-1]]


def test_the_pages_have_the_newest_figures() -> None:
    assert readme.main(["--check"]) == 0, "stale: run python -m benchmarks.readme"


def test_a_row_is_the_range_over_the_sizes(kept: Path) -> None:
    told = readme.short_figures(kept)
    assert cells(told, "100 connections, 1 in flight each") == ["21–30", "50–60"]
    assert cells(told, "4 connections, batches of 32") == ["900", "–"]
    assert cells(told, "start to a first send, s") == ["0.31", "0.31"]
    assert cells(told, "memory when idle, MB") == ["38", "38"]


@pytest.mark.parametrize(("rates", "shown"), [((60, 50), "50–60"), ((61, 43), "**43–61**")])
def test_what_is_more_than_twice_the_next_at_each_size_is_bold(
    rates: tuple[int, int], shown: str, kept: Path
) -> None:
    found = compared()
    for size_bytes, rate in zip(comparison_results.SIZES, rates, strict=True):
        where = comparison_results.cell(size_bytes, "100x1")
        found.samples["Redis Streams"][where] = [sample(1000.0 * rate)]
    (kept / f"{NAME}.json").write_text(comparison_results.as_json(found))
    told = readme.short_figures(kept)
    assert cells(told, "100 connections, 1 in flight each") == ["21–30", shown]


def test_the_rows_in_which_others_are_faster_are_named(kept: Path) -> None:
    told = " ".join(readme.short_figures(kept).split())
    assert "is not the fastest with 100 connections, 1 in flight each." in told
    slower = compared(redis=1.0)
    slower.samples["Redis Streams"] = {"128-100x1": [sample(1.0)]}
    (kept / f"{NAME}.json").write_text(comparison_results.as_json(slower))
    assert "not the fastest" not in readme.short_figures(kept)


def test_apache_has_the_best_and_the_worst_ratio(kept: Path) -> None:
    told = " ".join(readme.short_figures(kept).split())
    assert "handled 1.5 times (batches of 32) to 9.3 times (pops of 32" in told
    assert "and 1.2 times (1 MiB) to 2.0 times" in told
    long = readme.long_figures(kept)
    assert cells(long, "pops of 32, each acknowledged") == ["9.26", "0.25"]
    assert cells(long, "1 MiB") == ["1.25", "0.25"]


def test_few_requests_in_flight_are_shown_when_a_run_has_them(kept: Path) -> None:
    run = beside_apache(CASES, {"100x1": 1.25})
    (kept / "run.json").write_text(results.as_json(run))
    assert cells(readme.long_figures(kept), "single sends, 100 x 1") == ["1.25", "0.25"]
    old = beside_apache([case for case in CASES if case not in FEW_IN_FLIGHT], {})
    (kept / "run.json").write_text(results.as_json(old))
    assert "single sends, 100 x 1" not in readme.long_figures(kept)


def test_the_newest_run_counts_that_has_all_cases(kept: Path) -> None:
    newer = replace(ORIGIN, date="2026-11-30T00:00:00+00:00")
    partial = run_of([1.0], origin=newer)
    (kept / "partial.json").write_text(results.as_json(partial))
    assert readme.newest_with(readme.KINDS, kept)[0] == "run"
    whole = replace(beside_apache(CASES, {}), origin=newer)
    (kept / "whole.json").write_text(results.as_json(whole))
    assert readme.newest_with(readme.KINDS, kept)[0] == "whole"


def test_without_kept_runs_it_says_which_are_missing(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="make bench-brokers"):
        readme.newest_comparison(tmp_path)
    with pytest.raises(BenchError, match=r"single, binary, .* beside Apache"):
        readme.newest_with(readme.KINDS, tmp_path)


def test_only_what_stands_between_the_comments_changes() -> None:
    text = f"above {readme.BEGIN}\nold\n{readme.END}\nbelow\n"
    once = readme.rewrite(text, "told")
    assert once == f"above {readme.BEGIN}\n\ntold\n\n{readme.END}\nbelow\n"
    assert readme.rewrite(once, "told") == once


def test_a_page_without_the_comments_is_left_alone() -> None:
    with pytest.raises(BenchError, match="has no"):
        readme.rewrite("nothing", "told")
