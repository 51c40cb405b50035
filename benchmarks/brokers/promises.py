"""The meaning of an acknowledgement: how often each broker syncs the disk, beside its sends.

One connection sends one message after another for a moment, and strace counts the broker's calls
that wait for the disk. One call per send means that a message is on the disk when it is
acknowledged. A few calls mean that the system writes it later, and that a power failure loses the
messages acknowledged in between. It needs strace, which slows the brokers: the rates are no
figures.
"""

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import load, origin
from benchmarks.brokers import catalog
from benchmarks.brokers.catalog import BROKERS, Broker
from benchmarks.errors import BenchError
from benchmarks.report import table
from benchmarks.results import DIRECTORY
from benchmarks.servers import Server

CALLS = ("fsync", "fdatasync", "msync", "sync_file_range")
SECONDS = 2.0
ATTACHED_WITHIN_S = 1.0


def calls_in(summary: str) -> dict[str, int]:
    """Return how often each call was made, from the output of ``strace -c``."""
    rows = [line.split() for line in summary.splitlines()]
    return {row[-1]: int(row[3]) for row in rows if row and row[-1] in CALLS}


def render(where: str, rows: Sequence[tuple[str, str, int, dict[str, int]]]) -> str:
    """Return the report: each broker's name, version, sends and calls."""
    lines = [["broker", "version", "acknowledged", *CALLS, "of one call, a send"]]
    for name, version, sends, calls in rows:
        most = max(calls.values(), default=0) / sends
        counts = [f"{calls.get(call, 0):,}" for call in CALLS]
        lines.append([name, version, f"{sends:,}", *counts, f"{most:.3f}"])
    return f"{where}\n\n{table(lines)}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Count; return 2 if that is not possible."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.brokers.promises", description=__doc__
    )
    parser.add_argument(
        "--save", action="store_true", help="keep it as benchmarks/results/promises-DATE.md"
    )
    options = parser.parse_args(arguments)
    here = origin.here_and_now("")
    rows = []
    try:
        load.build_loadgen()
        for broker in BROKERS:
            try:
                version = broker.find_version()
            except BenchError as error:
                print(f"{broker.name} is left out: {error}", file=sys.stderr)
                continue
            rows.append((broker.name, version, *_start_and_count(broker)))
    except BenchError as error:
        print(error, file=sys.stderr)
        return 2
    told = render(here.text(), rows)
    if options.save:
        name = f"promises-{here.date.partition('T')[0]}.md"
        (DIRECTORY / name).write_text(told)
    print(told)
    return 0


def _start_and_count(broker: Broker) -> tuple[int, dict[str, int]]:
    with broker.start(broker) as server:
        catalog.await_send(server, broker)
        return count(broker, server)


def count(broker: Broker, server: Server) -> tuple[int, dict[str, int]]:
    """Return how many sends a running broker acknowledged, and its calls meanwhile."""
    if shutil.which("strace") is None:
        raise BenchError("strace is not found: apt-get install strace")
    with tempfile.TemporaryDirectory(prefix="promises-", dir=load.BUILD) as directory:
        summary = Path(directory) / "summary"
        with _counting(server.pid, summary):
            sends = _send(broker, server.port)
        return sends, calls_in(summary.read_text())


@contextlib.contextmanager
def _counting(pid: int, summary: Path) -> Iterator[None]:
    """Count with strace meanwhile; the summary is complete at the end."""
    command = ["strace", "-f", "-c", "-e", f"trace={','.join(CALLS)}", "-o", str(summary)]
    tracer = subprocess.Popen([*command, "-p", str(pid)], stderr=subprocess.DEVNULL)
    try:
        time.sleep(ATTACHED_WITHIN_S)
        yield
    finally:
        tracer.terminate()
        tracer.wait()


def _send(broker: Broker, port: int) -> int:
    command = [str(load.build_loadgen()), "--mode", broker.mode, "--port", str(port)]
    command += ["--connections", "1", "--in-flight", "1", "--warm-up", "0"]
    done = subprocess.run(
        [*command, "--seconds", str(SECONDS)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise BenchError(f"{broker.name}: {done.stderr}{done.stdout}")
    return int(json.loads(done.stdout)["requests"])


if __name__ == "__main__":
    sys.exit(main())
