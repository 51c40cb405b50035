"""The compared brokers: how each is started, its settings, and its kind of sends.

They come from the usual sources: Debian (`apt-get install redis-server nats-server
rabbitmq-server`) or Go (`go install github.com/nats-io/nats-server/v2@latest`), and Maven for Kafka
and Apache RocketMQ. Missing brokers are skipped. Each runs alone on the servers' core, in an empty
directory, with its own defaults except for the settings here.
"""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import load, servers
from benchmarks.errors import BenchError
from benchmarks.load import BUILD
from benchmarks.servers import Server
from benchmarks.topics import QUEUE_COUNT
from rockhopper.protocol import compiled

STOPPED_WITHIN_S = 60
RABBITMQ_SCRIPTS = "/usr/lib/rabbitmq/bin"
"""Debian's directory of the scripts that do not switch the user first."""
Start = Callable[["Broker"], contextlib.AbstractContextManager[Server]]


@dataclass(frozen=True, slots=True)
class Broker:
    """One row of a table: a broker with its settings."""

    name: str
    product: str
    start: Start
    """Yields the server when its process runs; it need not accept sends yet."""
    find_version: Callable[[], str]
    """Raises BenchError if the broker is not installed."""
    mode: str
    """The load generator's mode for single sends."""
    settings: str
    """The settings in words, for people."""
    promise: str
    """What has happened to a message when its send is acknowledged, in words."""
    modes: Mapping[str, str] = field(default_factory=dict)
    """The load generator's mode for each shape that is no plain send; without: not measured."""
    clients: tuple[str, ...] = ()
    """The Python clients that are measured with it."""
    options: tuple[str, ...] = ()
    is_synced: bool = False
    """Whether it is configured to write a message to the disk before the acknowledgement."""
    is_jvm: bool = False
    shapes: tuple[str, ...] = ()
    """Empty: all shapes, and both sizes."""
    connects_slowly: bool = False
    """Whether a thousand connections take longer than all other shapes.

    They are then measured in one round only, and five thousand not at all.
    """
    clean: Callable[[Server], None] = lambda server: None
    """Called before each cell."""


def _executable(name: str, how: str, path: str | None = None) -> str:
    if found := shutil.which(name, path=path):
        return found
    raise BenchError(f"{name} is not found: {how}")


def _said(command: list[str], pattern: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if match := re.search(pattern, done.stdout + done.stderr):
        return match[1]
    raise BenchError(f"{command[0]} does not tell its version: {done.stdout}{done.stderr}")


@contextlib.contextmanager
def _directory(prefix: str) -> Iterator[Path]:
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{prefix}-", dir=BUILD) as name:
        yield Path(name)


@contextlib.contextmanager
def _process(
    command: list[str], directory: Path, environment: Mapping[str, str] | None = None
) -> Iterator[int]:
    """Run *command* on the servers' core; its output goes to directory/output."""
    core = load.cores()[0]
    with (directory / "output").open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=directory,
            env={**os.environ, **(environment or {})},
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )
    try:
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


REDIS = "apt-get install redis-server"


def _redis_version() -> str:
    return _said([_executable("redis-server", REDIS), "--version"], r"v=([\d.]+)")


@contextlib.contextmanager
def _redis(broker: Broker) -> Iterator[Server]:
    (port,) = servers.free_ports(1)
    with _directory("redis") as directory:
        command = [_executable("redis-server", REDIS), "--port", str(port), "--bind", "127.0.0.1"]
        command += ["--dir", str(directory), *broker.options]
        with _process(command, directory) as pid:
            yield Server(broker.name, port, pid, log=directory / "output")


