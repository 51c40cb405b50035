"""The tables that people read."""

from dataclasses import replace
from pathlib import Path

from benchmarks import report, results
from benchmarks.results import OURS
from tests.support.bench_runs import PEER, run_of, sample, whole_run


def test_a_ratio_is_judged_where_it_has_a_target() -> None:
    assert report.judged(0.5, None) == "0.500"
    assert report.judged(0.5, 0.4) == "0.500 >= 0.4 ok"
    assert report.judged(0.5, 0.6) == "0.500 >= 0.6 BELOW"
    assert report.judged(0.5, 0.4, at_most=True) == "0.500 <= 0.4 ABOVE"


def test_ours_stands_beside_the_peer() -> None:
    told = report.render(whole_run(times=6.0))
    (row,) = [line for line in told.splitlines() if ">= 5" in line]
    assert "6.000 >= 5 ok" in row
    assert "0.500 <= 0.12 ABOVE" in row


def test_latency_at_half_of_the_peers_rate_has_a_table_of_its_own() -> None:
    found = whole_run()
    found.add(OURS, "half", sample(100.0, p50_us=100, p99_us=200))
    found.add(PEER, "half", sample(100.0, p50_us=500, p99_us=1000))
    lines = report.render(found).splitlines()
    assert any("p50 ms" in line and "0.200 <= 0.25 ok" in line for line in lines)
    assert any("p99 ms" in line and "0.200 <= 0.15 ABOVE" in line for line in lines)


def test_each_cell_of_the_table_stands_beside_the_base_and_the_peer() -> None:
    found = whole_run()
    found.add(OURS, "topics-10000", sample(300.0, 1.2))
    found.add(PEER, "topics-10000", sample(100.0, 3.0))
    (row,) = [line for line in report.render(found).splitlines() if "10,000 topics" in line]
    assert "1.200 <= 1.3 ok" in row
    assert "3.000" in row


def test_without_its_cells_there_is_no_table() -> None:
    assert "CPU to the base" not in report.render(whole_run())


def test_wrong_answers_and_noise_are_remarked() -> None:
    found = run_of([])
    bad = replace(
        sample(100.0),
        failures={"refused": 3},
        refusal="code 2 busy",
        is_quiet=False,
        others_cpu_share=0.4,
    )
    found.add(OURS, "single", bad)
    assert report.remarks(found) == [
        "Rockhopper, single: FAILED answers: 3 refused code 2 busy",
        "Rockhopper, single: DOUBTFUL, other processes used 40% of a core",
    ]
    assert found.has_failures()


def test_a_run_is_kept_for_people_and_for_programs(tmp_path: Path) -> None:
    found = whole_run()
    told, data = report.save(found, "some", tmp_path)
    assert told.read_text() == report.render(found)
    assert results.read(str(data)) == found
