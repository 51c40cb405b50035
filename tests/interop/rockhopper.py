"""Our broker as an operator runs it: a process of its own, ``python -m rockhopper.broker``."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.interop.processes import LineProcess, ProcessError, wait_for_port
from tests.support.free_ports import free_port

ROOT = Path(__file__).parents[2]


@dataclass(slots=True)
class RockhopperServer:
    """A running daemon."""

    process: LineProcess
    settings: dict[str, str]
    broker_port: int
    namesrv_port: int

    @property
    def nameserver(self) -> str:
        """The address of its embedded name server."""
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
        status = self.process.stop()
        if status != 0 or (self.store / "abort").exists():
            raise ProcessError(f"Not a clean stop: {status}.\n{self.process.last_output()}")

    def kill(self) -> None:
        """Kill the process in the middle of whatever it does."""
        self.process.kill()


def start(
    directory: Path, *, settings: Mapping[str, str] | None = None, start_timeout_s: float = 300
) -> RockhopperServer:
    """Start the daemon on free ports and return when it accepts connections.

    To start it again under the same ones, name them in *settings*. The store is *directory*/store,
    or `storePathRootDir` of *settings*.

    Raises:
        ProcessError: it did not start.
    """
    directory.mkdir(parents=True, exist_ok=True)
    lines = {
        "storePathRootDir": str(directory / "store"),
        "brokerName": "rockhopper",
        "listenPort": str(free_port(below=[2])),
        "namesrvPort": str(free_port()),
        "httpPort": str(free_port()),
        **(settings or {}),
    }
    broker_port, namesrv_port = int(lines["listenPort"]), int(lines["namesrvPort"])
    conf = directory / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    command = [sys.executable, "-m", "rockhopper.broker", "-c", str(conf)]
    process = LineProcess(command, directory / "broker.log", cwd=ROOT)
    try:
        for port in (broker_port, int(lines.get("grpcPort", broker_port))):
            wait_for_port(process, port, start_timeout_s)
    except ProcessError:
        process.kill()
        raise
    return RockhopperServer(process, lines, broker_port, namesrv_port)
