"""The speed of this broker on this machine, beside a bare echo and, with --peers, Apache's broker.

Every server runs in its own process on one core, the load generator on another. Cases are
interleaved and repeated, since neighbours on a shared machine change the figures from minute to
minute: a round runs every case against every server, and before and after the cases of one shape
the echo of this shape. Each round starts our broker with an empty store. Apache's broker keeps
running, warm, on all cores or, with --one-core, on the core that ours has. With --peers and --table
the page cache is filled before each run, as on a machine that has been up for a while; the data to
read is cached before.

Every run is stored under results/: `make bench-compare A=NAME B=NAME` compares two of them.
"""

import argparse
import contextlib
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import load, memory, origin, report, results, servers, topics
from benchmarks.cases import BASE, CASES, ECHOES, GROUP_BYTES, OURS_ALONE, SETUPS, TABLE, Case
from benchmarks.errors import BenchError
from benchmarks.load import Sample
from benchmarks.results import Results
from benchmarks.servers import Server
from rockhopper.protocol import compiled

FILL_S = 0.5
SETTLE_S = 1.0
FILL = next(case for case in CASES if case.mode == "batch")
# Times its number of topics: each connection visits all of them, and none is the fastest.
FIRST_MESSAGES = 1.5
READS = ("pull", "sql", "pop")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return 1 if any answer was wrong, 2 if it could not run."""
    options = _parse(arguments)
    cases, kept = _chosen(options), list[Path]()
    found = Results(
        _machine(options), origin.here_and_now(_peer_version() if options.peers else "")
    )
    try:
        load.build_loadgen()
        with contextlib.ExitStack() as stack:
            fill = stack.enter_context(memory.filler(load.BUILD))
            peers = _start_peers(stack, cases, options) if options.peers else []
            for number in range(options.rounds):
                _say(f"round {number + 1} of {options.rounds}")
                before_each = fill if options.peers or options.table else _nothing
                Round(found, number, cases, options, before_each).run(peers)
                kept = report.save(found, options.save or _name(found))
    except BenchError as error:
        print(error, file=sys.stderr)
        return 2
    print(results.as_json(found) if options.json else report.render(found))
    for path in kept:
        _say(f"wrote {path}")
    return int(found.has_failures())


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench", description=__doc__)
    names = ",".join(case.name for case in CASES)
    parser.add_argument("--cases", default="", help=f"comma-separated, of {names}")
    parser.add_argument(
        "--table", action="store_true", help="single sends by size, connections and topics"
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often (default 3)")
    parser.add_argument("--seconds", type=float, default=3.0, help="per run (default 3)")
    parser.add_argument("--peers", action="store_true", help="also run Apache's broker")
    parser.add_argument("--one-core", action="store_true", help="Apache's has no more than ours")
    parser.add_argument(
        "--peer-warm-up", type=float, default=10.0, metavar="S", help="per case (default 10)"
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=10.0,
        metavar="S",
        help="wait so long for a quiet machine before each run (default 10)",
    )
    parser.add_argument("--json", action="store_true", help="print every sample as JSON")
    parser.add_argument(
        "--save", metavar="NAME", help="keep it as benchmarks/results/NAME.* (default: its time)"
    )
    options = parser.parse_args(arguments)
    if unknown := set(filter(None, options.cases.split(","))) - {case.name for case in CASES}:
        parser.error(f"unknown cases {', '.join(sorted(unknown))}; there are {names}")
    return options


def _chosen(options: argparse.Namespace) -> list[Case]:
    """Return the cases to run, by default all of CASES.

    With --table, return the base and the table's cells. With --cases, return the named cases, added
    to the table's if both are given.
    """
    names = set(filter(None, options.cases.split(",")))
    if options.table:
        names.add(BASE.name)
    cases = [case for case in CASES if not names or case.name in names]
    return [*cases, *TABLE] if options.table else cases


def _machine(options: argparse.Namespace) -> str:
    server_core, load_core = load.cores()
    where = f"servers on core {server_core}, load on core {load_core}"
    if options.peers and not options.one_core:
        where += ", Apache's broker on all"
    if server_core == load_core:
        where = "ONE core for servers and load together: the ratios mean little"
    return (
        f"CPython {platform.python_version()}, {os.cpu_count()} cores; {where}; "
        f"compiled: {compiled.extent()}."
    )


def _peer_version() -> str:
    from tests.interop import apache

    return apache.version()


def _name(found: Results) -> str:
    assert found.origin is not None
    return found.origin.date.partition("+")[0].replace("T", "-").replace(":", "")


class Round:
    """All cases once, against a broker of ours that starts with the round."""

    def __init__(
        self,
        found: Results,
        number: int,
        cases: list[Case],
        options: argparse.Namespace,
        before_each: Callable[[], object],
    ) -> None:
        """*before_each* is called before each case against each server."""
        self._before_each = before_each
        self._found = found
        self._number = number
        self._cases = cases
        self._options = options

    def run(self, peers: list[Server]) -> None:
        """Measure every case against every server, and its echo before and after."""
        with contextlib.ExitStack() as stack:
            echo = stack.enter_context(servers.echo())
            ours = self._start_ours(stack)
            for frames in ECHOES:
                cases = [case for case in self._cases if case.echo == frames.name]
                if not cases:
                    continue
                self._measure(echo, frames)
                for case in cases:
                    theirs = [peer for peer in peers if peer.setup == case.setup]
                    self._run_case(case, ours[case.setup], theirs)
                self._measure(echo, frames)
            for server in ours.values():
                self._take_metrics(server)

    def _run_case(self, case: Case, ours: Server, peers: list[Server]) -> None:
        if case.half_of:
            if not peers:
                return
            theirs = self._found.of(peers[0].name, case.half_of)
            if not theirs:
                _say(f"  {case.title}: left out without the case {case.half_of}")
                return
            case = replace(case, rate_per_s=results.rate(theirs) / 2)
        if case.setup == "sync" and ours.log:
            sync_us = servers.fdatasync_us(ours.log.parent, GROUP_BYTES)
            self._found.fdatasync_us.append(sync_us)
        self._measure(ours, case)
        for peer in peers:
            with _awake(peer):
                self._measure(peer, case)

    def _start_ours(self, stack: contextlib.ExitStack) -> dict[str, Server]:
        """Start our broker once for each setup that the cases need."""
        started = {}
        self._found.interpreter_start_s.append(servers.interpreter_start_s())
        libraries_s = servers.interpreter_start_s(servers.LIBRARIES)
        self._found.libraries_start_s.append(libraries_s)
        for setup in sorted({case.setup for case in self._cases}):
            server = stack.enter_context(servers.rockhopper(SETUPS[setup]))
            time.sleep(SETTLE_S)
            self._found.start_s.append(server.start_s)
            self._found.idle_memory_mb.append(server.memory_mb())
            _spread_topics(server, [case for case in self._cases if case.setup == setup])
            started[setup] = server
        return started

    def _measure(self, server: Server, case: Case) -> None:
        """Run a case once, and again if another process disturbed it."""
        self._before_each()
        for _ in range(2):
            load.wait_until_quiet(self._options.patience)
            sample = replace(_load(server, case, self._options.seconds), round=self._number)
            self._found.add(server.name, case.name, sample)
            _say(
                f"  {server.name}, {case.title}: {sample.messages_per_s / 1000:,.1f} k/s, "
                f"CPU {sample.cpu_us:.2f} us, p99 {sample.p99_us / 1000:.2f} ms"
                + ("" if sample.is_quiet else f", DISTURBED by {sample.others_cpu_share:.0%}")
            )
            if sample.is_quiet:
                break

    def _take_metrics(self, server: Server) -> None:
        metrics = self._found.metrics
        for name, value in server.metrics("stall").items():
            before = metrics.get(name, 0.0)
            metrics[name] = before + value if "_total" in name else max(before, value)


def _spread_topics(server: Server, cases: list[Case]) -> None:
    """Create the topics of *cases* and send to each, because a topic's first message costs more."""
    case = max(cases, key=lambda case: case.topics, default=BASE)
    if case.topics == 1:
        return
    topics.spread(server.port, case.topics)
    for seconds in (1, 4, 16, 64):
        sample = load.run(case, server.port, server.pid, seconds, warm_up_s=0)
        if sample.messages_per_s * seconds > FIRST_MESSAGES * case.topics:
            break


