"""Apache's proxy in local mode, with its broker and name server in the same JVM."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.interop import maven
from tests.interop.maven import QUICK_JVM
from tests.interop.processes import LineProcess, ProcessError
from tests.support.free_ports import free_port

PROJECT = Path(__file__).parent / "proxy"


@dataclass(slots=True)
class ApacheProxy:
    """A running JVM."""

    process: LineProcess
    grpc_port: int
    namesrv_port: int

    @property
    def pid(self) -> int:
        """The JVM's process id."""
        return self.process.pid

    @property
    def endpoint(self) -> str:
        """The address that clients of RocketMQ 5.x are given."""
        return f"127.0.0.1:{self.grpc_port}"

    @property
    def nameserver(self) -> str:
        """The address of its name server."""
        return f"127.0.0.1:{self.namesrv_port}"

    def kill(self) -> None:
        """Kill the JVM in the middle of whatever it does."""
        self.process.kill()


@dataclass(slots=True)
class Ports:
    """What a proxy listens on; to start it again under the same, pass them again."""

    grpc: int
    remoting: int
    broker: int
    namesrv: int
    replicas: int

    @classmethod
    def free(cls) -> "Ports":
        """Ports that nobody listens on."""
        return cls(free_port(), free_port(), free_port(below=[2]), free_port(), free_port())


def start(
    directory: Path,
    *,
    settings: Mapping[str, str] | None = None,
    proxy_settings: Mapping[str, object] | None = None,
    ports: Ports | None = None,
    heap_mb: int = 512,
    jvm_options: Sequence[str] = QUICK_JVM,
    cores: Collection[int] | None = None,
    start_timeout_s: float = 300,
) -> ApacheProxy:
    """Start all three and return when the endpoint answers, by TLS and without.

    *settings* are those of broker.conf, *proxy_settings* those of rmq-proxy.json.

    Raises:
        BuildError: see maven.class_path().
        ProcessError: it did not start.
    """
    directory.mkdir(parents=True, exist_ok=True)
    ports = ports or Ports.free()
    _write_broker_conf(directory, ports, settings or {})
    proxy = {
        "rocketMQClusterName": "DefaultCluster",
        "localServeAddr": "127.0.0.1",
        "grpcServerPort": ports.grpc,
        "remotingListenPort": ports.remoting,
        **(proxy_settings or {}),
    }
    (directory / "rmq-proxy.json").write_text(json.dumps(proxy))
    command = maven.command(
        PROJECT, "ApacheProxy", directory / "home", heap_mb=heap_mb, options=jvm_options
    )
    # What Apache has no setting for, such as where the proxy keeps its users, goes below here.
    process = LineProcess(
        [*command, str(directory), str(ports.namesrv)],
        directory / "proxy.log",
        cwd=directory,
        cores=cores,
    )
    try:
        while process.read_line(start_timeout_s) != "READY":
            pass
    except ProcessError:
        process.kill()
        raise
    return ApacheProxy(process, ports.grpc, ports.namesrv)


def _write_broker_conf(directory: Path, ports: Ports, settings: Mapping[str, str]) -> None:
    lines = {
        "storePathRootDir": str(directory / "store"),
        "storePathCommitLog": str(directory / "store" / "commitlog"),
        "brokerName": "apache",
        "brokerIP1": "127.0.0.1",
        "listenPort": str(ports.broker),
        "haListenPort": str(ports.replicas),
        "namesrvAddr": f"127.0.0.1:{ports.namesrv}",
        "waitTimeMillsInSendQueue": "10000",
        **settings,
    }
    text = "".join(f"{key}={value}\n" for key, value in lines.items())
    (directory / "broker.conf").write_text(text)
