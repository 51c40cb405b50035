"""A standalone Spark cluster on the loopback address: a master and workers, each a process."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.support.hang import HANG_S

_URL = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"


class Cluster:
    """Runs inside ``with running(...)``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.url = ""
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, workers: int) -> None:
        """Start master and workers, one core each, and wait until they are connected."""
        log = self._spawn("master", "Master", "--port", "0", "--webui-port", "0")
        self.url = self._wait(log, _URL).group(1)
        for number in range(workers):
            scratch = self.directory / f"work-{number}"
            log = self._spawn(
                f"worker-{number}",
                "Worker",
                *("--cores", "1", "--memory", "1g", "--webui-port", "0"),
                *("--work-dir", str(scratch), self.url),
            )
            self._wait(log, re.compile(_REGISTERED))

    def _spawn(self, name: str, kind: str, *arguments: str) -> Path:
        log = self.directory / f"{name}.log"
        main_class = f"org.apache.spark.deploy.{kind.lower()}.{kind}"
        command = ["spark-class", main_class, "--host", "127.0.0.1", *arguments]
        self._processes.append(spawn(command, log))
        return log

    def _wait(self, log: Path, pattern: re.Pattern[str]) -> re.Match[str]:
        return wait_for(log, pattern)

    def executors(self) -> list[int]:
        """Return the process ids of the running executors."""
        found = []
        for process in Path("/proc").iterdir():
            if process.name.isdecimal():
                try:
                    command = (process / "cmdline").read_bytes()
                    directory = Path(os.readlink(process / "cwd"))
                except OSError:
                    continue
                if (
                    b"CoarseGrainedExecutorBackend" in command
                    and self.directory in directory.parents
                ):
                    found.append(int(process.name))
        return sorted(found)

    def stop(self) -> None:
        """End all processes, including executors."""
        for pid in self.executors():
            os.kill(pid, signal.SIGKILL)
        for process in reversed(self._processes):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def spawn(command: list[str], log: Path, **more: str) -> "subprocess.Popen[bytes]":
    """Start one of Spark's programs in its own process group, in the directory of its log."""
    import pyspark

    program = Path(pyspark.__file__).parent / "bin" / command[0]
    with log.open("wb") as output:
        return subprocess.Popen(
            [str(program), *command[1:]],
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
            env=environment() | more,
            start_new_session=True,
        )


def wait_for(log: Path, pattern: re.Pattern[str]) -> re.Match[str]:
    """Wait until *log* matches *pattern*; return the match."""
    deadline = time.monotonic() + HANG_S
    with log.open() as file:
        found = _follow(file, pattern, deadline)
    assert found is not None, f"{log}: {log.read_text()[-3000:]}"
    return found


def _follow(file: IO[str], pattern: re.Pattern[str], deadline: float) -> re.Match[str] | None:
    text = ""
    while time.monotonic() < deadline:
        text += file.read()
        if found := pattern.search(text):
            return found
        time.sleep(0.05)
    return None


def environment() -> dict[str, str]:
    """Return the environment in which cluster and drivers find Java and each other.

    It also sets JAVA_HOME in this process.
    """
    import pyspark

    from rockhopper.pipeline.java import ensure_java
    from rockhopper.pipeline.spark_home import home_without_zip

    ensure_java()
    package = Path(pyspark.__file__).parent
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    return {
        **kept,
        "SPARK_HOME": str(home_without_zip(package) or package),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }


@contextmanager
def running(directory: Path, workers: int = 2) -> Iterator[Cluster]:
    """Run a cluster whose files are in *directory*."""
    cluster = Cluster(directory)
    try:
        cluster.start(workers)
        yield cluster
    finally:
        cluster.stop()
