"""config/timercheck: the progress of RocketMQ's timer store, read and written for RocketMQ.

4096 bytes, big-endian, padded with zeros:

    offset  size  field
         0     8  time up to which everything was delivered, ms
         8     8  flushed position of the timer log
        16     8  offset of the next message of rmq_sys_wheel_timer to index
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
    """Encode only the fields, as brokers exchange them."""
    return _TIMER_CHECK.pack(*check)


def encode_timer_check(check: TimerCheck) -> bytes:
    """Encode the content of the file."""
    return _TIMER_CHECK.pack(*check).ljust(TIMER_CHECK_SIZE_BYTES, b"\0")


def load_timer_check(path: Path) -> tuple[TimerCheck | None, int]:
    """Return the fields of a timercheck and the CRC-32 of the file; (None, 0) if there is none."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None, NO_TIMER_CHECK
    if len(data) < _TIMER_CHECK.size or not any(data):
        return None, NO_TIMER_CHECK
    return TimerCheck(*_TIMER_CHECK.unpack_from(data)), crc(data)


def crc(data: bytes) -> int:
    """Return the checksum that identifies a timercheck of this broker."""
    return zlib.crc32(data)


def save_timer_check(path: Path, data: bytes) -> None:
    """Write a timercheck. Blocks. Raises OSError."""
    disk.make_directories(path.parent)
    disk.write_atomically(path, data)


def remove_wheel(wheel: Path, timer_log: Path) -> None:
    """Delete RocketMQ's timer wheel and log, whose pending messages have been imported.

    Raises:
        OSError: some files may remain.
    """
    paths = [wheel]
    if timer_log.is_dir():
        paths += timer_log.iterdir()
    disk.remove_files(paths)
