"""Rockhopper beside other brokers: native load and Python clients, one broker after another.

Each broker starts alone in an empty directory on one core, and the load has the other core. All
figures are medians. Every broker stores messages on the disk and acknowledges a send as its own
defaults specify, which the report says beside each. Brokers in a JVM are warmed up after each
start. The parts:

    cold      sends of 1 KiB right after a start, on memory that nothing has prepared
    native    all shapes of load by the load generator, on pages that were used before: the page
              cache is filled before each cell; brokers that can write to the disk first, too
    python    each broker's usual Python clients: `pip install -e '.[test-brokers]'`
    fsync     how often each broker waits for the disk, by strace

What is not installed is named and left out, as is what fails.
"""

import argparse
import contextlib
import os
import platform
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import NoReturn

from benchmarks import load, memory, origin, servers, topics
from benchmarks.brokers import catalog, figures, promises, report, results
from benchmarks.brokers.catalog import BROKERS, Broker
from benchmarks.brokers.clients.running import run_client
from benchmarks.brokers.results import (
    BOTH_SIZES,
    COLD_SHAPES,
    ECHO,
    SENDS,
    SHAPES,
    SIZES,
    ClientEntry,
    Comparison,
    Entry,
    cell,
)
from benchmarks.cases import Case
from benchmarks.errors import BenchError
from benchmarks.results import DIRECTORY
from benchmarks.servers import Server

