"""The identity and the start of a log, to detect a wrong directory and lost files.

A log of another store matches none of the queues, and would have them all rebuilt from it. The
oldest files of a log may be missing because they expired, or because they were lost. So a file
records where the log begins, and the heads of the first records of its oldest and newest file. It
is written at each start and at each clean stop; the start also whenever files are about to be
deleted.

``<root>/rockhopper/commit-log.json``: one line of JSON and one with its CRC-32, as the inventory.

    {"start": <commit log offset>, "heads": {"<offset>": "<first bytes of the record, in hex>"},
     "origin": "<the head of the first record that the store ever had>"}

The origin stays after that record has expired: a backup recognises the store by it.

A store without the file, from a build before 0.2.0 or from RocketMQ, is accepted as it is.
"""

from typing import Any, NamedTuple

import structlog

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import checked_line, disk
from rockhopper.broker.store.files.errors import CorruptFileError
from rockhopper.broker.store.files.mapped_file import MappedFile
from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue
from rockhopper.broker.store.log.log_scan import record_at
from rockhopper.protocol.store.record_head import head_struct

log = structlog.get_logger("broker.store")

IDENTITY_FILE = "commit-log.json"
# The fields that differ between records of two stores: CRC of the body, born time, store time.
_HEAD = head_struct("body_crc", "born_time_ms", "store_time_ms")
_ROTTEN_FIELDS_MAX = 1


class LogIdentity(NamedTuple):
    """Where a log begins, and the heads of records by the offsets at which they start."""

    start: int
    heads: dict[int, bytes]
    origin: bytes | None = None
    """The head of the first record that the log is known to have had."""


def check_identity(layout: StoreLayout, files: MappedFileQueue) -> None:
    """Compare the loaded log with the saved identity; log an error if its oldest files are missing.

    Raises:
        CorruptFileError: it is another store's; nothing was changed.
    """
    noted = _load_identity(layout)
    if noted is None or not files.files:
        return
    present = {offset: _head_at(files, offset) for offset in noted.heads}
    alike = [
        _differing_fields(noted.heads[offset], head) <= _ROTTEN_FIELDS_MAX
        for offset, head in present.items()
        if head is not None
    ]
    if alike and not any(alike):
        raise CorruptFileError(
            layout.commit_log,
            f"the commit log in that directory does not belong to the store in {layout.root}: "
            "its records differ. Check storePathCommitLog and the mounted disk. To serve that "
            f"log alone, move everything else in {layout.root} away",
        )
    if files.min_offset > noted.start:
        log.error(
            "the oldest commit log files are missing, and this broker did not delete them; "
            "restore them unless RocketMQ deleted them",
            directory=str(layout.commit_log),
            from_offset=noted.start,
            to_offset=files.min_offset,
        )


def save_identity(layout: StoreLayout, files: MappedFileQueue) -> None:
    """Save the log's identity. Blocks.

    Raises:
        OSError: the former one is still in place.
    """
    heads = {
        file.base_offset: head
        for file in (*files.files[:1], *files.files[-1:])
        if (head := _head_at(files, file.base_offset)) is not None
    }
    _write_identity(layout, LogIdentity(files.min_offset, heads, origin_of(layout, files)))


def origin_of(layout: StoreLayout, files: MappedFileQueue) -> bytes | None:
    """Return the record head that identifies the log for good; None before the first record."""
    noted = _load_identity(layout)
    if noted is not None and noted.origin is not None:
        return noted.origin
    return _head_at(files, files.min_offset) if files.files else None


def save_start(layout: StoreLayout, start: int, leaving: MappedFile | None = None) -> None:
    """Save that the files before *start* are about to be deleted. Any thread; blocks.

    *leaving* is the first of them, if it still exists.

    Raises:
        OSError: the former identity is still in place.
    """
    noted = _load_identity(layout)
    if noted is not None:
        origin = noted.origin
        if origin is None and leaving is not None:
            origin = leaving.read(0, _HEAD.size)
        _write_identity(layout, noted._replace(start=start, origin=origin))


def _head_at(files: MappedFileQueue, offset: int) -> bytes | None:
    file = files.file_at(offset)
    try:
        if file is None or record_at(files, offset) is None:
            return None
    except FileNotFoundError:  # The file was deleted meanwhile; the next start reports it.
        return None
    position = offset - file.base_offset
    return bytes(file.mapping[position : position + _HEAD.size])


def _differing_fields(one: bytes, other: bytes) -> int:
    return sum(a != b for a, b in zip(_HEAD.unpack(one), _HEAD.unpack(other), strict=True))


def _write_identity(layout: StoreLayout, identity: LogIdentity) -> None:
    document: dict[str, Any] = {
        "start": identity.start,
        "heads": {str(offset): head.hex() for offset, head in identity.heads.items()},
    }
    if identity.origin is not None:
        document["origin"] = identity.origin.hex()
    data = checked_line.encode(document)
    path = layout.own / IDENTITY_FILE
    if not path.is_file() or path.read_bytes() != data:
        disk.make_directories_durably(layout.own)
        disk.write_atomically(path, data)


def _load_identity(layout: StoreLayout) -> LogIdentity | None:
    return checked_line.load(
        layout.own / IDENTITY_FILE,
        _identity_of,
        "the record of the commit log's identity is damaged and written again",
    )


def _identity_of(document: Any) -> LogIdentity:
    heads = {int(offset): bytes.fromhex(head) for offset, head in document["heads"].items()}
    origin = document.get("origin")
    return LogIdentity(document["start"], heads, None if origin is None else bytes.fromhex(origin))
