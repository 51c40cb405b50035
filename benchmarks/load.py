"""Compiling and running the load generator."""

import functools
import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cases import Case
from benchmarks.errors import BenchError
from benchmarks.topics import SENDER

HERE = Path(__file__).parent
BUILD = HERE / ".build"
WARM_UP_S = 0.5
# A share of one core, used by processes other than server and load: above it, a run is disturbed.
OTHERS_SHARE_MAX = 0.1
QUIET_SPAN_S = 0.3
CONNECTED_WITHIN_S = 0.1
"""The time for one connection, including the handshake of the slowest protocol."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one case against one server."""

    messages_per_s: float
    cpu_us: float
    """CPU time of the server per message, in microseconds."""
    cpu_share: float
    """CPU seconds of the server per second; 1.0 is one whole core."""
    load_cpu_share: float
    """CPU seconds of the load generator per second: near 1.0 it is the bottleneck."""
    others_cpu_share: float
    """CPU seconds of all else per second; the run is not quiet if this is not near 0."""
    p50_us: float
    p99_us: float
    max_us: float
    is_quiet: bool
    """Whether no other process disturbed the run."""
    failures: dict[str, int]
    """The number of errors by kind; empty if there are none.

    The kinds are answers that are refused, have a foreign opaque, are missing, or have too few
    messages, and messages that are not in the queues.
    """
    refusal: str
    round: int = 0


@functools.cache
def cores() -> tuple[int, int]:
    """Return the core for the server and the one for the load; the same if there is only one."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[0], allowed[-1]


def build_loadgen() -> Path:
    """Compile loadgen/ if it has changed since the last build."""
    folder, binary = HERE / "loadgen", BUILD / "loadgen"
    changed = max(path.stat().st_mtime for path in folder.iterdir())
    if binary.exists() and binary.stat().st_mtime > changed:
        return binary
    BUILD.mkdir(exist_ok=True)
    compiler = os.environ.get("CC", "cc")
    sources = sorted(map(str, folder.glob("*.c")))
    command = [compiler, "-O2", "-Wall", "-Wextra", "-o", str(binary), *sources]
    try:
        subprocess.run(command, check=True)
    except FileNotFoundError:
        raise BenchError(
            f"There is no C compiler {compiler!r}; install one, or name yours in CC."
        ) from None
    except subprocess.CalledProcessError as error:
        raise BenchError(f"{compiler} could not compile {folder.name}/.") from error
    return binary


def wait_until_quiet(patience_s: float) -> bool:
    """Wait at most *patience_s* for a quiet machine; return whether it became quiet."""
    deadline = time.monotonic() + patience_s
    while True:
        busy_before, started = _machine_cpu_s(), time.monotonic()
        time.sleep(QUIET_SPAN_S)
        share = (_machine_cpu_s() - busy_before) / (time.monotonic() - started)
        if share <= OTHERS_SHARE_MAX:
            return True
        if time.monotonic() > deadline:
            return False


def run(case: Case, port: int, pid: int, seconds: float, warm_up_s: float = WARM_UP_S) -> Sample:
    """Put the load of *case* on the server at *port* whose process is *pid*."""
    core = cores()[1]
    sender = ("--access-key", SENDER.access_key, "--secret", SENDER.secret)
    command = [
        *(str(build_loadgen()), "--mode", case.mode, "--port", str(port), "--pid", str(pid)),
        *("--connections", str(case.connections), "--in-flight", str(case.in_flight)),
        *("--body", str(case.body_size_bytes), "--flood", str(case.flood)),
        *("--batch", str(case.messages_per_request)),
        *("--topic", case.topic, "--topics", str(case.topics), "--queues", str(case.queues)),
        *("--rate", str(case.rate_per_s), "--delay-level", str(case.delay_level)),
        *(["--property"] if case.with_property else []),
        *(sender if case.setup == "users" else ()),
        *("--seconds", str(seconds), "--warm-up", str(warm_up_s)),
    ]
    os.sync()  # pending writes of earlier runs would slow this one
    busy_before, started = _machine_cpu_s(), time.monotonic()
    timeout_s = seconds + warm_up_s + 60 + case.connections * CONNECTED_WITHIN_S
    try:
        process = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{case.title}: no end within {timeout_s:.0f} s") from error
    busy_share = (_machine_cpu_s() - busy_before) / (time.monotonic() - started)
    if not process.stdout:
        raise BenchError(f"The load generator gave up on {case.title}: {process.stderr.strip()}")
    result = json.loads(process.stdout)
    counters = ("refused", "mismatched", "unanswered", "short_pulls", "lost")
    refusal = f"code {result['first_refusal']} {result['first_remark']}".rstrip()
    failures = {name: result[name] for name in counters if result[name]}
    if not result["messages"]:
        failures["without any message"] = 1
    others_share = max(0.0, busy_share - result["cpu_share"] - result["load_cpu_share"])
    return Sample(
        messages_per_s=result["messages_per_s"],
        cpu_us=result["cpu_us_per_message"],
        cpu_share=result["cpu_share"],
        load_cpu_share=result["load_cpu_share"],
        others_cpu_share=others_share,
        is_quiet=others_share <= OTHERS_SHARE_MAX,
        p50_us=result["p50_us"],
        p99_us=result["p99_us"],
        max_us=result["max_us"],
        failures=failures,
        refusal=refusal if result["refused"] else "",
    )


def _machine_cpu_s() -> float:
    """Return the CPU seconds that all cores have been busy, including the host's neighbours."""
    with open("/proc/stat") as file:
        user, nice, system, _idle, _wait, *others = map(int, file.readline().split()[1:9])
    return (user + nice + system + sum(others)) / os.sysconf("SC_CLK_TCK")
