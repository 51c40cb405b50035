"""ali-ons, a JavaScript client of RocketMQ's remoting protocol, run as a Node process per job."""

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from tests.interop.processes import LineProcess
from tests.support.hang import HANG_S
from tests.support.one_at_a_time import one_at_a_time

PROJECT = Path(__file__).parent / "node"
ANSWER_TIMEOUT_S = HANG_S


class NodeError(Exception):
    """npm or a Node script failed as the message says."""


def missing_tools() -> list[str]:
    """Return which commands this machine lacks."""
    return [name for name in ("node", "npm") if shutil.which(name) is None]


@cache
def install() -> None:
    """Install what package-lock.json pins, unless it is there already.

    Raises:
        NodeError: npm failed.
    """
    with one_at_a_time(PROJECT):
        _install_locked()


def _install_locked() -> None:
    installed = PROJECT / "node_modules" / ".package-lock.json"
    locked = PROJECT / "package-lock.json"
    if installed.exists() and installed.stat().st_mtime >= locked.stat().st_mtime:
        return
    command = ["npm", "ci", "--prefer-offline", "--no-audit", "--no-fund"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    if done.returncode != 0:
        raise NodeError(f"npm ci failed in {PROJECT}:\n{(done.stdout + done.stderr)[-3000:]}")


class NodeJob:
    """A running script of tests/interop/node."""

    def __init__(self, script: str, directory: Path, **options: object) -> None:
        install()
        directory.mkdir(parents=True, exist_ok=True)
        command = ["node", "--max-old-space-size=512", str(PROJECT / script), json.dumps(options)]
        environment = {"HOME": str(directory / "home")}
        self.process = LineProcess(command, directory / "node.log", env=environment)

    def result(self, timeout_s: float) -> Any:
        """Return what the script answers.

        Raises:
            NodeError: the script failed.
            ProcessError: it did not answer.
        """
        try:
            answer = json.loads(self.process.read_line(timeout_s))
        finally:
            self.process.kill()
        if "error" in answer:
            raise NodeError(f"{answer['error']}\n{self.process.last_output()}")
        return answer["result"]


def run(script: str, directory: Path, **options: object) -> Any:
    """Run a script of tests/interop/node and return what it answers."""
    return NodeJob(script, directory, **options).result(ANSWER_TIMEOUT_S)
