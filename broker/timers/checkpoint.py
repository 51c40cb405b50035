"""The checkpoint of the timer index: ``<store>/rockhopper/timers/checkpoint.json``.

    indexedOffset       up to this offset of rmq_sys_wheel_timer the slot files are on disk
    settledLogOffset    deliveries noted with a smaller end of the log are on disk as well
    timerCheck          CRC-32 of RocketMQ's config/timercheck as we left it, or will have left it
    slotBytes           slot -> size of its file of entries up to indexedOffset

Another timercheck means that RocketMQ has run on the store since: what it delivered is not in our
files, and they are made anew from its own.
"""

import os
from pathlib import Path
from typing import NamedTuple

import structlog

from broker.store import disk
from broker.timers.entries import ENTRY, ENTRY_SIZE_BYTES, SLOT_MS, Entry
from protocol import fastjson
from protocol.errors import ProtocolError

log = structlog.get_logger("broker.timers")


class TimerCheckpoint(NamedTuple):
    """How far the index is known to be on disk."""

    indexed_offset: int
    settled_log_offset: int
    timer_checks: tuple[int, ...]
    slot_bytes: dict[int, int]


def load_checkpoint(path: Path) -> TimerCheckpoint | None:
    """The checkpoint at *path*; None without one, or with one that makes no sense."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        document = fastjson.loads(data)
        return TimerCheckpoint(
            int(document["indexedOffset"]),
            int(document["settledLogOffset"]),
            tuple(int(number) for number in document["timerCheck"]),
            {int(slot): int(size) for slot, size in document.get("slotBytes", {}).items()},
        )
    except (ProtocolError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.error("the timer checkpoint makes no sense", path=str(path), reason=str(error))
        return None


def save_checkpoint(path: Path, checkpoint: TimerCheckpoint) -> None:
    """Write the checkpoint.  Blocks.  Raises OSError; the old one is still there then."""
    document = {
        "indexedOffset": checkpoint.indexed_offset,
        "settledLogOffset": checkpoint.settled_log_offset,
        "timerCheck": list(checkpoint.timer_checks),
        "slotBytes": {str(slot): size for slot, size in checkpoint.slot_bytes.items()},
    }
    disk.write_atomically(path, fastjson.dumps(document).encode())


def damaged_slot(directory: Path, checkpoint: TimerCheckpoint, now_ms: int) -> int | None:
    """A slot whose file in *directory* is not what *checkpoint* says; None if all are.

    The file of a minute that has passed may be gone: it is deleted when nothing waits in it.
    """
    for slot, size_bytes in checkpoint.slot_bytes.items():
        try:
            with (directory / str(slot)).open("rb") as file:
                first = file.read(ENTRY_SIZE_BYTES)
                size = os.fstat(file.fileno()).st_size
        except FileNotFoundError:
            if slot * SLOT_MS > now_ms:
                return slot
            continue
        if size < size_bytes or (
            len(first) == ENTRY_SIZE_BYTES and Entry(*ENTRY.unpack(first)).slot != slot
        ):
            return slot
    return None
