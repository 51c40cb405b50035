"""The report of a comparison of brokers."""

import contextlib
import json
import resource
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.brokers import __main__ as brokers
from benchmarks.brokers import catalog, figures, report, results
from benchmarks.brokers.results import (
    ECHO,
    ClientEntry,
    ClientSample,
    Comparison,
    Entry,
)
from benchmarks.errors import BenchError
from benchmarks.load import BUILD
from benchmarks.origin import Origin
from benchmarks.servers import Server
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
    told = report.render(compared())
    assert cells_of(told, "Rockhopper")[0] == ["2.0", "500"]
    assert cells_of(told, "Redis Streams")[0] == ["4.0", ""]
    assert cells_of(told, "Redis Streams, fsync always")[0][0] == "1.0"


def test_start_and_memory_stand_beside_the_latency() -> None:
    (costs,) = [row for row in cells_of(report.render(compared()), "Rockhopper") if "0.30" in row]
    assert costs[-2:] == ["0.30", "39"]


def test_where_ours_is_slower_is_said() -> None:
    assert list(report.losses(compared())) == ["128 B, 100 x 1: Redis Streams (2.00 times)"]
    assert "faster than Rockhopper: 128 B, 100 x 1" in report.render(compared())


def test_refused_sends_are_no_figures() -> None:
    found = compared()
    bad = replace(sample(9e6), failures={"refused": 3}, refusal="code 2 busy")
    found.add("Rockhopper", "128-100x1", bad)
    told = report.render(found)
    assert cells_of(told, "Rockhopper")[0][0] == "2.0"
    assert "FAILED, and not counted: Rockhopper, 128-100x1: {'refused': 3} code 2 busy" in told


def test_what_was_kept_is_read_again(tmp_path: Path) -> None:
    found = compared()
    text, data = report.save(found, "brokers-2026-11-29", tmp_path)
    assert results.from_json(data.read_text()) == found
    assert text.read_text() == report.render(found)


def test_a_broker_that_is_not_to_be_had_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> str:
        raise BenchError("redis-server is not found: apt-get install redis-server")

    present = replace(catalog.BROKERS[0], find_version=lambda: "0.2")
    absent = replace(catalog.BROKERS[-1], find_version=nowhere)
    monkeypatch.setattr(brokers, "BROKERS", (present, absent))
    found = Comparison("a machine", ORIGIN)
    assert brokers.find_brokers(found, brokers.parse_options([])) == [present]
    assert f"{absent.name} was left out: redis-server is not found" in report.render(found)


def test_every_broker_has_its_own_name() -> None:
    names = [broker.name for broker in catalog.BROKERS]
    assert len(set(names)) == len(names)


def with_clients() -> Comparison:
    """The comparison with an echo, cold pages, Python clients and counted calls."""
    found = compared()
    found.add(ECHO, "128-100x1", sample(4000.0))
    found.add("Redis Streams", "1024-4x64", sample(40_000.0))
    found.add("Redis Streams", "1024-4x64-cold", sample(10_000.0))
    found.command_s = {"--version": [0.03], figures.LISTENING: [0.3], figures.LIBRARIES: [0.1]}
    found.page_us = {"cold": [0.9], "warm": [0.1, 0.3]}
    found.syncs_per_send["Redis Streams, fsync always"] = 1.001
    for broker, client, rate in (
        ("Rockhopper", "rockhopper", 900_000.0),
        ("Redis Streams", "redis-py", 30_000.0),
        ("Redis Streams", "other", 20_000.0),
    ):
        entry = ClientEntry(broker, client, "1.0", {"in-batches": "calls", "live": "calls"})
        found.clients.append(entry)
        found.client_samples[entry.name] = {
            "in-batches": [ClientSample(rate, 1.25, 0.5)] * 3,
            "live": [ClientSample(1000.0, 100.0, 30.0, p50_us=250.0, p99_us=900.0)],
        }
    return found


def test_the_figures_are_one_table_with_what_is_reached() -> None:
    told = report.render(with_clients())
    (alone,) = cells_of(told, "100 connections, one send each")
    assert alone == [
        ">= 0.42 of echo; >= 2.5 of Apache's k/s",
        "0.5 ok",
        *("2.0 k/s, 1.0 us", "4.0 k/s, 1.0 us", "4.0 k/s, 1.0 us"),
    ]
    (batches,) = cells_of(told, "Python, consume in batches of 500")
    assert batches[1:] == [
        "900 ok; 1.25 ABOVE",
        *("900 k/s, 1.25 us", "–"),
        "redis-py 30 k/s, 1.25 us; other 20 k/s, 1.25 us",
    ]
    (live,) = cells_of(told, "Python, end to end at 1,000/s: p50")
    assert live[1:3] == ["0.25 ok; 100 ok", "0.25 ms, 100.00 us"]


