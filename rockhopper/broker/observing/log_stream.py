"""LogStream: standard error of a daemon. Writing to it never raises and never blocks the caller.

A thread does the writing. If the output cannot accept a line (its disk is full, its reader has
closed), the line is dropped and counted. If the output hangs, lines wait in memory up to
``QUEUED_BYTES_MAX``, and further ones are dropped and counted. Example: the reader of the pipe
stops for a minute while the broker logs 2 MB. The pipe holds the first 64 KiB, the queue 1 MiB
more, and the rest is dropped. When the reader continues, the queue is written, and then one line
with the number of dropped lines.

Everything that a process writes to ``sys.stderr`` uses this stream: the log, warnings of Python,
tracebacks of threads, asyncio's own log.
"""

import contextlib
import io
import os
import queue
import select
import sys
import threading
from collections.abc import Callable

import structlog

log = structlog.get_logger("broker.log")

QUEUED_BYTES_MAX = 1 << 20
DRAIN_TIMEOUT_S = 2.0


class LogStream(io.TextIOBase):
    """A text stream over one file descriptor, with a thread that writes."""

    def __init__(
        self,
        descriptor: int,
        *,
        write: Callable[[int, bytes], int] = os.write,
    ) -> None:
        self.dropped_count = 0
        self._descriptor = descriptor
        self._write_to = write
        self._unreported = 0
        self._queued_bytes = 0
        # Reentrant: a signal handler or a finalizer may log while this thread is in ``write``.
        self._lock = threading.RLock()
        self._lines: queue.SimpleQueue[bytes | threading.Event] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def write(self, text: str) -> int:
        """Queue *text*, or drop it if the queue is full."""
        data = text.encode("utf-8", "backslashreplace")
        with self._lock:
            if self._queued_bytes + len(data) > QUEUED_BYTES_MAX:
                self._drop()
                return len(text)
            self._queued_bytes += len(data)
        self._lines.put(data)
        return len(text)

    def flush(self) -> None:
        """Do nothing: ``drain`` waits."""

    def drain(self, timeout_s: float = DRAIN_TIMEOUT_S) -> None:
        """Wait until queued lines have been written or dropped, at most *timeout_s*."""
        written = threading.Event()
        self._lines.put(written)
        written.wait(timeout_s)

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def fileno(self) -> int:
        return self._descriptor

    def _drop(self) -> None:
        self.dropped_count += 1
        self._unreported += 1

    def _run(self) -> None:
        while True:
            line = self._lines.get()
            if isinstance(line, threading.Event):
                line.set()
                continue
            try:
                self._write_whole(line)
            except OSError:
                with self._lock:
                    self._queued_bytes -= len(line)
                    self._drop()
                continue
            with self._lock:
                self._queued_bytes -= len(line)
                dropped = 0
                # Lines still queued were logged before the output worked again.
                if not self._queued_bytes:
                    dropped, self._unreported = self._unreported, 0
            if dropped:
                self.report_dropped(dropped)

    def report_dropped(self, count: int) -> None:
        """Log how many lines were dropped, after the first that was written again."""
        log.warning("log lines were dropped: they could not be written", count=count)

    def _write_whole(self, data: bytes) -> None:
        while data:
            try:
                data = data[self._write_to(self._descriptor, data) :]
            except BlockingIOError:
                # Another process has set O_NONBLOCK on the shared pipe or terminal.
                select.select([], [self._descriptor], [])


def use_log_stream() -> LogStream:
    """Make a LogStream of descriptor 2 this process's ``sys.stderr``."""
    stream = LogStream(2)
    sys.stderr = stream
    return stream


def leave_log_stream(stream: LogStream) -> None:
    """Write the queued lines; later output is written to the descriptor directly."""
    stream.drain()
    with contextlib.suppress(OSError, ValueError):
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
