"""config/timercheck: how far RocketMQ's timer store is, for it and from it.

4096 bytes, big-endian, zeros behind:

    offset  size  field
         0     8  time up to which everything was delivered, ms
         8     8  how far the timer log was flushed
        16     8  offset of the next message of rmq_sys_wheel_timer to take over
        24     8  the same of the master; RocketMQ starts at the smaller one
        32    24  data version: state version, timestamp, counter
"""

import struct
import zlib
from pathlib import Path
from typing import NamedTuple

from rockhopper.broker.store.files import disk

_TIMER_CHECK = struct.Struct(">qqqqqqq")
TIMER_CHECK_SIZE_BYTES = 4096
NO_TIMER_CHECK = 0


class TimerCheck(NamedTuple):
    """The fields of a timercheck."""

    read_time_ms: int
    log_flushed: int
    queue_offset: int
    master_queue_offset: int
    state_version: int = 0
    timestamp_ms: int = 0
    counter: int = 0


def encode_fields(check: TimerCheck) -> bytes:
    """The fields alone, as they travel between brokers."""
    return _TIMER_CHECK.pack(*check)


def encode_timer_check(check: TimerCheck) -> bytes:
    """The content of the file."""
    return _TIMER_CHECK.pack(*check).ljust(TIMER_CHECK_SIZE_BYTES, b"\0")


def load_timer_check(path: Path) -> tuple[TimerCheck | None, int]:
    """The fields of a timercheck, and the CRC-32 of the file; (None, 0) without one."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None, NO_TIMER_CHECK
    if len(data) < _TIMER_CHECK.size or not any(data):
        return None, NO_TIMER_CHECK
    return TimerCheck(*_TIMER_CHECK.unpack_from(data)), crc(data)


def crc(data: bytes) -> int:
    """By what a timercheck of ours is known again."""
    return zlib.crc32(data)


def save_timer_check(path: Path, data: bytes) -> None:
    """Write a timercheck. Blocks. Raises OSError."""
    disk.make_directories(path.parent)
    disk.write_atomically(path, data)


def remove_wheel(wheel: Path, timer_log: Path) -> None:
    """Delete RocketMQ's timer wheel and log: what they say is pending was taken over.

    Raises:
        OSError: some may be left.
    """
    paths = [wheel]
    if timer_log.is_dir():
        paths += timer_log.iterdir()
    disk.remove_files(paths)
