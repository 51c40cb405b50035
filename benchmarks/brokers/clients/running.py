"""Runs a client in a process of its own on the load's core, and reads what it prints."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks import load
from benchmarks.brokers.results import ClientSample
from benchmarks.load import HERE
from benchmarks.servers import Server

ENDED_WITHIN_S = 900.0


@dataclass(slots=True)
class ClientRun:
    """What one client's process printed."""

    version: str = ""
    ways: dict[str, str] = field(default_factory=dict)
    """How each way is done."""
    samples: dict[str, list[ClientSample]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def run_client(name: str, server: Server, options: Sequence[str]) -> ClientRun:
    """Measure one client against a running broker; what it could not measure is in failures."""
    command = [sys.executable, "-m", "benchmarks.brokers.clients", name, *options]
    command += ["--port", str(server.port), "--pid", str(server.pid)]
    command += ["--nameserver-port", str(server.namesrv_port)]
    core = load.cores()[1]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=HERE.parent,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )
    try:
        output, errors = process.communicate(timeout=ENDED_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
        errors += f"\nstopped after {ENDED_WITHIN_S:.0f} s"
    found = read_lines(output)
    if process.returncode:
        last = errors.strip().splitlines()[-1:]
        found.failures.append("".join(last) or f"ended with status {process.returncode}")
    return found


def read_lines(output: str) -> ClientRun:
    """Return what the lines of a client's output say; a last line that is cut is left out."""
    found = ClientRun()
    for line in output.splitlines(keepends=True):
        if not line.endswith("\n"):
            break
        document = json.loads(line)
        if "version" in document:
            found.version, found.ways = document["version"], document["ways"]
        elif "failure" in document:
            found.failures.append(f"{document['way']}: {document['failure']}")
        else:
            samples = [ClientSample(**each) for each in document["samples"]]
            found.samples[document["way"]] = samples
    return found
