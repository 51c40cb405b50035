"""A comparison of this broker with others: acknowledged sends, one broker after another.

Each broker starts alone in an empty directory on one core, and the load generator has the other
core. A round starts every broker, runs all shapes and stops it. There are three rounds, and figures
are medians. Brokers in a JVM are warmed up after each start. Every broker stores messages on the
disk and acknowledges a send as its own defaults specify, which differ between brokers. A second row
is for the brokers that can be configured to write a message to the disk first.
"""

import argparse
import contextlib
import os
import platform
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import load, origin, servers
from benchmarks.cases import Case
from benchmarks.comparison import brokers, results
from benchmarks.comparison.brokers import BROKERS, Broker
from benchmarks.comparison.results import ECHO, SHAPES, SIZES, Comparison, Entry, cell
from benchmarks.errors import BenchError
from benchmarks.results import DIRECTORY
from benchmarks.servers import Server

SETTLE_S = 1.0
WARM_UP_SHAPES = ("4x64", "100x1", "batch", "100x1")
ECHO_SIZE_BYTES = 200


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare; return 1 if an answer was no acknowledgement, 2 if nothing could be measured."""
    options = parse_options(arguments)
    try:
        load.build_loadgen()
    except BenchError as error:
        print(error, file=sys.stderr)
        return 2
    found = Comparison(_machine(), origin.here_and_now(""))
    if options.go_on:
        found = results.from_json((DIRECTORY / f"{options.go_on}.json").read_text())
    chosen = find_brokers(found, options)
    kept: list[Path] = []
    for number in range(found.rounds(), found.rounds() + options.rounds):
        _say(f"round {number + 1}")
        _run_echo(found, number, options)
        for broker in chosen:
            _run_broker(found, broker, number, options)
        if options.save:
            kept = results.save(found, f"comparison-{found.origin.date.partition('T')[0]}")
    print(results.render(found))
    for path in kept:
        _say(f"wrote {path}")
    return int(bool(found.failures))


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.comparison", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often (default 3)")
    parser.add_argument("--seconds", type=float, default=2.0, help="per cell (default 2)")
    parser.add_argument(
        "--warm-up", type=float, default=24.0, metavar="S", help="of each JVM (default 24)"
    )
    parser.add_argument(
        "--go-on", metavar="NAME", help="add rounds to benchmarks/results/NAME.json"
    )
    parser.add_argument("--patience", type=float, default=10.0, help=argparse.SUPPRESS)
    parser.add_argument("--only", default="", help="comma-separated parts of names")
    parser.add_argument(
        "--save", action="store_true", help="keep it as benchmarks/results/comparison-DATE.*"
    )
    return parser.parse_args(arguments)


def _machine() -> str:
    server_core, load_core = load.cores()
    where = f"each broker alone on core {server_core}, load on core {load_core}"
    if server_core == load_core:
        where = "ONE core for brokers and load together: the figures mean little"
    return f"CPython {platform.python_version()}, {os.cpu_count()} cores; {where}."


def find_brokers(found: Comparison, options: argparse.Namespace) -> list[Broker]:
    """Return the brokers that are installed here."""
    chosen, versions = [], dict[str, str]()
    for broker in BROKERS:
        if not any(part in broker.name for part in options.only.split(",")):
            continue
        try:
            if broker.product not in versions:
                versions[broker.product] = broker.find_version()
        except BenchError as error:
            _say(f"{broker.name} is left out: {error}")
            found.missing[broker.name] = str(error)
            continue
        version = versions[broker.product]
        default = not broker.is_synced and not broker.shapes
        entry = Entry(broker.name, version, broker.settings, broker.is_synced, default)
        names = [each.name for each in found.entries]
        if broker.name in names:
            found.entries[names.index(broker.name)] = entry
        else:
            found.entries.append(entry)
        chosen.append(broker)
    return chosen


def _run_echo(found: Comparison, number: int, options: argparse.Namespace) -> None:
    with servers.echo() as server:
        for shape, (connections, in_flight, title) in SHAPES.items():
            if shape == "batch":
                continue
            case = Case(shape, title, "echo", connections, in_flight, ECHO_SIZE_BYTES)
            # The same yardstick appears below the tables of both sizes.
            _measure(
                found, ECHO, [cell(size, shape) for size in SIZES], server, case, options, number
            )


def _run_broker(
    found: Comparison, broker: Broker, number: int, options: argparse.Namespace
) -> None:
    try:
        with broker.start(broker) as server:
            brokers.await_send(server, broker)
            found.start_s.setdefault(broker.name, []).append(brokers.age_s(server.pid))
            time.sleep(SETTLE_S)
            found.idle_mb.setdefault(broker.name, []).append(server.memory_mb())
            if broker.is_jvm:
                _warm_up(broker, server, options.warm_up)
            for size_bytes, shape in _cells(broker, number):
                case = _case(broker, size_bytes, shape)
                broker.clean(server)
                _measure(
                    found, broker.name, [cell(size_bytes, shape)], server, case, options, number
                )
    except BenchError as error:
        _say(f"FAILED: {error}")
        found.failures.append(f"{broker.name}: {error}")


def _cells(broker: Broker, number: int) -> list[tuple[int, str]]:
    if broker.shapes:
        return [(128, shape) for shape in broker.shapes]
    shapes = [shape for shape in SHAPES if shape != "batch" or broker.batch_mode]
    return [
        (size_bytes, shape)
        for size_bytes in SIZES
        for shape in shapes
        if shape != "1000x1"
        or (size_bytes == min(SIZES) and not (number and broker.connects_slowly))
    ]


def _case(broker: Broker, size_bytes: int, shape: str) -> Case:
    connections, in_flight, title = SHAPES[shape]
    mode = broker.batch_mode if shape == "batch" else broker.mode
    return Case(shape, f"{title}, {size_bytes} B", mode, connections, in_flight, size_bytes)


def _warm_up(broker: Broker, server: Server, seconds: float) -> None:
    """Run the shapes until a JVM has compiled them.

    They run on all cores, because on one core that takes minutes.
    """
    shapes = [shape for shape in WARM_UP_SHAPES if shape != "batch" or broker.batch_mode]
    _allow(server.pid, os.sched_getaffinity(0))
    for shape in shapes:
        case = _case(broker, 128, shape)
        load.run(case, server.port, server.pid, seconds / len(shapes), warm_up_s=0)
    _allow(server.pid, {load.cores()[0]})


def _allow(pid: int, cores: Collection[int]) -> None:
    """Let all threads of a process use these cores."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), cores)


def _measure(
    found: Comparison,
    name: str,
    cells: list[str],
    server: Server,
    case: Case,
    options: argparse.Namespace,
    number: int,
) -> None:
    """Run a case once, and again if it was disturbed; a refusal ends only that cell."""
    for _ in range(2):
        load.wait_until_quiet(options.patience)
        try:
            sample = load.run(case, server.port, server.pid, options.seconds)
        except BenchError as error:
            _say(f"  FAILED: {name}: {error}")
            found.failures.append(f"{name}: {error}")
            return
        for each in cells:
            found.add(name, each, replace(sample, round=number))
        _say(
            f"  {name}, {case.title}: {sample.messages_per_s / 1000:,.1f} k/s, "
            f"CPU {sample.cpu_us:.2f} us, p99 {sample.p99_us / 1000:.2f} ms"
            + ("" if sample.is_quiet else f", DISTURBED by {sample.others_cpu_share:.0%}")
        )
        if sample.is_quiet:
            return


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
