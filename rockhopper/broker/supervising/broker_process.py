"""BrokerProcess: one broker in a process of its own, restarted whenever it ends unexpectedly.

The two processes share a socket, which is the broker's standard input. When the broker serves, it
writes one line: its addresses as JSON. The parent writes nothing. Each side detects at the end of
the stream that the other is gone, however it ended. A broker without its parent shuts down cleanly.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping, Sequence

import structlog

from rockhopper.broker.server.remoting.startup import StartError
from rockhopper.tasks import end_task, keep_running

log = structlog.get_logger("broker.parent")

PAUSE_S = 0.5
PAUSE_MAX_S = 30.0
# After a broker has served for this long, a restart begins with the shortest pause again.
STEADY_S = 60.0
PAGE_TIMEOUT_S = 5.0
_LOOPBACK = "127.0.0.1"


def command_of(arguments: Sequence[str]) -> list[str]:
    """Return the command that runs ``rockhopper-broker`` with *arguments*."""
    return [sys.executable, "-P", "-m", "rockhopper.broker", *arguments]


class BrokerProcess:
    """One of the brokers."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        with_http: bool,
        environment: Mapping[str, str] | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """*command* is from ``command_of``; *environment* is added for this broker only."""
        self.name = name
        self.facts: dict[str, str] = {}
        """The addresses of the broker; empty while it does not serve."""
        self.start_count = 0
        self.command = list(command)
        """The command of the next start."""
        # The socket outlives the process, so that the port stays the same.
        self._http = socket.create_server((_LOOPBACK, 0)) if with_http else None
        self._environment = dict(environment or {})
        self._now_s = now_s
        self._process: Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._keeper: asyncio.Task[None] | None = None

    @property
    def is_serving(self) -> bool:
        """Whether the broker serves requests."""
        return bool(self.facts)

    @property
    def process_id(self) -> int | None:
        """The id of the process that runs, or ran last and is not replaced yet."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Run the broker, and keep it running, until ``stop``; return when it serves.

        Raises:
            StartError: it ended before it served; its output is on standard error.
        """
        if not await self._spawn():
            how = await self._describe_end()
            await self.stop()
            raise StartError(f"{self.name} did not start ({how}), see above")
        self._keeper = keep_running(self._keep, f"keeping {self.name} running")

    async def stop(self) -> int:
        """Stop the broker as with SIGTERM; return its exit code, 0 if there was no process."""
        if self._keeper is not None:
            end_task(self._keeper)
            await asyncio.gather(self._keeper, return_exceptions=True)
            self._keeper = None
        code = 0
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            code = await self._process.wait()
        self._let_go()
        if self._http is not None:
            self._http.close()
        return code

    async def page(self, path: str) -> tuple[int, bytes]:
        """Return the status and body of one of the broker's pages for operators.

        Raises:
            OSError, TimeoutError: the broker does not answer.
        """
        if self._http is None or not self.is_serving:
            raise ConnectionRefusedError(f"{self.name} is not running")
        async with asyncio.timeout(PAGE_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(*self._http.getsockname())
            try:
                writer.write(f"GET {path} HTTP/1.1\r\nHost: {_LOOPBACK}\r\n\r\n".encode("ascii"))
                head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
            finally:
                writer.close()
        status = head.split(b" ", 2)[1:2]
        if not status:
            raise ConnectionResetError(f"{self.name} gave no answer")
        return int(status[0]), body

    async def _spawn(self) -> bool:
        """Start the process; return whether it got as far as to serve."""
        ours, theirs = socket.socketpair()
        descriptor = -1 if self._http is None else self._http.fileno()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self.command,
                *("--parent", str(descriptor)),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                pass_fds=() if self._http is None else (descriptor,),
                # The broker finds modules in the same places as this process, in any directory.
                env=os.environ
                | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
                | self._environment,
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self.start_count += 1
        reader, self._writer = await asyncio.open_connection(sock=ours)
        line = await reader.readline()
        self.facts = json.loads(line) if line else {}
        return self.is_serving

    async def _keep(self) -> None:
        pause_s = PAUSE_S
        while True:
            served_from = self._now_s()
            how = await self._describe_end()
            self._let_go()
            if self._now_s() - served_from >= STEADY_S:
                pause_s = PAUSE_S
            log.error("broker exited, restarting it", node=self.name, how=how, pause_s=pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)
            try:
                is_serving = await self._spawn()
            except OSError as error:
                log.error("broker cannot be started", node=self.name, reason=str(error))
                continue
            if is_serving:
                log.info("broker serves again", node=self.name, **self.facts)

    async def _describe_end(self) -> str:
        if self._process is None:
            return "no process"
        code = await self._process.wait()
        if code < 0:
            return f"killed by {_signal_name(-code)}"
        return f"exit code {code}"

    def _let_go(self) -> None:
        self.facts = {}
        self._process = None
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Parent:
    """The parent process of this broker, from the broker's view."""

    def __init__(self, http_descriptor: int) -> None:
        """*http_descriptor* is the listening socket of the operator's port, −1 for none."""
        self._socket = socket.socket(fileno=os.dup(sys.stdin.fileno()))
        self._socket.setblocking(False)
        self.http_socket = socket.socket(fileno=http_descriptor) if http_descriptor >= 0 else None

    def watch(self, on_end: Callable[[], None]) -> None:
        """Call *on_end* once when the parent is gone; needs a running event loop."""
        loop = asyncio.get_running_loop()

        def look() -> None:
            with contextlib.suppress(BlockingIOError, ConnectionError):
                if self._socket.recv(1):
                    return
            loop.remove_reader(self._socket)
            log.warning("the parent process has exited")
            on_end()

        loop.add_reader(self._socket, look)

    def tell_serving(self, facts: dict[str, str]) -> None:
        """Send the addresses of this broker to the parent when it serves."""
        with contextlib.suppress(ConnectionError):
            self._socket.send(json.dumps(facts).encode() + b"\n")
