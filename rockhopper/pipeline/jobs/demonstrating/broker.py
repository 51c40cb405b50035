"""A broker in a process of its own, on free ports, with a temporary store."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rockhopper.pipeline.errors import PipelineError

STOP_TIMEOUT_S = 20


class RunningBroker(NamedTuple):
    """The addresses of the broker and its store."""

    nameserver: str
    store: str


@contextmanager
def run_throw_away_broker() -> Iterator[RunningBroker]:
    """Run a broker inside the block. Raises PipelineError if it does not start."""
    with tempfile.TemporaryDirectory(prefix="rockhopper-demo-") as directory:
        store = str(Path(directory) / "store")
        ports = ("--listen-port", "0", "--namesrv-port", "0", "--http-port", "-1")
        small = ("--set", f"mappedFileSizeCommitLog={64 << 20}")
        where = ("--bind-address", "127.0.0.1", "--store", store)
        # Only the demo receives Ctrl-C; it then stops the broker.
        process = subprocess.Popen(
            [sys.executable, "-m", "rockhopper.broker", *where, *ports, *small],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(log := open(Path(directory) / "broker.log", "wb+")),  # noqa: SIM115
            start_new_session=True,
        )
        try:
            yield RunningBroker(_nameserver(process, Path(log.name)), store)
        finally:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            log.close()


def _nameserver(process: subprocess.Popen[bytes], log: Path) -> str:
    with log.open("rb") as lines:
        while True:
            line = lines.readline()
            if line.startswith(b"{") and line.endswith(b"\n"):
                document = json.loads(line)
                if document.get("event") == "serving":
                    return str(document["nameserver"])
            elif not line:
                try:
                    process.wait(0.05)
                except subprocess.TimeoutExpired:
                    continue
                told = log.read_text("utf-8", "replace").strip().splitlines()
                raise PipelineError(
                    f"the broker of the demo did not start ({told[-1] if told else 'no output'}): "
                    "try python -m rockhopper.broker by itself"
                )
