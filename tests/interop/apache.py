"""Apache's official broker and name server, built from Maven Central and run in one JVM.

`build()` compiles tests/interop/java once; `start()` runs the server. Both are used by the interop
tests and, as the peer to measure beside ours, by benchmarks/.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop import maven
from tests.interop.maven import QUICK_JVM as QUICK_JVM
from tests.interop.maven import BuildError as BuildError
from tests.interop.maven import missing_tools as missing_tools
from tests.interop.processes import LineProcess, ProcessError
from tests.support.free_ports import free_port

PROJECT = Path(__file__).parent / "java"

SMALL_FILES = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 1000),
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
}
"""File sizes that make a store roll quickly; both brokers take the same keys."""


def build() -> str:
    """Return the class path of the mains in tests/interop/java, compiled when they changed.

    Raises:
        BuildError: a tool is missing, or Maven failed both offline and online.
    """
    return maven.class_path(PROJECT)


def version() -> str:
    """Return the pinned version of the release."""
    pom = (PROJECT / "pom.xml").read_text()
    return pom.partition("<rocketmq.version>")[2].partition("<")[0]


def jvm_command(main: str, home: Path, heap_mb: int, options: Sequence[str]) -> list[str]:
    """Return the command of one of our mains; what RocketMQ keeps in the home goes to *home*."""
    return maven.command(PROJECT, main, home, heap_mb=heap_mb, options=options)


@dataclass(slots=True)
class ApacheServer:
    """A running JVM with a name server, a broker, or both."""

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
        """The address of its name server."""
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
    """Start Apache's name server and broker and return when they answer.

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