def test_a_start_is_compared_with_that_of_its_libraries() -> None:
    told = report.render(with_clients())
    (start,) = cells_of(told, "start to a first send; idle memory")
    assert start[1:3] == ["3 ABOVE; 39 ABOVE", "0.30 s, 39 MB"]
    (version,) = cells_of(told, "command line: --version")
    assert version[1:3] == ["0.03 ok", "0.030 s"]


def test_what_another_command_measures_is_named() -> None:
    told = report.render(with_clients())
    (stop,) = cells_of(told, "clean stop with 40,000 new queues")
    assert stop[:2] == ["<= 2 s", "see `make bench-queues`"]


def test_the_figures_are_in_the_json_too(tmp_path: Path) -> None:
    found = with_clients()
    _, data = report.save(found, "brokers-2026-11-30", tmp_path)
    assert results.from_json(data.read_text()) == found
    row = json.loads(data.read_text())["figures"][0]
    assert row["figure"] == "100 connections, one send each"
    assert row["reached"] == ["0.5 ok"]
    assert row["brokers"]["Rockhopper"] == "2.0 k/s, 1.0 us"


def test_python_clients_have_a_table_and_their_calls() -> None:
    rows = cells_of(report.render(with_clients()), "Redis Streams, redis-py")
    assert rows[0] == ["30.0, 1.25, 0.50", "0.25 / 0.90 ms, 100.00, 30.00"]
    assert rows[1][0] == "1.0"
    assert "consume, batches of up to 500: calls" in rows[1][1]


def test_cold_pages_stand_beside_warm_ones() -> None:
    told = report.render(with_clients())
    assert ["", "", "10.0", "0.25", "", ""] in cells_of(told, "Redis Streams")
    assert "0.90 us (cold), 0.20 us (warm)" in told


def test_a_promise_and_its_calls_stand_beside_the_settings() -> None:
    found = with_clients()
    found.entries[-1] = replace(found.entries[-1], promise="on the disk")
    (_, row) = cells_of(report.render(found), "Redis Streams, fsync always")
    assert row == ["1.0", "on the disk", "1.001", "x"]


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--only", "rocket", ""),
        ("--only", "Redis,rabbitmq", ""),
        ("--only", "Pulsar", "no broker's name has 'pulsar' in it"),
        ("--shapes", "foo", "unknown: foo; choose from 100x1, "),
        ("--go-on", "nothing", "there is no nothing.json"),
    ],
)
def test_what_does_not_exist_is_refused(
    option: str, value: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if not told:
        brokers.parse_options([option, value])
        return
    with pytest.raises(SystemExit):
        brokers.parse_options([option, value])
    assert told in " ".join(capsys.readouterr().err.split())


def test_shapes_that_the_limit_of_files_forbids_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    assert brokers.choose(("1x1", "100x1", "5000x1"), brokers.parse_options([])) == ["1x1", "100x1"]
    options = brokers.parse_options(["--shapes", "100x1,batch"])
    assert brokers.choose(("1x1", "100x1", "batch"), options) == ["100x1", "batch"]


def test_slow_connections_are_measured_once_and_few() -> None:
    broker, options = catalog.RABBITMQ_CLASSIC, brokers.parse_options([])
    first, second = (brokers.cells_of(broker, number, options) for number in (0, 1))
    assert set(first) - set(second) == {(128, "1000x1")}
    assert (128, "5000x1") not in first
    assert (1024, "100x1") in second
    assert (1024, "16x1") not in second


def test_a_broker_that_does_not_start_is_a_gap() -> None:
    def fail(_: catalog.Broker) -> contextlib.AbstractContextManager[Server]:
        raise BenchError("its port is taken")

    found = compared()
    broker = replace(catalog.BROKERS[0], start=fail)
    brokers.Run(found, broker, 0, brokers.parse_options([])).measure()
    assert found.failures == ["Rockhopper: its port is taken"]


def test_why_a_start_failed_names_no_folder_of_the_machine(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(f"starting\nnats: {BUILD}/nats-1/nats.conf:4: unknown field\n")
    assert (
        catalog.read_last_line(Server("nats", 1, 2, log=log))
        == "nats: nats-1/nats.conf:4: unknown field"
    )
