"""The official clients of RocketMQ 5.x, each behind a small program of ours.

A program reads jobs from its standard input, one JSON object per line, and answers each with one
line: `{"result": ...}` or `{"error": "..."}`. A job names an operation (`op`), an `endpoint`,
whether to use `tls`, perhaps an `accessKey` and a `secretKey`, and a `topic`, `group` and `count`
where the operation needs them:

| op | what it does | result |
|---|---|---|
| `send` | sends `count` messages with a tag, keys and a property | nothing |
| `receive` | receives and acknowledges `count` messages | the messages |
| `normal` | both | the messages |
| `fifo` | sends and receives `count` messages of one message group | the messages |
| `delay` | sends two delayed messages, recalls the first | the second, and how late it was |
| `transaction` | rolls back, commits, forgets | the messages, and which it was asked about |
| `push` | fails a message until it was delivered `count` times, and stays | the attempts |
| `invisible` | receives a message, makes it visible in a second, receives it again | both |
| `hold` | starts clients that stay, sends and receives `before` | the message |
| `resume` | sends and receives `after` with them | the message |
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.interop import maven
from tests.interop.processes import LineProcess
from tests.support.hang import HANG_S
from tests.support.one_at_a_time import one_at_a_time

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
BUILT = ROOT / "build" / "interop-grpc"
ANSWER_TIMEOUT_S = HANG_S

PYTHON_CLIENT = "rocketmq-python-client==5.1.2"


class ProgramError(Exception):
    """A client could not be built, or failed as the message says."""


@dataclass(frozen=True, slots=True)
class Client:
    """How a program is built and run, and what its client cannot do."""

    tools: tuple[str, ...]
    command: Callable[[Path], list[str]]
    """Takes the directory of the client's home; builds first."""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """Reasons, by scenario."""
    must_verify: bool = False
    """Whether it takes only certificates of authorities that it knows."""

    def missing_tools(self) -> list[str]:
        """Return which commands this machine lacks."""
        return [tool for tool in self.tools if shutil.which(tool) is None]


class Program:
    """A running program."""

    def __init__(self, name: str, directory: Path, authority: Path) -> None:
        home = directory / f"{name}-home"
        home.mkdir(parents=True, exist_ok=True)
        environment = {
            "HOME": str(home),
            "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(authority),
            "SSL_CERT_FILE": str(authority),
        }
        command = CLIENTS[name].command(home)
        self.name = name
        self.process = LineProcess(command, directory / f"{name}.log", env=environment, cwd=home)

    def call(self, op: str, **job: object) -> Any:
        """Do one job and return its result. Raises ProgramError."""
        self.begin(op, **job)
        return self.result()

    def begin(self, op: str, **job: object) -> None:
        """Queue a job; its answer comes in its turn."""
        self.process.write_line(json.dumps({"op": op, "tls": False, "count": 1, **job}))

    def result(self) -> Any:
        """Return the result of the oldest job without one. Raises ProgramError."""
        answer = json.loads(self.process.read_line(ANSWER_TIMEOUT_S))
        if "error" in answer:
            raise ProgramError(f"{self.name}: {answer['error']}")
        return answer["result"]

    def close(self) -> None:
        """End it."""
        self.process.kill()


def _run(command: list[str], cwd: Path, **environment: str) -> None:
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, env={**os.environ, **environment}
    )
    if done.returncode != 0:
        output = (done.stdout + done.stderr)[-3000:]
        raise ProgramError(f"{' '.join(command)} failed in {cwd}:\n{output}")


def _fetch(command: list[str], cwd: Path) -> None:
    """Run what only downloads; a client that cannot be had is skipped, and that is said."""
    try:
        _run(command, cwd)
    except ProgramError as error:
        pytest.skip(f"cannot be had here: {error}")


def _is_fresh(built: Path, *sources: Path) -> bool:
    return built.exists() and all(s.stat().st_mtime <= built.stat().st_mtime for s in sources)


def _java(home: Path) -> list[str]:
    return maven.command(HERE / "java", "GrpcClient", home, heap_mb=192)


@cache
def _build_go() -> Path:
    project, program = HERE / "golang", BUILT / "go-client"
    sources = (project / "main.go", project / "go.mod", project / "go.sum")
    with one_at_a_time(project):
        if not _is_fresh(program, *sources):
            BUILT.mkdir(parents=True, exist_ok=True)
            _fetch(["go", "mod", "download"], project)
            _run(["go", "build", "-o", str(program), "."], project)
    return program


@cache
def _install_python(package: str, name: str) -> Path:
    target = BUILT / f"{name}-{package.rpartition('=')[2]}"
    BUILT.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(BUILT):
        if not target.exists():
            partial = target.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            pip = [sys.executable, "-m", "pip", "install", "-q", "--target", str(partial), package]
            _fetch(pip, ROOT)
            partial.rename(target)
    return target


def _python(home: Path) -> list[str]:
    path = _install_python(PYTHON_CLIENT, "python")
    program = str(HERE / "python_client.py")
    start = (
        f"import runpy, sys; sys.path.insert(0, {str(path)!r}); "
        f"runpy.run_path({program!r}, run_name='__main__')"
    )
    return [sys.executable, "-S", "-c", start]


@cache
def _install_node() -> Path:
    project = HERE / "node"
    installed = project / "node_modules" / ".package-lock.json"
    with one_at_a_time(project):
        if not _is_fresh(installed, project / "package-lock.json"):
            _fetch(["npm", "ci", "--prefer-offline", "--no-audit", "--no-fund"], project)
    return project


def _node(home: Path) -> list[str]:
    return ["node", "--max-old-space-size=512", str(_install_node() / "client.js")]


@cache
def _build_rust() -> Path:
    project = HERE / "rust"
    program = project / "target" / "debug" / "rockhopper-interop-grpc"
    with one_at_a_time(project):
        if not _is_fresh(program, project / "src" / "main.rs", project / "Cargo.lock"):
            _fetch(["cargo", "fetch", "--locked"], project)
            _run(["cargo", "build", "--locked"], project, PROTOC=str(_protoc()))
    return program


def _protoc() -> Path:
    """A protoc for the crate's build: that of the Python package."""
    target = _install_python("grpcio-tools==1.76.0", "protoc")
    script = BUILT / "protoc"
    run = f'{sys.executable} -S -m grpc_tools.protoc "$@"'
    script.write_text(f"#!/bin/sh\nPYTHONPATH={target} exec {run}\n")
    script.chmod(0o755)
    return script


NO_RECALL = "the client has no recall; it sends the delayed message alone"

CLIENTS = {
    "java": Client(("java", "javac", "mvn"), _java),
    "go": Client(("go",), lambda home: [str(_build_go())], {"recall": NO_RECALL}),
    "python": Client((), _python, must_verify=True),
    "node": Client(
        ("node", "npm"),
        _node,
        {"several endpoints": "the client takes them for one name, which nobody knows"},
        must_verify=True,
    ),
    "rust": Client(
        ("cargo",),
        lambda home: [str(_build_rust())],
        {
            "recall": NO_RECALL,
            "several endpoints": "the crate takes one URL",
            "push": "the crate has no push consumer",
            "invisible": "the crate cannot change an invisible duration",
            "tls": "the crate's TLS is unfinished: it names no authority and accepts none",
        },
    ),
}
"""Every client that the tests run; SHORT leaves out the one whose crates are built for minutes."""
if os.environ.get("SHORT"):
    del CLIENTS["rust"]
