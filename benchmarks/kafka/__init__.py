"""Kafka's broker and Spark's connector to it, from Maven Central, to measure beside ours."""

import contextlib
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.errors import BenchError
from benchmarks.load import BUILD
from tests.support.free_ports import free_port

PROJECT = Path(__file__).parent
STARTED_WITHIN_S = 120
JVM_OPTIONS = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC")


def version(name: str) -> str:
    """Return the pinned version of ``kafka`` or of the connector's ``spark``."""
    return (PROJECT / "pom.xml").read_text().partition(f"<{name}.version>")[2].partition("<")[0]


def jars(profile: str) -> list[Path]:
    """Return the jars that the pom names for ``broker`` or ``spark``. Raises BenchError."""
    if missing := [name for name in ("java", "mvn") if shutil.which(name) is None]:
        raise BenchError(f"Not found: {', '.join(missing)}. Install a JDK (17 or later) and Maven.")
    target = BUILD / "kafka" / f"{profile}-{version('kafka')}-{version('spark')}"
    if not target.exists():
        partial = target.with_suffix(".partial")
        command = ["mvn", "-q", "-B", f"-P{profile}", "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={partial}", "-DincludeScope=runtime"]
        done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
        if done.returncode != 0:
            raise BenchError(f"Maven cannot fetch Kafka:\n{(done.stdout + done.stderr)[-2000:]}")
        partial.rename(target)
    return sorted(target.glob("*.jar"))


@contextlib.contextmanager
def broker(directory: Path, topics: Mapping[str, int]) -> Iterator[str]:
    """Run one KRaft broker with these topics and their partitions; yield its bootstrap address."""
    directory.mkdir(parents=True)
    port, controller = free_port(), free_port()
    command = prepare(directory, port, controller, {})
    java = command[:-2]
    log = (directory / "log").open("a")
    with log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _await(port, process, directory / "log")
            for name, partitions in topics.items():
                create = ["org.apache.kafka.tools.TopicCommand", "--create", "--topic", name]
                create += ["--partitions", str(partitions)]
                create += ["--bootstrap-server", f"127.0.0.1:{port}"]
                done = subprocess.run([*java, *create], stdout=log, stderr=log)
                if done.returncode != 0:
                    raise BenchError(f"no topic can be made:\n{_end(directory / 'log')}")
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


def prepare(directory: Path, port: int, controller: int, more: Mapping[str, str]) -> list[str]:
    """Format the storage of one broker in *directory*; return the command that runs it.

    *more* are additional settings. Raises BenchError.
    """
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(directory / "logs"),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        **more,
    }
    config = directory / "server.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    java = ["java", *JVM_OPTIONS, "-cp", ":".join(map(str, jars("broker")))]
    cluster = uuid.uuid4().hex[:22]
    format_command = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(config)]
    with (directory / "log").open("w") as log:
        done = subprocess.run([*java, *format_command], stdout=log, stderr=log)
    if done.returncode != 0:
        raise BenchError(f"Kafka's storage cannot be formatted:\n{_end(directory / 'log')}")
    return [*java, "kafka.Kafka", str(config)]


def _await(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline_s = time.monotonic() + STARTED_WITHIN_S
    while process.poll() is None and time.monotonic() < deadline_s:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.2)
    raise BenchError(f"Kafka did not start:\n{_end(log)}")


def _end(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]
