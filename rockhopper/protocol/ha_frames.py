"""RocketMQ's classic replication on the wire, of a master's haListenPort; integers big-endian.

Slave to master, at any time, with nothing around it:

    offset  size  field
         0     8  up to where the slave has the log; the first one says where to begin

Master to slave:

    offset  size  field
         0     8  commit log offset of the first byte
         8     4  size of the data; 0 for a heartbeat, whose offset is where data will go on
        12     n  bytes of the log as they are in its file

A frame does not cross from one file of the log to the next, and may cut records in two. RocketMQ
sends at most haTransferBatchSize (32 KiB) at a time, and receives up to 4 MiB.

A first report of 0 is understood as "begin with your newest file". A log that begins at 0 is
copied whole with a first report of 1: its byte 0 is the high byte of a record's size, so it is 0.
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
    """What a slave sends that has the log up to *offset*."""
    return _REPORT.pack(offset)


def encode_ha_frame(frame: HaFrame) -> bytes:
    """What a master sends."""
    return _HEAD.pack(frame.offset, len(frame.data)) + frame.data


class HaReportDecoder:
    """Cuts what a slave sends into reports."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> int | None:
        """The last report that *data* completes: only that counts. None while there is none."""
        data = self._rest + data
        whole = len(data) - len(data) % _REPORT.size
        self._rest = data[whole:]
        if not whole:
            return None
        (offset,) = _REPORT.unpack_from(data, whole - _REPORT.size)
        return int(offset)


class HaFrameDecoder:
    """Cuts what a master sends into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[HaFrame]:
        """The frames that *data* completes.

        Raises:
            MalformedFrameError: what came is no frame; nothing more can be understood.
        """
        buffer = self._buffer
        buffer += data
        frames = []
        position = 0
        while len(buffer) - position >= _HEAD.size:
            offset, size = _HEAD.unpack_from(buffer, position)
            if offset < 0 or not 0 <= size <= FRAME_SIZE_BYTES_MAX:
                raise MalformedFrameError(
                    f"a frame of {size} bytes for offset {offset} is none of RocketMQ's classic "
                    "replication: is that the master's haListenPort?"
                )
            end = position + _HEAD.size + size
            if end > len(buffer):
                break
            frames.append(HaFrame(offset, bytes(buffer[position + _HEAD.size : end])))
            position = end
        del buffer[:position]
        return frames