def _empty_redis(server: Server) -> None:
    """Delete all streams, because they are in Redis's memory."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=STOPPED_WITHIN_S) as client:
        client.sendall(b"FLUSHALL\r\n")
        if not (answer := client.recv(100)).startswith(b"+OK"):
            raise BenchError(f"Redis refused: {answer.decode(errors='replace')}")


NATS = "apt-get install nats-server, or go install github.com/nats-io/nats-server/v2@latest"


def _nats_version() -> str:
    return _said([_executable("nats-server", NATS), "--version"], r"v?(\d+\.\d+\.\d+)")


@contextlib.contextmanager
def _nats(broker: Broker) -> Iterator[Server]:
    (port,) = servers.free_ports(1)
    with _directory("nats") as directory:
        store = [f'store_dir: "{directory}"', *broker.options]
        config = directory / "nats.conf"
        config.write_text(f"listen: 127.0.0.1:{port}\njetstream {{\n" + "\n".join(store) + "\n}\n")
        command = [_executable("nats-server", NATS), "-c", str(config)]
        with _process(command, directory) as pid:
            yield Server(broker.name, port, pid, log=directory / "output")


RABBITMQ = "apt-get install rabbitmq-server"


def _rabbitmq_script() -> str:
    path = f"{os.environ.get('PATH', '')}:{RABBITMQ_SCRIPTS}"
    found = _executable("rabbitmq-server", RABBITMQ, path)
    own = Path(RABBITMQ_SCRIPTS) / "rabbitmq-server"
    return str(own) if found == "/usr/sbin/rabbitmq-server" and own.exists() else found


def _rabbitmq_version() -> str:
    """Start RabbitMQ and read the version from its log, because no command returns it before."""
    with _rabbitmq(RABBITMQ_CLASSIC) as server:
        await_send(server, RABBITMQ_CLASSIC)
        assert server.log
        return _found_in(server.log, r"RabbitMQ (\d+\.\d+\.\d+)")


def _found_in(log: Path, pattern: str) -> str:
    match = re.search(pattern, log.read_text(errors="replace"))
    return match[1] if match else "unknown"


@contextlib.contextmanager
def _rabbitmq(broker: Broker) -> Iterator[Server]:
    script, epmd = _rabbitmq_script(), _executable("epmd", RABBITMQ)
    port, nodes_port, names_port = servers.free_ports(3)
    with _directory("rabbitmq") as directory, contextlib.ExitStack() as stack:
        environment = {
            "HOME": str(directory),
            "RUNNING_UNDER_SYSTEMD": "1",  # its script execs the broker, so its pid is the broker's
            "ERL_EPMD_PORT": str(names_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"brokers{port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(nodes_port),
            "RABBITMQ_MNESIA_BASE": str(directory / "data"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        }
        names = directory / "names"
        names.mkdir()
        # The broker would start one that outlives it.
        stack.enter_context(_process([epmd, "-port", str(names_port)], names, environment))
        with _process([script], directory, environment) as pid:
            yield Server(broker.name, port, pid, log=directory / "output")


def _kafka_version() -> str:
    from benchmarks import kafka

    kafka.jars("broker")
    return kafka.version("kafka")


@contextlib.contextmanager
def _kafka(broker: Broker) -> Iterator[Server]:
    from benchmarks import kafka

    with _directory("kafka") as directory:
        (port, controller) = servers.free_ports(2)
        command = kafka.prepare(directory, port, controller, dict(_pairs(broker.options)))
        with _process(command, directory) as pid:
            yield Server(broker.name, port, pid, log=directory / "output")


def _pairs(options: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for option in options:
        key, _, value = option.partition("=")
        yield key, value


def _apache_version() -> str:
    from tests.interop import apache

    try:
        apache.build()
    except apache.BuildError as error:
        raise BenchError(str(error)) from error
    return apache.version()


@contextlib.contextmanager
def _apache(broker: Broker) -> Iterator[Server]:
    from benchmarks.peers import apache_broker

    setup = "sync" if broker.is_synced else "async"
    with apache_broker(setup, {load.cores()[0]}) as server:
        yield server


def _our_version() -> str:
    import rockhopper

    return str(rockhopper.__version__)


@contextlib.contextmanager
def _rockhopper(broker: Broker) -> Iterator[Server]:
    with servers.rockhopper(dict(_pairs(broker.options))) as server:
        yield server


@contextlib.contextmanager
def _pure_rockhopper(broker: Broker) -> Iterator[Server]:
    os.environ[compiled.SWITCH] = "1"
    try:
        with servers.rockhopper(dict(_pairs(broker.options))) as server:
            yield server
    finally:
        del os.environ[compiled.SWITCH]


def age_s(pid: int) -> float:
    """Return the age of the process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    started_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_s


def await_send(server: Server, broker: Broker, more: Sequence[str] = ()) -> None:
    """Return when the broker has acknowledged a send. Raises BenchError.

    *more* are options of the load generator, which say what is sent.
    """
    deadline_s = time.monotonic() + servers.START_TIMEOUT_S * 4
    command = [str(load.build_loadgen()), "--mode", broker.mode, "--port", str(server.port)]
    command += ["--connections", "1", "--in-flight", "1", "--warm-up", "0", "--seconds", "0.001"]
    command += more
    while True:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            return
        if _has_ended(server.pid):
            raise BenchError(f"{broker.name} ended at its start: {read_last_line(server)}")
        if time.monotonic() > deadline_s:
            raise BenchError(f"{broker.name} acknowledges nothing: {done.stderr}{done.stdout}")
        time.sleep(0.01)


