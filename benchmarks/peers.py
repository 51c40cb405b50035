"""The official Apache broker, measured beside ours; the interop project builds and starts it.

It gets all cores unless restricted, a heap of sufficient size, and its own defaults otherwise. It
is stopped while another server is measured, because its timers would use that server's CPU time.
"""

import contextlib
import os
import signal
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

from benchmarks import topics
from benchmarks.cases import SETUPS
from benchmarks.errors import BenchError
from benchmarks.load import BUILD
from benchmarks.servers import Server
from tests.interop import apache
from tests.interop.processes import ProcessError

HEAP_MB = 2048
# The options of Apache's own start script, except for the sizes.
JVM_OPTIONS = (
    f"-Xms{HEAP_MB}m",
    "-XX:+AlwaysPreTouch",
    "-XX:+UseG1GC",
    "-XX:G1HeapRegionSize=16m",
    "-XX:G1ReservePercent=25",
    "-XX:InitiatingHeapOccupancyPercent=30",
    "-XX:SoftRefLRUPolicyMSPerMB=0",
)


@contextlib.contextmanager
def apache_broker(setup: str, cores: Collection[int]) -> Iterator[Server]:
    """Run Apache's broker on *cores* with an empty store, which is removed at the end."""
    settings = {
        **SETUPS[setup],
        "brokerName": "broker-a",  # the name that load generator and acknowledgements use
        "enablePropertyFilter": "true",
    }
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="apache-", dir=BUILD) as directory:
        try:
            running = apache.start(
                Path(directory),
                settings=settings,
                heap_mb=HEAP_MB,
                jvm_options=JVM_OPTIONS,
                cores=cores,
            )
        except (apache.BuildError, ProcessError) as error:
            raise BenchError(str(error)) from error
        topics.prepare(running.broker_port)
        name = f"Apache {apache.version()}"
        try:
            yield Server(
                name,
                running.broker_port,
                running.pid,
                setup=setup,
                namesrv_port=running.namesrv_port,
                log=running.store / "commitlog",
            )
        finally:
            running.kill()


@contextlib.contextmanager
def awake(server: Server) -> Iterator[None]:
    """Resume a stopped peer for a while."""
    os.kill(server.pid, signal.SIGCONT)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGSTOP)
