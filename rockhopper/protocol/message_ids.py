"""The two ids of a message, both in upper-case hex.

The offset message id encodes where the message is stored. 32 characters, 56 with IPv6:

    offset  size  field
         0     4  address of the store's host (16 with IPv6)
         4     4  its port
         8     8  commit log offset

The unique id is made by the producer (property UNIQ_KEY); the broker treats it as a key. 32
characters:

         0     4  address of the producer's host (16 with IPv6)
         4     2  process id, its low 16 bits
         6     4  salt; in Java the hash code of a class loader
        10     4  milliseconds since the first of the month, local time
        14     2  counter
"""

import os
import struct
from collections.abc import Callable
from datetime import datetime
from itertools import count

from rockhopper.protocol.addresses import ip_text
from rockhopper.protocol.errors import FieldError

_OFFSET_TAIL = struct.Struct(">iq")

# Cached, because the system call costs more than all the rest of an id.
_own_pid = os.getpid()

# Start and end of the month of the last id, in ms since the epoch.
_month_ms = (0, 0)


def offset_message_id(ip: bytes, port: int, commit_log_offset: int) -> str:
    """Return the id of the message at an offset of the store at *ip* (4 or 16 bytes) and *port*."""
    return (ip + _OFFSET_TAIL.pack(port, commit_log_offset)).hex().upper()


def decode_offset_message_id(message_id: str) -> tuple[str, int, int]:
    """Return address, port and commit log offset of an offset message id.

    Raises:
        FieldError: *message_id* is not one.
    """
    try:
        data = bytes.fromhex(message_id)
    except ValueError:
        data = b""
    if len(message_id) not in (32, 56) or len(data) * 2 != len(message_id):
        raise FieldError("msgId", f"is {message_id[:60]!r}; an offset message id has 32 hex digits")
    port, offset = _OFFSET_TAIL.unpack_from(data, len(data) - 12)
    return ip_text(data[:-12]), port, offset


def make_unique_id(ip: bytes, pid: int, salt: int, now_ms: int, counter: int) -> str:
    """Return a unique id; the numbers are truncated to the width of their fields."""
    origin = f"{ip.hex().upper()}{pid & 0xFFFF:04X}{salt & 0xFFFFFFFF:08X}"
    return f"{origin}{_ms_of_month(now_ms):08X}{counter & 0xFFFF:04X}"


def _ms_of_month(now_ms: int) -> int:
    """Return the milliseconds since the month began, cut to 32 bits."""
    start_ms, end_ms = _month_ms
    if not start_ms <= now_ms < end_ms:
        start_ms = _enter_month(now_ms)
    return now_ms - start_ms & 0xFFFFFFFF


def _enter_month(now_ms: int) -> int:
    global _month_ms
    now = datetime.fromtimestamp(now_ms / 1000)
    start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    if start.month == 12:
        end = start.replace(year=start.year + 1, month=1)
    else:
        end = start.replace(month=start.month + 1)
    _month_ms = (int(start.timestamp() * 1000), int(end.timestamp() * 1000))
    return _month_ms[0]


def _note_fork() -> None:
    global _own_pid
    _own_pid = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


class UniqueIds:
    """Generates unique ids of one process on one host, up to 65,536 in a millisecond."""

    def __init__(self, ip: bytes, now_ms: Callable[[], int]) -> None:
        self._ip = ip
        self._now_ms = now_ms
        self.salt = int.from_bytes(os.urandom(4), "big")
        """Distinguishes it from other generators of this process; may be set."""
        self._count = count()
        self._origin = self._start = ""
        # What they are of: milliseconds, process id, salt.
        self._start_ms = self._start_pid = self._start_salt = -1

    def next(self) -> str:
        """Return an id that no other message has."""
        return self.next_at(self._now_ms())

    def next_at(self, now_ms: int) -> str:
        """Return an id as `next` does, given the time."""
        if now_ms != self._start_ms or self._start_pid != _own_pid or self._start_salt != self.salt:
            self._begin(now_ms)
        return f"{self._start}{next(self._count) & 0xFFFF:04X}"

    def reserve(self, count_wanted: int) -> tuple[str, int]:
        """Return the common start of as many ids, and the first of the numbers that end them.

        Each id ends with the low 16 bits of its number in hex, so there are 65,536 at most.
        """
        number = next(self._count)
        self._count = count(number + count_wanted)
        self._begin(self._now_ms())
        return self._start, number

    def give_back(self, number: int) -> None:
        """Continue with *number*: the reserved ids from it on were not used."""
        self._count = count(number)

    def _begin(self, now_ms: int) -> None:
        """Set what ids of this time, process and salt start with."""
        if self._start_pid != _own_pid or self._start_salt != self.salt:
            self._start_pid, self._start_salt = _own_pid, self.salt
            self._origin = make_unique_id(self._ip, _own_pid, self.salt, now_ms, 0)[:-12]
        self._start_ms = now_ms
        self._start = f"{self._origin}{_ms_of_month(now_ms):08X}"
