"""Logs: the commit logs and consume queues of replicas, read from their files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rockhopper.protocol.store.message_codec import decode_message
from rockhopper.protocol.store.message_codec.record_check import RecordStatus, check_record
from rockhopper.protocol.store.queue_layout import (
    BLANK_UNIT_SIZE_FIELD,
    CONSUME_QUEUE_UNIT,
    CONSUME_QUEUE_UNIT_SIZE_BYTES,
)
from rockhopper.protocol.store.store_paths import COMMIT_LOG_DIRECTORY, CONSUME_QUEUE_DIRECTORY
from rockhopper.protocol.sys_flags import (
    SYS_FLAG_TRANSACTION_PREPARED,
    SYS_FLAG_TRANSACTION_ROLLBACK,
)

IN_NO_QUEUE = SYS_FLAG_TRANSACTION_PREPARED & SYS_FLAG_TRANSACTION_ROLLBACK
"""The bit that is set in prepared and rolled back messages."""
BLANK_HEAD_SIZE_BYTES = 8

Place = tuple[str, int, int]
"""Topic, queue id, queue offset."""


@dataclass
class ReadLog:
    """The commit log of one replica up to an offset."""

    replica: int
    start_offset: int = 0
    end_offset: int = 0
    pieces: dict[int, bytes] = field(default_factory=dict)
    """Log offset -> the bytes there: a record, or the head of a blank one."""
    places: dict[Place, int] = field(default_factory=dict)
    bodies: set[tuple[str, bytes]] = field(default_factory=set)
    """Topic and body of every message."""
    problems: list[str] = field(default_factory=list)


def read_log(replica: int, store: Path, until: int) -> ReadLog:
    """Read the log of a stopped replica up to *until*, and note its errors."""
    found = ReadLog(replica)
    files = sorted((store / COMMIT_LOG_DIRECTORY).glob("[0-9]*"))
    if not files:
        found.problems.append(f"replica {replica} has no commit log")
        return found
    found.start_offset = found.end_offset = int(files[0].name)
    for path in files:
        base = int(path.name)
        if found.end_offset >= until:
            break
        if base != found.end_offset:
            found.problems.append(f"replica {replica}: the log ends in front of {path.name}")
            break
        _read_file(found, path.read_bytes(), base, until)
    if found.end_offset < until:
        found.problems.append(
            f"replica {replica}: the log ends at {found.end_offset:,} and {until:,} is confirmed"
        )
    return found


def _read_file(found: ReadLog, data: bytes, base: int, until: int) -> None:
    while (position := found.end_offset - base) < len(data) and found.end_offset < until:
        checked = check_record(data, position, len(data) - position, found.end_offset)
        if checked.status is RecordStatus.INVALID:
            found.problems.append(
                f"replica {found.replica}: no record at {found.end_offset:,}: {checked.reason}"
            )
            return
        is_blank = checked.is_blank
        size = BLANK_HEAD_SIZE_BYTES if is_blank else checked.size_bytes
        found.pieces[found.end_offset] = data[position : position + size]
        if is_blank:
            found.end_offset = base + len(data)
            continue
        if not checked.sys_flag & IN_NO_QUEUE:
            _note(found, data, position)
        found.end_offset += size


def _note(found: ReadLog, data: bytes, position: int) -> None:
    message = decode_message(data, position)
    place = message.topic, message.queue_id, message.queue_offset
    first = found.places.setdefault(place, found.end_offset)
    if first != found.end_offset:
        found.problems.append(
            f"replica {found.replica}: {place} has records at {first:,} and {found.end_offset:,}"
        )
    found.bodies.add((message.topic, message.body))


def differences(logs: Sequence[ReadLog]) -> Iterator[str]:
    """Yield where logs differ, from the largest start offset on."""
    start = max(log.start_offset for log in logs)
    first, *others = logs
    for other in others:
        for offset in sorted(first.pieces.keys() | other.pieces.keys()):
            if offset >= start and first.pieces.get(offset) != other.pieces.get(offset):
                yield (
                    f"at {offset:,} replica {first.replica} has "
                    f"{first.pieces.get(offset, b'nothing')[:60]!r} and replica {other.replica} "
                    f"{other.pieces.get(offset, b'nothing')[:60]!r}"
                )
                break


def queue_problems(log: ReadLog, store: Path) -> Iterator[str]:
    """Yield entries of a replica's consume queues that its log lacks, and records they omit."""
    told: dict[Place, int] = {}
    for path in sorted((store / CONSUME_QUEUE_DIRECTORY).glob("*/*/[0-9]*")):
        topic, queue_id = path.parts[-3], int(path.parts[-2])
        first = int(path.name) // CONSUME_QUEUE_UNIT_SIZE_BYTES
        units = CONSUME_QUEUE_UNIT.iter_unpack(path.read_bytes())
        for queue_offset, (log_offset, size, _) in enumerate(units, first):
            if size not in (0, BLANK_UNIT_SIZE_FIELD) and log_offset < log.end_offset:
                told[topic, queue_id, queue_offset] = log_offset
    wrong = [place for place, offset in told.items() if log.places.get(place) != offset]
    missing = log.places.keys() - told.keys()
    for what, places in (("is wrong", wrong), ("is missing", missing)):
        for place in sorted(places)[:1]:
            yield (
                f"replica {log.replica}: the unit of {place} {what} "
                f"({told.get(place)}, {log.places.get(place)}), one of {len(places)}"
            )
