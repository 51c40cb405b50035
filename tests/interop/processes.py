"""Child processes that talk in lines: JVMs, Node, our own daemon.

Each child gets a pipe as its standard input and writes its standard error to a file. The Java and
JavaScript mains end when that pipe closes, so that none outlives a test run that is killed.
"""

import contextlib
import os
import queue
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path


class ProcessError(Exception):
    """A child process did not do what was asked; the message ends with its last output."""


class LineProcess:
    """A child process whose standard output is read line by line."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        cores: Collection[int] | None = None,
    ) -> None:
        self.log = log
        with log.open("ab") as stderr, _affinity(cores):
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=cwd,
                env={**os.environ, **(env or {})},
                text=True,
                encoding="utf-8",
            )
        self.pid = self._process.pid
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def returncode(self) -> int | None:
        """The exit status, or None while it runs."""
        return self._process.poll()

    def read_line(self, timeout_s: float) -> str:
        """Return the next line of standard output.

        Raises:
            ProcessError: it ended, or wrote nothing for *timeout_s*.
        """
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise ProcessError(f"Silent for {timeout_s} s.\n{self.last_output()}") from None
        if line is None:
            self._lines.put(None)
            raise ProcessError(f"Ended with {self._process.wait()}.\n{self.last_output()}")
        return line

    def write_line(self, line: str) -> None:
        """Write *line* to standard input."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise ProcessError(f"Ended.\n{self.last_output()}") from None

    def stop(self, timeout_s: float = 180) -> int:
        """Ask it to end with SIGTERM, wait, and return its exit status."""
        if self.returncode is None:
            self._process.terminate()
        return self._wait(timeout_s)

    def kill(self) -> None:
        """End it with SIGKILL, as a crash would."""
        if self.returncode is None:
            self._process.send_signal(signal.SIGKILL)
        self._wait(180)

    def last_output(self, size_bytes: int = 3000) -> str:
        """Return the end of what it wrote to standard error."""
        return self.log.read_text(errors="replace")[-size_bytes:]

    def _wait(self, timeout_s: float) -> int:
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise ProcessError(
                f"Still running {timeout_s} s after SIGTERM.\n{self.last_output()}"
            ) from None
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        return status

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stdout:
            for line in stdout:
                self._lines.put(line.rstrip("\n"))
        self._lines.put(None)


def wait_for_port(process: LineProcess, port: int, timeout_s: float) -> None:
    """Return once *process* accepts connections at *port*.

    Raises:
        ProcessError: it ended, or did not listen in time.
    """
    deadline = time.monotonic() + timeout_s
    while process.returncode is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise ProcessError(f"Nothing listens on port {port}.\n{process.last_output()}")


@contextlib.contextmanager
def _affinity(cores: Collection[int] | None) -> Iterator[None]:
    """Let children started meanwhile inherit *cores*; the calling thread gets its own back."""
    if cores is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
