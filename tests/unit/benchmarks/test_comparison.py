"""The report of a comparison of brokers."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.comparison import __main__ as comparison
from benchmarks.comparison import brokers, results
from benchmarks.comparison.results import Comparison, Entry
from benchmarks.errors import BenchError
from benchmarks.origin import Origin
from tests.support.bench_runs import sample

ORIGIN = Origin("2026-11-29T20:00:00+00:00", 2, "AMD EPYC", "6.18", "3.11.7", 0.1, "abc", False)


def compared() -> Comparison:
    found = Comparison("a machine", ORIGIN)
    for name in ("Rockhopper", "Redis Streams"):
        found.entries.append(Entry(name, "1.0", "settings", is_synced=False, is_default=True))
    synced = Entry("Redis Streams, fsync always", "1.0", "x", is_synced=True, is_default=False)
    found.entries.append(synced)
    for rate in (1000.0, 3000.0, 2000.0):
        found.add("Rockhopper", "128-100x1", sample(rate))
        found.add("Redis Streams", "128-100x1", sample(2 * rate))
        found.add("Redis Streams, fsync always", "128-100x1", sample(rate / 2))
    found.add("Rockhopper", "128-batch", sample(500_000.0))
    found.start_s["Rockhopper"], found.idle_mb["Rockhopper"] = [0.3, 0.2, 0.9], [38.0, 39.0, 40.0]
    return found


def cells_of(told: str, beginning: str) -> list[list[str]]:
    lines = [line for line in told.splitlines() if line.startswith(f"| {beginning} ")]
    return [[cell.strip() for cell in line.split("|")[2:-1]] for line in lines]


def test_rates_are_medians_and_what_a_protocol_lacks_stays_empty() -> None:
    told = results.render(compared())
    assert cells_of(told, "Rockhopper")[0] == ["", "2.0", "", "", "500"]
    assert cells_of(told, "Redis Streams")[0] == ["", "4.0", "", "", ""]
    assert cells_of(told, "Redis Streams, fsync always")[0][0] == "1.0"


def test_start_and_memory_stand_beside_the_latency() -> None:
    (costs,) = [row for row in cells_of(results.render(compared()), "Rockhopper") if "0.30" in row]
    assert costs[-2:] == ["0.30", "39"]


def test_where_ours_is_slower_is_said() -> None:
    assert list(results.losses(compared())) == ["128 B, 100 x 1: Redis Streams (2.00 times)"]
    assert "faster than Rockhopper: 128 B, 100 x 1" in results.render(compared())


def test_refused_sends_are_no_figures() -> None:
    found = compared()
    bad = replace(sample(9e6), failures={"refused": 3}, refusal="code 2 busy")
    found.add("Rockhopper", "128-100x1", bad)
    told = results.render(found)
    assert cells_of(told, "Rockhopper")[0][1] == "2.0"
    assert "FAILED, and not counted: Rockhopper, 128-100x1: {'refused': 3} code 2 busy" in told


def test_what_was_kept_is_read_again(tmp_path: Path) -> None:
    found = compared()
    report, data = results.save(found, "comparison-2026-11-29", tmp_path)
    assert results.from_json(data.read_text()) == found
    assert report.read_text() == results.render(found)


def test_a_broker_that_is_not_to_be_had_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> str:
        raise BenchError("redis-server is not found: apt-get install redis-server")

    present = replace(brokers.BROKERS[0], find_version=lambda: "0.2")
    absent = replace(brokers.BROKERS[-1], find_version=nowhere)
    monkeypatch.setattr(comparison, "BROKERS", (present, absent))
    found = Comparison("a machine", ORIGIN)
    assert comparison.find_brokers(found, comparison.parse_options([])) == [present]
    assert f"{absent.name} was left out: redis-server is not found" in results.render(found)


def test_every_broker_has_its_own_name() -> None:
    names = [broker.name for broker in brokers.BROKERS]
    assert len(set(names)) == len(names)
