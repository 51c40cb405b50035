"""The wire format of RocketMQ's classic replication, on a master's haListenPort; big-endian.

Slave to master, at any time, without a frame:

    offset  size  field
         0     8  the end of the slave's log; the first report says where to begin

Master to slave:

    offset  size  field
         0     8  commit log offset of the first byte
         8     4  size of the data; 0 for a heartbeat, whose offset is where data will continue
        12     n  bytes of the log as they are in its file

A frame does not cross from one file of the log to the next, and may split records. RocketMQ sends
at most haTransferBatchSize (32 KiB) at a time, and receives up to 4 MiB.

A first report of 0 means "begin with your newest file". To copy a whole log that begins at 0, a
slave first reports 1: byte 0 of such a log is the high byte of a record's size, so it is 0.
"""

import struct
from typing import NamedTuple

from rockhopper.protocol.errors import MalformedFrameError

FRAME_SIZE_BYTES_MAX = 4 << 20

_REPORT = struct.Struct(">q")
_HEAD = struct.Struct(">qi")


class HaFrame(NamedTuple):
    """A piece of the log; without data, a heartbeat."""

    offset: int
    data: bytes


def encode_report(offset: int) -> bytes:
    """Return the report of a slave that has the log up to *offset*."""
    return _REPORT.pack(offset)


def encode_ha_frame(frame: HaFrame) -> bytes:
    """Return the bytes of a master's frame."""
    return _HEAD.pack(frame.offset, len(frame.data)) + frame.data


class HaReportDecoder:
    """Splits a slave's stream into reports."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> int | None:
        """Return the last report that *data* completes, the only one that counts; None if none."""
        data = self._rest + data
        whole = len(data) - len(data) % _REPORT.size
        self._rest = data[whole:]
        if not whole:
            return None
        (offset,) = _REPORT.unpack_from(data, whole - _REPORT.size)
        return int(offset)


class HaFrameDecoder:
    """Splits a master's stream into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[HaFrame]:
        """Return the frames that *data* completes.

        Raises:
            MalformedFrameError: the data is not a frame; the stream cannot be read further.
        """
        buffer = self._buffer
        buffer += data
        frames = []
        position = 0
        while len(buffer) - position >= _HEAD.size:
            offset, size = _HEAD.unpack_from(buffer, position)
            if offset < 0 or not 0 <= size <= FRAME_SIZE_BYTES_MAX:
                raise MalformedFrameError(
                    f"a frame of {size} bytes for offset {offset} does not belong to "
                    "RocketMQ's classic replication: is this the master's haListenPort?"
                )
            end = position + _HEAD.size + size
            if end > len(buffer):
                break
            frames.append(HaFrame(offset, bytes(buffer[position + _HEAD.size : end])))
            position = end
        del buffer[:position]
        return frames
