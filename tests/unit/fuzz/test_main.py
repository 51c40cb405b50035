"""What is kept of runs of the fuzzer."""

import json
from pathlib import Path
from typing import Any

from tests.fuzz.__main__ import EXECUTIONS, INTERRUPTED, add_run, count_findings, list_modules

RUN: dict[str, Any] = {
    "date": "2026-11-29T10:00:00+00:00",
    "until": "2026-11-29T10:10:00+00:00",
    "commit": "a" * 40,
    "is_dirty": False,
    "python": "3.11.7",
    "cpu_model": "Some CPU",
    "sanitizers": "address",
    "runs": 1,
    "executions": 1000,
    "wall_s": 600,
    "cpu_s": 500,
    "findings": 0,
}


def test_runs_of_one_commit_are_summed_up(tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    later = RUN | {"until": "2026-11-29T11:00:00+00:00", "executions": 7, "findings": 1}
    for run in (RUN, later, RUN | {"commit": "b" * 40}):
        add_run(path, run)
    first, second = json.loads(path.read_text())
    assert (first["runs"], first["executions"], first["wall_s"]) == (2, 1007, 1200)
    assert (first["date"], first["until"], first["findings"]) == (RUN["date"], later["until"], 1)
    assert second["commit"] == "b" * 40


def test_an_interrupted_run_has_found_nothing() -> None:
    assert [count_findings(code) for code in (0, INTERRUPTED, 77, -6)] == [0, 0, 1, 1]


def test_the_executions_are_those_that_libfuzzer_counts() -> None:
    found = EXECUTIONS.search("Done\nstat::number_of_executed_units: 1174558\nstat::peak_rss_mb: 9")
    assert found is not None
    assert int(found[1]) == 1174558


def test_the_harness_gets_each_module_by_both_names() -> None:
    assert list_modules(["a.b._c", "d._e"]) == 'MODULE(_c, "a.b._c")\nMODULE(_e, "d._e")\n'
