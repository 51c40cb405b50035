"""The servers under load, each in its own process: the echo, our broker, Apache's."""

import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks import topics
from benchmarks.errors import BenchError
from benchmarks.load import BUILD, HERE, cores
from rockhopper.broker.store.files import disk
from rockhopper.protocol.signing import Credentials

START_TIMEOUT_S = 30
SYNC_COUNT = 200


@dataclass(slots=True)
class Server:
    """A running server."""

    name: str
    port: int
    pid: int
    http_port: int = 0
    start_s: float = 0.0
    """The time from spawning the process to the first accepted connection."""
    setup: str = ""
    namesrv_port: int = 0
    log: Path | None = None
    """The directory of its commit log."""
    admin: Credentials | None = None
    """The administrator, if it requires users."""

    def memory_mb(self) -> float:
        """Return the resident memory, including mapped files."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise BenchError(f"{self.name} is gone.")

    def metrics(self, part: str) -> dict[str, float]:
        """Return the values of /metrics whose name contains *part*; empty without metrics."""
        if not self.http_port:
            return {}
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        samples = (line.rsplit(" ", 1) for line in lines if part in line and line[0] != "#")
        return {name: float(value) for name, value in samples}


def free_ports(count: int) -> list[int]:
    """Return ports on which no process listens at the moment."""
    with contextlib.ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return [listener.getsockname()[1] for listener in sockets]


@contextlib.contextmanager
def echo() -> Iterator[Server]:
    """Run the bare echo on the servers' core."""
    command = [sys.executable, str(HERE / "echo_server.py")]
    with _process(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline() or 0)
        if not port:
            raise BenchError("The echo server did not start.")
        yield Server("echo", port, process.pid)


@contextlib.contextmanager
def rockhopper(settings: Mapping[str, str], directory: Path | None = None) -> Iterator[Server]:
    """Run our broker on the servers' core with an empty store, which is removed at the end."""
    BUILD.mkdir(exist_ok=True)
    admin = topics.ADMIN if "authenticationEnabled" in settings else None
    with tempfile.TemporaryDirectory(prefix="store-", dir=directory or BUILD) as store:
        port, namesrv_port, http_port = free_ports(3)
        lines = {
            "storePathRootDir": store,
            "bindAddress": "127.0.0.1",
            "listenPort": str(port),
            "namesrvPort": str(namesrv_port),
            "httpPort": str(http_port),
            **settings,
        }
        if admin is not None:
            user = {"username": admin.access_key, "password": admin.secret}
            lines["initAuthenticationUser"] = json.dumps(user)
        conf = Path(store + ".conf")
        conf.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        log = Path(store + ".log")
        try:
            command = [sys.executable, "-m", "rockhopper.broker", "-c", str(conf)]
            started = time.perf_counter()
            with log.open("w") as stderr, _process(command, stderr=stderr) as process:
                _wait_for_port(process, port, log)
                start_s = time.perf_counter() - started
                topics.prepare(port, admin)
                yield Server(
                    "Rockhopper",
                    port,
                    process.pid,
                    http_port,
                    start_s,
                    namesrv_port=namesrv_port,
                    log=Path(store) / "commitlog",
                    admin=admin,
                )
        finally:
            conf.unlink()
            log.unlink()


@contextlib.contextmanager
def broker_on(store: Path, *options: str) -> Iterator[str]:
    """Run our broker on all cores, on a store that remains; yield its name server."""
    command = [sys.executable, "-m", "rockhopper.broker", "--store", str(store), *options]
    command += ["--listen-port", "0", "--namesrv-port", "0", "--http-port", "-1"]
    process = subprocess.Popen(
        [*command, "--bind-address", "127.0.0.1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            document = json.loads(line) if line.startswith("{") else {}
            if document.get("event") == "serving":
                yield document["nameserver"]
                break
        else:
            raise BenchError(f"the broker did not start on {store}")
    finally:
        process.terminate()
        process.communicate()


LIBRARIES = "asyncio, click, msgpack, msgspec, structlog, uvloop"
"""The libraries that each broker imports: five of others, and asyncio."""


def interpreter_start_s(libraries: str = "") -> float:
    """Return the time of an interpreter that imports *libraries*, to compare with a broker's."""
    # As the broker does, without rich, which structlog would import.
    imports = f"import sys; sys.modules['rich'] = None; import {libraries}"
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", imports if libraries else "pass"], check=True)
    return time.perf_counter() - started


def fdatasync_us(directory: Path, size_bytes: int) -> float:
    """Return the median time of an fdatasync after an append of *size_bytes*.

    The file is preallocated and synced as the store's files are.
    """
    data, durations = b"x" * size_bytes, []
    os.sync()
    with tempfile.TemporaryFile(dir=directory) as file:
        disk.preallocate(file.fileno(), SYNC_COUNT * size_bytes)
        os.fsync(file.fileno())
        for number in range(SYNC_COUNT):
            os.pwrite(file.fileno(), data, number * size_bytes)
            started = time.perf_counter()
            disk.sync_file(file.fileno())
            durations.append(time.perf_counter() - started)
    return statistics.median(durations) * 1e6


@contextlib.contextmanager
def _process(command: list[str], **streams: object) -> Iterator["subprocess.Popen[str]"]:
    """Run *command* on the servers' core and terminate it at the end."""
    core = cores()[0]
    process = subprocess.Popen(
        command,
        text=True,
        cwd=HERE.parent,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        **streams,  # type: ignore[call-overload]
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()


def _wait_for_port(process: "subprocess.Popen[str]", port: int, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        time.sleep(0.001)
    raise BenchError(f"The broker did not start:\n{log.read_text()[-2000:]}")