PARTS = ("cold", "native", "python", "fsync")
SETTLE_S = 1.0
WARM_UP_SHAPES = ("4x64", "100x1", "batch", "100x1")
ECHO_SIZE_BYTES = 200
COLD_SIZE_BYTES = 1024
IDLE_CONNECTIONS = 1000
READ_TOPIC = "LoadTestRead"
"""Has nothing but the batches that are read; topics of RocketMQ are created before."""
FILES_BESIDE_CONNECTIONS = 200
FILL_S = 0.5
CLIENT_ROUNDS = 5
COMMAND_ROUNDS = 7
PAGES_TOUCHED_BYTES = 256 << 20
FAILURES = (BenchError, OSError, subprocess.SubprocessError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare; return 1 if something failed that is installed, 2 if nothing could be measured."""
    options = parse_options(arguments)
    signal.signal(signal.SIGTERM, _stop)
    allow_connections()
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
    for step in _steps(found, chosen, options):
        step()
        if options.save:
            kept = report.save(found, f"brokers-{found.origin.date.partition('T')[0]}")
    print(report.render(found))
    for path in kept:
        _say(f"wrote {path}")
    return int(bool(found.failures))


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.brokers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=3, help="of native load (default 3)")
    parser.add_argument("--seconds", type=float, default=2.0, help="per cell (default 2)")
    parser.add_argument(
        "--warm-up", type=float, default=24.0, metavar="S", help="of each JVM's sends (default 24)"
    )
    parser.add_argument(
        "--go-on",
        metavar="NAME",
        type=_read_results,
        help="add rounds to benchmarks/results/NAME.json",
    )
    parser.add_argument("--patience", type=float, default=10.0, help=argparse.SUPPRESS)
    parser.add_argument(
        "--only",
        default="",
        type=_read_names,
        help=f"comma-separated parts of the names {', '.join(each.name for each in BROKERS)}",
    )
    parser.add_argument(
        "--parts", default=",".join(PARTS), help="some of %(default)s", type=_read_parts
    )
    parser.add_argument(
        "--shapes",
        default="",
        type=_read_shapes,
        help=f"some of {','.join(SHAPES)} (default: all)",
    )
    parser.add_argument(
        "--catch-up",
        type=int,
        default=2_000_000,
        metavar="N",
        help="messages of 1 KiB that Python consumers catch up with (default 2000000; 0: none)",
    )
    parser.add_argument(
        "--no-fill", action="store_true", help="leave the page cache as it is: for a trial"
    )
    parser.add_argument(
        "--save", action="store_true", help="keep it as benchmarks/results/brokers-DATE.*"
    )
    return parser.parse_args(arguments)


def _read_parts(text: str) -> list[str]:
    return _read_some(text, PARTS)


def _read_shapes(text: str) -> str:
    return text and ",".join(_read_some(text, SHAPES))


def _read_some(text: str, known: Collection[str]) -> list[str]:
    some = text.split(",")
    if unknown := set(some) - set(known):
        raise argparse.ArgumentTypeError(
            f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(known)}"
        )
    return some


def _read_names(text: str) -> str:
    text = text.casefold()
    for part in text.split(","):
        if not any(part in broker.name.casefold() for broker in BROKERS):
            raise argparse.ArgumentTypeError(f"no broker's name has {part!r} in it")
    return text


def _read_results(name: str) -> str:
    if not (DIRECTORY / f"{name}.json").is_file():
        raise argparse.ArgumentTypeError(f"there is no {name}.json in {DIRECTORY}")
    return name


def _stop(signal_number: int, _frame: object) -> NoReturn:
    """Leave every context, so that no broker is left behind."""
    sys.exit(128 + signal_number)


def allow_connections() -> int:
    """Raise the limit of open files as far as allowed, for the brokers too; return it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


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
        name = broker.name.casefold()
        if not any(part in name for part in options.only.split(",")):
            continue
        try:
            if broker.product not in versions:
                versions[broker.product] = broker.find_version()
        except FAILURES as error:
            _say(f"{broker.name} is left out: {error}")
            found.missing[broker.name] = str(error)
            continue
        version = versions[broker.product]
        default = not broker.is_synced and not broker.shapes
        entry = Entry(
            broker.name, version, broker.settings, broker.is_synced, default, broker.promise
        )
        names = [each.name for each in found.entries]
        if broker.name in names:
            found.entries[names.index(broker.name)] = entry
        else:
            found.entries.append(entry)
        chosen.append(broker)
    return chosen


def _steps(
    found: Comparison, chosen: list[Broker], options: argparse.Namespace
) -> Iterator[Callable[[], None]]:
    """Yield what is to be done; results are saved after each step."""
    first, parts = found.rounds(), options.parts
    numbers = range(first, first + options.rounds)
    if "cold" in parts:
        yield partial(_time_page, found, "cold")
        for number, broker in product(numbers, chosen):
            yield Run(found, broker, number, options).measure_cold
    if "native" in parts:
        yield partial(_time_commands, found, chosen)
        with contextlib.ExitStack() as stack:
            fill = _fill_nothing
            if not options.no_fill:
                fill = stack.enter_context(memory.filler(load.BUILD))
            _say(f"filled {fill():,} MiB of the page cache")
            yield partial(_time_page, found, "warm")
            for number in numbers:
                _say(f"round {number + 1}")
                yield partial(_run_echo, found, number, options)
                for broker in chosen:
                    yield Run(found, broker, number, options, fill).measure
    for broker in chosen:
        if "python" in parts and broker.clients:
            yield Run(found, broker, 0, options).measure_clients
        if "fsync" in parts:
            yield Run(found, broker, 0, options).count_syncs


def _fill_nothing() -> int:
    return 0


def _time_page(found: Comparison, name: str) -> None:
    found.page_us.setdefault(name, []).append(memory.touch_us(PAGES_TOUCHED_BYTES))


def _time_commands(found: Comparison, chosen: list[Broker]) -> None:
    """Time our command line, and the interpreter that the start is compared with."""
    ours = next((broker for broker in chosen if broker.name == results.OURS), None)
    if ours is None:
        return
    program = Path(sys.executable).with_name("rockhopper")
    with _naming_gaps(found, "the command line"), ours.start(ours) as server:
        nameserver = f"127.0.0.1:{server.namesrv_port}"
        for _ in range(COMMAND_ROUNDS):
            start_s = servers.interpreter_start_s(servers.LIBRARIES)
            found.command_s.setdefault(figures.LIBRARIES, []).append(start_s)
            for words in (figures.VERSION, figures.HELP, figures.LIST):
                command = [str(program), "-n", nameserver, *words.split()]
                if words.startswith("--"):
                    command = [str(program), words]
                started_s = time.perf_counter()
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                took_s = time.perf_counter() - started_s
                found.command_s.setdefault(words, []).append(took_s)


@contextlib.contextmanager
def _naming_gaps(found: Comparison, name: str) -> Iterator[None]:
    """Make a failure a gap that the report names."""
    try:
        yield
    except FAILURES as error:
        _say(f"FAILED: {name}: {error}")
        found.failures.append(f"{name}: {error}")


def _run_echo(found: Comparison, number: int, options: argparse.Namespace) -> None:
    with _naming_gaps(found, ECHO), servers.echo() as server:
        for shape in choose(SENDS, options):
            connections, in_flight, title = SHAPES[shape]
            if shape == "idle":
                continue
            case = Case(shape, title, "echo", connections, in_flight, ECHO_SIZE_BYTES)
            # The same yardstick appears below the tables of both sizes.
            cells = [cell(size, shape) for size in SIZES]
            _measure(found, ECHO, cells, server, case, options, number)


def choose(shapes: Sequence[str], options: argparse.Namespace) -> list[str]:
    """Return those of the shapes that were asked for and are possible here."""
    wanted = set(filter(None, options.shapes.split(","))) or set(SHAPES)
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return [
        shape
        for shape in shapes
        if shape in wanted and SHAPES[shape][0] + FILES_BESIDE_CONNECTIONS <= most
    ]


class Run:
    """One start of one broker, and what is measured then."""

    def __init__(
        self,
        found: Comparison,
        broker: Broker,
        number: int,
        options: argparse.Namespace,
        before_each: Callable[[], object] = _fill_nothing,
    ) -> None:
        """*number* is the round's; *before_each* is called before each cell."""
        self._found = found
        self._broker = broker
        self._number = number
        self._options = options
        self._before_each = before_each

    def measure(self) -> None:
        """Measure all shapes."""
        broker, found = self._broker, self._found
        with self._gaps(), self._started() as server:
            found.start_s.setdefault(broker.name, []).append(catalog.age_s(server.pid))
            if broker.name == results.OURS:
                found.command_s.setdefault(figures.LISTENING, []).append(server.start_s)
            time.sleep(SETTLE_S)
            found.idle_mb.setdefault(broker.name, []).append(server.memory_mb())
            self._warm_up(server, (*WARM_UP_SHAPES, *sorted(set(broker.modes) - {"batch"})))
            for size_bytes, shape in cells_of(broker, self._number, self._options):
                self._measure(server, size_bytes, shape)

    def measure_cold(self) -> None:
        """Measure some shapes right after the start."""
        broker = self._broker
        shapes = [each for each in choose(COLD_SHAPES, self._options) if has_shape(broker, each)]
        if not shapes or broker.shapes:
            return
        with self._gaps(), self._started() as server:
            self._warm_up(server, WARM_UP_SHAPES)
            for shape in shapes:
                self._measure(server, COLD_SIZE_BYTES, shape, is_cold=True)

    def measure_clients(self) -> None:
        """Measure the broker's Python clients."""
        options, broker, found = self._options, self._broker, self._found
        with self._gaps(), self._started() as server:
            self._warm_up(server, WARM_UP_SHAPES)
            for name in broker.clients:
                _say(f"  {broker.name}, {name}")
                load.wait_until_quiet(options.patience)
                words = ["--rounds", str(CLIENT_ROUNDS), "--seconds", str(options.seconds / 2)]
                words += ["--catch-up", str(options.catch_up)]
                ran = run_client(name, server, words)
                entry = ClientEntry(broker.name, name, ran.version, ran.ways)
                if not ran.version:
                    found.missing[entry.name] = "; ".join(ran.failures)
                    continue
                found.failures += [f"{entry.name}, {failure}" for failure in ran.failures]
                found.clients = [each for each in found.clients if each.name != entry.name]
                found.clients.append(entry)
                found.client_samples[entry.name] = ran.samples

    def count_syncs(self) -> None:
        """Count how often the broker waits for the disk while one send follows another."""
        with self._gaps(), self._started() as server:
            sends, calls = promises.count(self._broker, server)
            most = max(calls.values(), default=0)
            self._found.syncs_per_send[self._broker.name] = most / max(sends, 1)

    def _gaps(self) -> contextlib.AbstractContextManager[None]:
        return _naming_gaps(self._found, self._broker.name)

    @contextlib.contextmanager
    def _started(self) -> Iterator[Server]:
        with self._broker.start(self._broker) as server:
            catalog.await_send(server, self._broker)
            yield server

    def _warm_up(self, server: Server, shapes: Sequence[str]) -> None:
        """Run the shapes until a JVM has compiled them, each a quarter of the option's time.

        They run on all cores, because on one core that takes minutes.
        """
        broker, seconds = self._broker, self._options.warm_up
        if not broker.is_jvm or not seconds:
            return
        _allow(server.pid, os.sched_getaffinity(0))
        for shape in shapes:
            if has_shape(broker, shape):
                case = _case(broker, 128, shape)
                self._prepare(server, case, shape)
                part_s = seconds / len(WARM_UP_SHAPES)
                load.run(case, server.port, server.pid, part_s, warm_up_s=0)
        _allow(server.pid, {load.cores()[0]})

    def _prepare(self, server: Server, case: Case, shape: str) -> None:
        """Store what is to be read, and wait until it can be."""
        broker = self._broker
        if shape in ("pull", "pop"):
            fill = replace(_case(broker, case.body_size_bytes, "batch"), topic=case.topic)
            if case.topic == READ_TOPIC:  # it is new, and each of its queues has to be ready
                words = ["--mode", fill.mode, "--topic", READ_TOPIC]
                catalog.await_send(server, broker, [*words, "--connections", str(fill.queues)])
            load.run(fill, server.port, server.pid, FILL_S)
        if broker.mode == "single":
            topics.wait_until_dispatched(server.port)

    def _measure(
        self, server: Server, size_bytes: int, shape: str, *, is_cold: bool = False
    ) -> None:
        broker = self._broker
        case = _case(broker, size_bytes, shape)
        broker.clean(server)
        self._before_each()
        where = [cell(size_bytes, shape, is_cold=is_cold)]
        with _naming_gaps(self._found, f"{broker.name}, {case.title}"), contextlib.ExitStack() as s:
            self._prepare(server, case, shape)
            if shape == "idle":
                for _ in range(IDLE_CONNECTIONS):
                    idle = socket.create_connection(("127.0.0.1", server.port))
                    s.enter_context(idle)
            _measure(self._found, broker.name, where, server, case, self._options, self._number)


def has_shape(broker: Broker, shape: str) -> bool:
    """Return whether the broker's protocol has this load."""
    return shape in SENDS or shape in broker.modes


def cells_of(broker: Broker, number: int, options: argparse.Namespace) -> list[tuple[int, str]]:
    """Return the sizes and shapes of a broker in a round."""
    small = min(SIZES)
    if broker.shapes:
        return [(small, shape) for shape in choose(broker.shapes, options)]
    shapes = [shape for shape in choose(tuple(SHAPES), options) if has_shape(broker, shape)]
    if broker.connects_slowly:
        slow = {"5000x1", "idle"} | ({"1000x1"} if number else set())
        shapes = [shape for shape in shapes if shape not in slow]
    return [
        (size_bytes, shape)
        for size_bytes in SIZES
        for shape in shapes
        if size_bytes == small or shape in BOTH_SIZES
    ]


def _case(broker: Broker, size_bytes: int, shape: str) -> Case:
    connections, in_flight, title = SHAPES[shape]
    mode = broker.modes.get(shape, broker.mode)
    topic = topics.WIDE_TOPIC if shape == "longpull" else topics.TOPIC
    if shape == "pull" and broker.mode != "single":
        topic = READ_TOPIC
    return Case(
        shape, f"{title}, {size_bytes} B", mode, connections, in_flight, size_bytes, topic=topic
    )


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