def _start_peers(
    stack: contextlib.ExitStack, cases: list[Case], options: argparse.Namespace
) -> list[Server]:
    """Start Apache's broker for each setup, and run every case until it is compiled."""
    from benchmarks.peers import (
        apache_broker,
    )  # imported late: it needs the interop project

    allowed = {load.cores()[0]} if options.one_core else os.sched_getaffinity(0)
    found = []
    for setup in sorted({case.setup for case in cases} - OURS_ALONE):
        peer = stack.enter_context(apache_broker(setup, allowed))
        own = [case for case in cases if case.setup == setup and not case.half_of]
        found.append(peer)
        with _awake(peer):
            _spread_topics(peer, own)
            for case in own:
                _say(f"warming up {peer.name}: {case.title}")
                _load(peer, case, options.peer_warm_up)
    return found


def _awake(peer: Server) -> contextlib.AbstractContextManager[None]:
    from benchmarks.peers import awake

    return awake(peer)


def _load(server: Server, case: Case, seconds: float) -> Sample:
    if case.mode in READS:
        fill = replace(FILL, topic=case.topic, with_property=case.with_property)
        load.run(fill, server.port, server.pid, FILL_S)
        if server.log:
            memory.read_ahead(server.log)
    if case not in ECHOES:
        topics.wait_until_dispatched(server.port, server.admin)
    return load.run(case, server.port, server.pid, seconds)


def _nothing() -> None:
    """Do nothing to the memory."""


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
