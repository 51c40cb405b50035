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


def test_the_start_stands_beside_the_libraries_that_every_broker_imports() -> None:
    found = whole_run()
    assert "beside an interpreter" not in report.render(found)
    for libraries_s, verdict in ((0.125, "2.0 x (<= 2.5: ok)"), (0.05, "5.0 x (<= 2.5: ABOVE)")):
        found.libraries_start_s = [libraries_s]
        assert f"structlog, uvloop: {verdict}" in report.render(found)


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


def test_a_shape_stands_beside_its_own_echo() -> None:
    found = whole_run()
    found.add("echo", "echo-100x1", sample(200.0))
    found.add(OURS, "100x1", sample(100.0))
    lines = report.render(found).splitlines()
    assert any("| single sends, 100 x 1 " in line and "0.500 >= 0.42 ok" in line for line in lines)
    assert any("| bare uvloop echo, 100 x 1 " in line for line in lines)


def test_one_send_at_a_time_stands_beside_its_echo() -> None:
    found = whole_run()
    found.add(OURS, "alone", sample(100.0, p50_us=50.0))
    assert "p50 of one send at a time" not in report.render(found)
    found.add("echo", "echo-1x1", sample(100.0, p50_us=40.0))
    assert "50.0 us, of the echo 40.0 us (<= 12 us more: ok)" in report.render(found)
    found.add("echo", "echo-1x1", sample(100.0, p50_us=20.0))
    assert "50.0 us, of the echo 30.0 us (<= 12 us more: ABOVE)" in report.render(found)


def test_a_group_commit_stands_beside_what_the_disk_permits() -> None:
    found = whole_run()
    assert "fdatasync" not in report.render(found)
    found.fdatasync_us = [700.0, 1000.0, 9000.0]
    assert "one fdatasync on the store's disk: 1000 us\n" in report.render(found)
    found.add(OURS, "100x1", sample(90_000.0, 10.0))
    found.add(OURS, "100x1-sync", sample(45_000.0, 12.0))
    told = report.render(found)
    assert "50.0 k/s are possible with SYNC_FLUSH: 0.900 >= 0.8 ok" in told


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
