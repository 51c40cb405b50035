"""Apache's official broker and name service, built from Maven Central and run in one JVM.

`build()` compiles tests/interop/java once; `start()` runs the server. Both are used by the interop
tests and, as the peer to measure beside ours, by benchmarks/.
"""

import os
import shutil
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.interop.processes import LineProcess, ProcessError
from tests.support.free_ports import free_port
from tests.support.one_at_a_time import one_at_a_time

PROJECT = Path(__file__).parent / "java"
TARGET = PROJECT / "target"

QUICK_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss512k")
"""For tests: a JVM that starts fast and stays small. Not for measuring."""

SMALL_FILES = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 1000),
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
}
"""File sizes that make a store roll quickly; both brokers take the same keys."""


class BuildError(Exception):
    """The Maven project could not be built; the message ends with Maven's output."""


def missing_tools() -> list[str]:
    """Return which commands of a JDK and Maven this machine lacks."""
    return [name for name in ("java", "javac", "mvn") if shutil.which(name) is None]


@cache
def build() -> str:
    """Return the class path of the mains in tests/interop/java, compiled when they changed.

    Raises:
        BuildError: a tool is missing, or Maven failed both offline and online.
    """
    if missing := missing_tools():
        raise BuildError(f"Not found: {', '.join(missing)}. Install a JDK (17 or later) and Maven.")
    classpath = TARGET / "classpath"
    with one_at_a_time(PROJECT):
        _compile_to(classpath)
    return f"{TARGET / 'classes'}{os.pathsep}{classpath.read_text().strip()}"


def _compile_to(classpath: Path) -> None:
    if _is_fresh(classpath):
        return
    output = ""
    for offline in (["-o"], []):
        command = ["mvn", "-q", "-B", *offline, "compile"]
        done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
        output = done.stdout + done.stderr
        if done.returncode == 0:
            classpath.touch()
            return
    raise BuildError(f"mvn compile failed in {PROJECT}:\n{output[-3000:]}")


def version() -> str:
    """Return the pinned version of the release."""
    pom = (PROJECT / "pom.xml").read_text()
    return pom.partition("<rocketmq.version>")[2].partition("<")[0]


def jvm_command(main: str, home: Path, heap_mb: int, options: Sequence[str]) -> list[str]:
    """Return the command of one of our mains; what RocketMQ keeps in the home goes to *home*."""
    return [
        "java",
        f"-Xms{min(64, heap_mb)}m",
        f"-Xmx{heap_mb}m",
        f"-Duser.home={home}",
        "-Djava.net.preferIPv4Stack=true",
        *options,
        "-cp",
        build(),
        f"interop.{main}",
    ]


@dataclass(slots=True)
class ApacheServer:
    """A running JVM with a name service, a broker, or both."""

    process: LineProcess
    settings: dict[str, str]
    directory: Path
    """Holds the store and, beside it, the server's settings and logs."""
    broker_port: int = field(default=0)
    namesrv_port: int = field(default=0)

    @property
    def pid(self) -> int:
        """The JVM's process id."""
        return self.process.pid

    @property
    def nameserver(self) -> str:
        """The address of its name service."""
        return f"127.0.0.1:{self.namesrv_port}"

    @property
    def broker_address(self) -> str:
        """The address of its broker."""
        return f"127.0.0.1:{self.broker_port}"

    @property
    def store(self) -> Path:
        """The store's directory."""
        return Path(self.settings["storePathRootDir"])

    def stop(self) -> None:
        """Stop it cleanly, as an operator would."""
        self.process.stop()
        if (self.store / "abort").exists():
            raise ProcessError(f"Stopped, but not cleanly.\n{self.process.last_output()}")

    def kill(self) -> None:
        """Kill the JVM in the middle of whatever it does."""
        self.process.kill()


def start(
    directory: Path,
    *,
    settings: Mapping[str, str] | None = None,
    topics: Sequence[str] = (),
    broker_port: int | None = 0,
    namesrv_port: int | None = 0,
    heap_mb: int = 256,
    jvm_options: Sequence[str] = QUICK_JVM,
    cores: Collection[int] | None = None,
    start_timeout_s: float = 300,
) -> ApacheServer:
    """Start Apache's name service and broker and return when they answer.

    The store is *directory*/store (or `storePathRootDir` of *settings*, which take every key of
    RocketMQ's broker.conf) and is created if absent. *topics* are created if absent, each
    `name:queues` or `name:queues:attribute=value`. Ports of 0 are chosen, None leaves that service
    out; the broker also uses the port two below its own, and one for its slaves.

    Raises:
        BuildError: see build().
        ProcessError: it did not start.
    """
    directory.mkdir(parents=True, exist_ok=True)
    lines = {
        "storePathRootDir": str(directory / "store"),
        "brokerName": "apache",
        "brokerIP1": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        # By default sends that waited 200 ms are refused, as happens while the JVM is still cold.
        "waitTimeMillsInSendQueue": "10000",
        "topics": ",".join(topics),
        **(settings or {}),
    }
    lines.setdefault("storePathCommitLog", f"{lines['storePathRootDir']}/commitlog")
    if namesrv_port is not None:
        namesrv_port = namesrv_port or free_port()
        lines["namesrvPort"] = str(namesrv_port)
        lines.setdefault("namesrvAddr", f"127.0.0.1:{namesrv_port}")
    if broker_port is not None:
        broker_port = broker_port or free_port(below=[2])
        lines["listenPort"] = str(broker_port)
        lines.setdefault("haListenPort", str(free_port()))
    conf = directory / "server.properties"
    conf.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    command = jvm_command("ApacheServer", directory / "home", heap_mb, jvm_options)
    process = LineProcess([*command, str(conf)], directory / "server.log", cores=cores)
    try:
        line = process.read_line(start_timeout_s)
        while not line.startswith("READY"):
            line = process.read_line(start_timeout_s)
    except ProcessError:
        process.kill()
        raise
    return ApacheServer(process, lines, directory, broker_port or 0, namesrv_port or 0)


def _is_fresh(classpath: Path) -> bool:
    if not classpath.exists():
        return False
    built = classpath.stat().st_mtime
    sources = [PROJECT / "pom.xml", *(PROJECT / "src").rglob("*.java")]
    jars = classpath.read_text().strip().split(os.pathsep)
    return all(source.stat().st_mtime <= built for source in sources) and all(
        Path(jar).exists() for jar in jars
    )