def _has_ended(pid: int) -> bool:
    """Return whether the process only waits for its parent."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


def read_last_line(server: Server) -> str:
    """Return the last line that *server* wrote."""
    if not server.log or not server.log.is_file():
        return "it left no output"
    line = server.log.read_text(errors="replace").strip().rpartition("\n")[2]
    # Results are published: they name no folder of this machine.
    return line.replace(f"{BUILD}/", "")


_FEW = ("100x1", "4x64")
_REDIS_FILE = ("--save", "", "--auto-aof-rewrite-percentage", "0", "--appendonly", "yes")
_REDIS_TEXT = "no snapshots and no rewriting of the file, which would slow it"
_QUEUES = f"num.partitions={QUEUE_COUNT}"
_ROCKETMQ_MODES = {
    "batch": "batch",
    "pull": "pull",
    "longpull": "longpull",
    "pop": "pop",
    "half": "transaction",
}
_SYNCED = "on the disk: fsync before the acknowledgement"

RABBITMQ_CLASSIC = Broker(
    *("RabbitMQ, classic queues", "RabbitMQ", _rabbitmq, _rabbitmq_version, "amqp"),
    "durable queues, persistent messages, publisher confirms",
    "handed to the file system, in batches; no fsync",
    clients=("aio-pika",),
    connects_slowly=True,
)

BROKERS = (
    Broker(
        *("Rockhopper", "Rockhopper", _rockhopper, _our_version, "single"),
        "flushDiskType=ASYNC_FLUSH, which is the default",
        "written to the log's file; fsync within 500 ms",
        modes=_ROCKETMQ_MODES,
        clients=("rockhopper",),
        options=("flushDiskType=ASYNC_FLUSH",),
    ),
    Broker(
        *("Apache RocketMQ", "Apache RocketMQ", _apache, _apache_version, "single"),
        "flushDiskType=ASYNC_FLUSH, which is the default; heap of 2 GB, touched at the start",
        "copied into a mapped file; fsync every 500 ms if 4 pages are dirty, or after 10 s",
        modes=_ROCKETMQ_MODES,
        clients=("rockhopper",),
        is_jvm=True,
    ),
    Broker(
        *("Kafka", "Kafka", _kafka, _kafka_version, "kafka"),
        "one broker, KRaft; acks=all, no idempotence; heap of 1 GB",
        "written to the log's file; no fsync",
        modes={"batch": "kafka-batch", "pull": "kafka-fetch"},
        clients=("confluent-kafka", "aiokafka"),
        options=(_QUEUES,),
        is_jvm=True,
    ),
    Broker(
        *("NATS JetStream", "NATS", _nats, _nats_version, "nats"),
        "streams in files, one replica; sync_interval=2m, which is the default",
        "written to the stream's file; fsync within 2 minutes",
        clients=("nats-py",),
    ),
    RABBITMQ_CLASSIC,
    Broker(
        *("RabbitMQ, quorum queues", "RabbitMQ", _rabbitmq, _rabbitmq_version, "amqp-quorum"),
        "quorum queues of one member, publisher confirms",
        "on the disk of a majority, which is one member here: fsync of many messages at once",
        connects_slowly=True,
    ),
    Broker(
        *("Redis Streams", "Redis", _redis, _redis_version, "redis"),
        f"appendonly yes, appendfsync everysec; {_REDIS_TEXT}",
        "written to the file; fsync once a second",
        modes={"pull": "redis-range"},
        clients=("redis-py",),
        options=(*_REDIS_FILE, "--appendfsync", "everysec"),
        clean=_empty_redis,
    ),
    Broker(
        *("Rockhopper, not compiled", "Rockhopper", _pure_rockhopper, _our_version, "single"),
        f"the same with {compiled.SWITCH}=1",
        "written to the log's file; fsync within 500 ms",
        options=("flushDiskType=ASYNC_FLUSH",),
        shapes=_FEW,
    ),
    Broker(
        *("Rockhopper, SYNC_FLUSH", "Rockhopper", _rockhopper, _our_version, "single"),
        *("flushDiskType=SYNC_FLUSH", _SYNCED),
        options=("flushDiskType=SYNC_FLUSH",),
        is_synced=True,
        shapes=_FEW,
    ),
    Broker(
        *("Apache RocketMQ, SYNC_FLUSH", "Apache RocketMQ", _apache, _apache_version, "single"),
        *("flushDiskType=SYNC_FLUSH", _SYNCED),
        is_synced=True,
        is_jvm=True,
        shapes=_FEW,
    ),
    Broker(
        *("Kafka, flush.messages=1", "Kafka", _kafka, _kafka_version, "kafka"),
        *("the same with log.flush.interval.messages=1", _SYNCED),
        options=(_QUEUES, "log.flush.interval.messages=1"),
        is_synced=True,
        is_jvm=True,
        shapes=_FEW,
    ),
    Broker(
        *("NATS JetStream, sync always", "NATS", _nats, _nats_version, "nats"),
        *("sync_interval=always", _SYNCED),
        options=("sync_interval: always",),
        is_synced=True,
        shapes=_FEW,
    ),
    Broker(
        *("Redis Streams, fsync always", "Redis", _redis, _redis_version, "redis"),
        f"appendonly yes, appendfsync always; {_REDIS_TEXT}",
        _SYNCED,
        options=(*_REDIS_FILE, "--appendfsync", "always"),
        clean=_empty_redis,
        is_synced=True,
        shapes=_FEW,
    ),
)
