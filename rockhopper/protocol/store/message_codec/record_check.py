"""Checks whether the bytes at a commit log offset are a record, for recovery and dispatch.

RocketMQ's CommitLog.checkMessageAndReturnSize does not compare the record's own commit log offset
with its position; here a record copied to another position is invalid.
"""

from dataclasses import dataclass
from enum import Enum
from zlib import crc32

from rockhopper.protocol.errors import MalformedMessageError
from rockhopper.protocol.properties import decode_properties
from rockhopper.protocol.store.expected import Record
from rockhopper.protocol.store.message_codec.record import BODY_CRC_MASK, Buffer, split_record
from rockhopper.protocol.store.record_head import (
    BLANK_RECORD,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_BYTES_MIN,
)

OWN_CRC_NAME = b"__CRC32#\x01"
OWN_CRC_SIZE_BYTES = 20
"""With ``enabledAppendPropCRC`` RocketMQ ends a record with this property, ten digits and 0x02."""


def is_own_crc_right(record: Buffer) -> bool:
    """Whether a whole record has no CRC property at its end, or a correct one."""
    covered = len(record) - OWN_CRC_SIZE_BYTES
    name_end = covered + len(OWN_CRC_NAME)
    if covered < 0 or record[covered:name_end] != OWN_CRC_NAME:
        return True
    digits = str(crc32(record[:covered]) & BODY_CRC_MASK)[::-1].ljust(10, "0")
    return bool(record[name_end:-1] == digits.encode())


class RecordStatus(Enum):
    """The kind of data at an offset."""

    OK = "ok"
    BLANK = "blank"
    """The end of a file: the next record starts the next file."""
    INVALID = "invalid"


@dataclass(slots=True)
class RecordCheck:
    """The result of a check. Fields other than status, size and reason are valid only if OK."""

    status: RecordStatus
    size_bytes: int = 0
    """The size of the record.

    If invalid: the distance to the next record if only the body is damaged, else 0.
    """
    reason: str = ""
    topic: str = ""
    queue_id: int = 0
    queue_offset: int = 0
    commit_log_offset: int = 0
    sys_flag: int = 0
    store_time_ms: int = 0
    prepared_transaction_offset: int = 0
    properties_bytes: bytes = b""

    @property
    def is_ok(self) -> bool:
        """Whether a whole record was found."""
        return self.status is RecordStatus.OK

    @property
    def is_blank(self) -> bool:
        """Whether the end of the file was found."""
        return self.status is RecordStatus.BLANK

    @property
    def record(self) -> Record:
        """What dispatch, recovery and the scrub need of the record."""
        return Record(
            self.commit_log_offset,
            self.size_bytes,
            self.queue_id,
            self.queue_offset,
            self.sys_flag,
            self.store_time_ms,
            self.topic.encode(),
            self.properties_bytes,
        )

    @property
    def properties(self) -> dict[str, str]:
        """The properties, decoded at each call."""
        return decode_properties(self.properties_bytes)


def check_record(
    buffer: Buffer,
    offset: int,
    available: int,
    expected_commit_log_offset: int | None = None,
    check_crc: bool = True,
) -> RecordCheck:
    """Check the bytes from *offset* on, of which *available* may be read.

    *expected_commit_log_offset* is their position in the log, None if unknown.
    """
    if available < 8:
        return _invalid(f"{available} bytes are too few for a record")
    size, magic = BLANK_RECORD.unpack_from(buffer, offset)
    if magic == MAGIC_BLANK:
        if not 8 <= size <= available:
            return _invalid(f"a blank record of {size} bytes, but {available} are left")
        return RecordCheck(RecordStatus.BLANK, size)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return _invalid(f"0x{magic:08X} is not the magic of a record")
    if not RECORD_SIZE_BYTES_MIN <= size <= available:
        return _invalid(f"a record of {size} bytes, but only {available} are left")
    record = bytes(buffer[offset : offset + size])
    try:
        head, body_start, topic_start, properties_start = split_record(record)
        topic = record[topic_start : properties_start - 2].decode()
    except (MalformedMessageError, UnicodeDecodeError) as error:
        return _invalid(str(error))
    if expected_commit_log_offset is not None and head.log_offset != expected_commit_log_offset:
        return _invalid(
            f"the record at {expected_commit_log_offset} has the commit log offset "
            f"{head.log_offset} in its head"
        )
    if check_crc and head.body_size_bytes:
        found = crc32(record[body_start : body_start + head.body_size_bytes]) & BODY_CRC_MASK
        if found != head.body_crc:
            return _invalid(f"the CRC of the body is {found}, not {head.body_crc}", size)
    return RecordCheck(
        RecordStatus.OK,
        size,
        "",
        topic,
        head.queue_id,
        head.queue_offset,
        head.log_offset,
        head.sys_flag,
        head.store_time_ms,
        head.prepared_transaction_offset,
        record[properties_start:],
    )


def _invalid(reason: str, size_bytes: int = 0) -> RecordCheck:
    return RecordCheck(RecordStatus.INVALID, size_bytes, reason)
