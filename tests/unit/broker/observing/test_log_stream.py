"""LogStream: neither a full disk, nor a reader that is gone or hangs, reaches those who log."""

import errno
import os
import subprocess
import sys
import threading

import pytest

from rockhopper.broker.observing.log_stream import QUEUED_BYTES_MAX, LogStream
from tests.support.hang import HANG_S


class Output:
    """Where lines end up. ``failure`` is raised in place of writing."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.failure: OSError | None = None
        self.may_write = threading.Event()
        self.may_write.set()
        self.is_writing = threading.Event()

    def write(self, _descriptor: int, data: bytes) -> int:
        self.is_writing.set()
        self.may_write.wait()
        if self.failure is not None:
            raise self.failure
        self.lines.append(bytes(data))
        return len(data)


class Reporting(LogStream):
    """A stream that keeps what it reports."""

    def __init__(self, output: Output) -> None:
        self.reported: list[int] = []
        super().__init__(2, write=output.write)

    def report_dropped(self, count: int) -> None:
        self.reported.append(count)


def test_lines_are_written_in_order_one_write_each() -> None:
    output = Output()
    stream = LogStream(2, write=output.write)
    for n in range(100):
        stream.write(f"line {n}\n")
    stream.drain(HANG_S)
    assert output.lines == [f"line {n}\n".encode() for n in range(100)]


def test_a_full_disk_drops_lines_and_the_first_that_gets_through_reports_how_many() -> None:
    output = Output()
    stream = Reporting(output)
    output.failure = OSError(errno.ENOSPC, "No space left on device")
    for _ in range(3):
        stream.write("lost\n")
    stream.drain(HANG_S)
    assert (stream.reported, stream.dropped_count) == ([], 3)
    output.failure = None
    stream.write("kept\n")
    stream.drain(HANG_S)
    stream.write("kept\n")
    stream.drain(HANG_S)
    assert output.lines == [b"kept\n", b"kept\n"]
    assert (stream.reported, stream.dropped_count) == ([3], 3)


def test_an_output_that_hangs_blocks_nobody_and_memory_is_bounded() -> None:
    output = Output()
    stream = Reporting(output)
    output.may_write.clear()
    line = "x" * 1023 + "\n"
    for _ in range(2 * QUEUED_BYTES_MAX // len(line)):
        stream.write(line)
    assert stream.dropped_count == QUEUED_BYTES_MAX // len(line)
    output.may_write.set()
    stream.drain(HANG_S)
    assert len(output.lines) == QUEUED_BYTES_MAX // len(line)
    assert stream.reported == [QUEUED_BYTES_MAX // len(line)]


def test_a_drain_does_not_wait_longer_than_its_time_out() -> None:
    output = Output()
    stream = LogStream(2, write=output.write)
    output.may_write.clear()
    stream.write("waits\n")
    assert output.is_writing.wait(HANG_S)
    stream.drain(timeout_s=0.01)
    assert output.lines == []
    output.may_write.set()


def test_a_pipe_without_waiting_is_waited_for() -> None:
    """Another process may set O_NONBLOCK on the pipe that it shares with us."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    stream = LogStream(writer)
    text = "x" * 300_000
    stream.write(text)
    got = 0
    while got < len(text):
        got += len(os.read(reader, 1 << 16))
    stream.drain(HANG_S)
    assert stream.dropped_count == 0
    os.close(reader)
    os.close(writer)


def test_half_surrogates_are_written_escaped() -> None:
    output = Output()
    stream = LogStream(2, write=output.write)
    stream.write("\udcff\n")
    stream.drain(HANG_S)
    assert output.lines == [b"\\udcff\n"]


PROGRAM = """
import os, sys
from rockhopper.broker.observing import log
from rockhopper.streams import open_standard_streams
open_standard_streams()
log.use_stream()
log.configure()
import structlog
structlog.get_logger("broker.test").info("from a logger")
print("printed", file=sys.stderr)
descriptor = os.open("/dev/null", os.O_RDONLY)
os.write(int(sys.argv[1]), str(descriptor).encode())
"""


def run_with(streams: str) -> tuple[int, int]:
    """The exit code of a program that logs, and the first descriptor that it opened itself."""
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    command = f'exec "$0" -c "$1" {writer} {streams}'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable, PROGRAM], pass_fds=[writer], check=False
    )
    os.close(writer)
    first = int(os.read(reader, 100) or b"-1")
    os.close(reader)
    return done.returncode, first


@pytest.mark.costly
def test_a_program_with_closed_or_full_standard_streams_logs_and_ends_well() -> None:
    for streams in ("2>&-", "<&- >&- 2>&-", "2>/dev/full", ">/dev/full 2>&1"):
        code, first = run_with(streams)
        assert code == 0, streams
        assert first > 2, streams


def test_what_is_queued_when_the_program_ends_is_written() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "1"], capture_output=True, text=True, check=True
    )
    assert "from a logger" in done.stderr
    assert "printed" in done.stderr
