"""How fast is this broker on this machine: beside a bare echo and, with --peers, beside Apache's.

Every server runs in a process of its own on one core, the load generator on another. Cases are
interleaved and repeated, since neighbours on a shared machine move figures from minute to minute:
a round runs the echo, then every case against every server. Each round starts our broker
afresh with an empty store; Apache's broker stays up, warm, on as many cores as it likes.
"""

import argparse
import contextlib
import os
import platform
import sys
import time
from collections.abc import Sequence

from benchmarks import load, report, servers
from benchmarks.cases import CASES, ECHO, Case
from benchmarks.errors import BenchError
from benchmarks.load import Sample
from benchmarks.report import Results
from benchmarks.servers import Server
from rockhopper.protocol import compiled

FILL_S = 0.5
SETTLE_S = 1.0
FILL = next(case for case in CASES if case.mode == "batch")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns 1 if any answer was wrong, 2 if it could not be run."""
    options = _parse(arguments)
    cases = [case for case in CASES if case.name in options.cases.split(",")]
    results = Results(_machine())
    try:
        load.build_loadgen()
        with contextlib.ExitStack() as stack:
            peers = _start_peers(stack, cases, options) if options.peers else []
            for number in range(options.rounds):
                _say(f"round {number + 1} of {options.rounds}")
                _round(results, cases, peers, options)
    except BenchError as error:
        print(error, file=sys.stderr)
        return 2
    print(report.as_json(results) if options.json else report.render(results))
    if options.save:
        for path in report.save(results, options.save):
            _say(f"wrote {path}")
    return int(results.has_failures())


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench", description=__doc__)
    names = ",".join(case.name for case in CASES)
    parser.add_argument("--cases", default=names, help=f"comma-separated, of {names}")
    parser.add_argument("--rounds", type=int, default=3, help="how often (default 3)")
    parser.add_argument("--seconds", type=float, default=3.0, help="per run (default 3)")
    parser.add_argument("--peers", action="store_true", help="also run Apache's broker")
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
    parser.add_argument("--save", metavar="NAME", help="also write benchmarks/results/NAME.*")
    options = parser.parse_args(arguments)
    if unknown := set(options.cases.split(",")) - {case.name for case in CASES}:
        parser.error(f"unknown cases {', '.join(sorted(unknown))}; there are {names}")
    return options


def _machine() -> str:
    server_core, load_core = load.cores()
    where = f"servers on core {server_core}, load on core {load_core}"
    if server_core == load_core:
        where = "ONE core for servers and load together: the ratios mean little"
    return (
        f"CPython {platform.python_version()}, {os.cpu_count()} cores; {where}; "
        f"compiled: {compiled.extent()}."
    )


def _round(
    results: Results, cases: list[Case], peers: list[Server], options: argparse.Namespace
) -> None:
    with contextlib.ExitStack() as stack:
        echo = stack.enter_context(servers.echo())
        ours = _start_ours(stack, results, cases)
        _measure(results, echo, ECHO, options)
        for case in cases:
            _measure(results, ours[case.sync_flush], case, options)
            for peer in peers:
                if peer.sync_flush == case.sync_flush:
                    with _awake(peer):
                        _measure(results, peer, case, options)
        _measure(results, echo, ECHO, options)
        for server in ours.values():
            for name, value in server.metrics("stall").items():
                before = results.metrics.get(name, 0.0)
                results.metrics[name] = before + value if "_total" in name else max(before, value)


def _start_ours(
    stack: contextlib.ExitStack, results: Results, cases: list[Case]
) -> dict[bool, Server]:
    """Start our broker once for each way of flushing that *cases* need."""
    found = {}
    results.interpreter_start_s.append(servers.interpreter_start_s())
    for sync_flush in sorted({case.sync_flush for case in cases}):
        settings = {"flushDiskType": "SYNC_FLUSH" if sync_flush else "ASYNC_FLUSH"}
        server = stack.enter_context(servers.rockhopper(settings))
        time.sleep(SETTLE_S)
        results.start_s.append(server.start_s)
        results.idle_memory_mb.append(server.memory_mb())
        found[sync_flush] = server
    return found


def _start_peers(
    stack: contextlib.ExitStack, cases: list[Case], options: argparse.Namespace
) -> list[Server]:
    """Start Apache's broker for each way of flushing, and run every case until it is compiled."""
    from benchmarks.peers import apache_broker  # only here: it needs the interop project

    found = []
    for sync_flush in sorted({case.sync_flush for case in cases}):
        peer = stack.enter_context(apache_broker(sync_flush=sync_flush))
        found.append(peer)
        with _awake(peer):
            for case in cases:
                if case.sync_flush == sync_flush:
                    _say(f"warming up {peer.name}: {case.title}")
                    _load(peer, case, options.peer_warm_up)
    return found


def _awake(peer: Server) -> contextlib.AbstractContextManager[None]:
    from benchmarks.peers import awake

    return awake(peer)


def _load(server: Server, case: Case, seconds: float) -> Sample:
    if case.mode == "pull":
        load.run(FILL, server.port, server.pid, FILL_S)
    return load.run(case, server.port, server.pid, seconds)


def _measure(results: Results, server: Server, case: Case, options: argparse.Namespace) -> None:
    """Run a case once, and once more if somebody disturbed it."""
    for _ in range(2):
        load.wait_until_quiet(options.patience)
        sample = _load(server, case, options.seconds)
        results.add(server.name, case, sample)
        _say(
            f"  {server.name}, {case.title}: {sample.messages_per_s / 1000:,.1f} k/s, "
            f"CPU {sample.cpu_us:.2f} us, p99 {sample.p99_us / 1000:.2f} ms"
            + ("" if sample.is_quiet else f", DISTURBED by {sample.others_cpu_share:.0%} of a core")
        )
        if sample.is_quiet:
            break


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
