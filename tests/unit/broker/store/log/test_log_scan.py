"""Reading records: what counts as one, what the next one is, and what the last one's time is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files.mapped_file import MappedFile
from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue
from rockhopper.broker.store.log.log_scan import (
    explain_missing_record,
    find_next,
    is_blank,
    last_store_time_ms,
    read_damaged,
)
from rockhopper.broker.store.recovering.log_walk import Hole, LogWalk, cut_tail
from rockhopper.protocol.store.record_head import BLANK_RECORD, MAGIC_BLANK
from rockhopper.protocol.store.walking import read_record
from tests.support.golden_stores import copy_golden_store
from tests.support.records import encode_message
from tests.support.store_directories import T0, LogWriter

BASE = 8192
HOST_V6 = bytes(15) + b"\x01" + bytes(4)


def encode(offset: int = BASE, **changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "topic": "TopicA",
        "body": b"hello",
        "properties": "TAGS\x01a\x02",
        "queue_id": 3,
        "queue_offset": 7,
        "commit_log_offset": offset,
        "store_time_ms": T0,
    }
    return encode_message(**{**fields, **changes})


def with_own_crc(record: bytes) -> bytes:
    """Fill in the last 20 bytes as enabledAppendPropCRC does: lowest digit first."""
    number = crc32(record[:-20]) & 0x7FFFFFFF
    digits = ""
    while number:
        digits += str(number % 10)
        number //= 10
    return record[:-20] + b"__CRC32#\x01" + digits.ljust(10, "0").encode() + b"\x02"


def test_a_record_is_read_with_what_recovery_needs() -> None:
    record = read_record(encode() + bytes(100), 0, BASE)
    assert record is not None
    assert record == (BASE, len(encode()), 3, 7, 0, T0, b"TopicA", b"TAGS\x01a\x02")
    assert record.end_offset == BASE + len(encode())


@pytest.mark.parametrize(
    "changes",
    [
        {"body": b""},
        {"topic": "t" * 128},
        {"topic": "テスト"},
        {"born_host": HOST_V6},
        {"store_host": HOST_V6},
        {"born_host": HOST_V6, "store_host": HOST_V6, "topic": "t" * 255},
        {"properties": ""},
        {"queue_id": 2**31 - 1, "queue_offset": 2**62},
    ],
    ids=str,
)
def test_every_kind_of_record_is_read(changes: dict[str, Any]) -> None:
    data = b"front" + encode(BASE + 5, **changes)
    record = read_record(data, 5, BASE)
    assert record is not None
    assert record.size_bytes == len(data) - 5
    assert record.topic.decode() == changes.get("topic", "TopicA")
    assert read_record(data, 5, BASE + 1) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"store_time_ms": 0}, "store time"),
        ({"queue_id": -1}, "queue id"),
        ({"queue_offset": -1}, "queue offset"),
        ({"commit_log_offset": BASE + 1}, "has the commit log offset"),
    ],
)
def test_fields_that_make_no_sense_are_refused(changes: dict[str, Any], reason: str) -> None:
    data = encode(**changes)
    assert read_record(data, 0, BASE) is None
    assert reason in explain_missing_record(data, 0, BASE)


def test_no_record_is_read_when_any_byte_that_is_checked_is_flipped() -> None:
    data = encode()
    # Size, magic, CRC, offset in the log, host flags, size of the body, body, topic's size.
    checked = [*range(12), *range(28, 36), *range(84, 94), data.index(b"TopicA") - 1]
    for position in checked:
        damaged = bytearray(data)
        damaged[position] ^= 0x41
        assert read_record(bytes(damaged), 0, BASE) is None, position


def test_a_record_that_does_not_end_in_the_file_is_none() -> None:
    data = encode()
    for size in range(len(data)):
        assert read_record(data[:size], 0, BASE) is None


def test_a_damaged_body_leaves_a_head_that_can_be_read() -> None:
    data = encode().replace(b"hello", b"hallo")
    assert read_record(data, 0, BASE) is None
    damaged = read_damaged(data, 0, BASE)
    assert damaged is not None
    assert damaged.queue_offset == 7
    assert "CRC of the body" in explain_missing_record(data, 0, BASE)
    assert read_damaged(encode(), 0, BASE) is None
    assert read_damaged(encode().replace(b"\xda\xa3", b"\xda\xa4"), 0, BASE) is None


@pytest.mark.parametrize("topic", ["TopicA", "t" * 200])
def test_a_record_with_a_crc_of_its_own_is_verified_by_it(topic: str) -> None:
    data = with_own_crc(encode(topic=topic, properties="TAGS\x01a\x02" + "x" * 20))
    assert read_record(data, 0, BASE) is not None
    renamed = data.replace(b"TAGS", b"TAGZ")
    assert read_record(renamed, 0, BASE) is None
    assert "record's CRC" in explain_missing_record(renamed, 0, BASE)
    assert read_damaged(renamed, 0, BASE) is None
    assert read_record(renamed, 0, BASE, check_crc=False) is not None


def test_rocketmqs_own_crcs_are_understood(tmp_path: Path) -> None:
    root = copy_golden_store("crcprop", tmp_path / "store")
    data = bytearray((root / "commitlog" / f"{0:020d}").read_bytes())
    first = read_record(bytes(data), 0, 0)
    assert first is not None
    assert first.properties[-20:-11] == b"__CRC32#\x01"
    assert read_record(bytes(data), first.size_bytes, 0) is not None
    data[55] ^= 1
    assert read_record(bytes(data), 0, 0) is None


def test_a_blank_record_reaches_to_the_end_of_the_file() -> None:
    blank = BLANK_RECORD.pack(100, MAGIC_BLANK)
    assert is_blank(blank.ljust(100, b"\0"), 0)
    assert not is_blank(blank.ljust(101, b"\0"), 0)
    assert is_blank(bytes(10), 3)
    assert not is_blank(bytes(100), 0)


# Files.


@pytest.fixture
def open_file(tmp_path: Path) -> Callable[[bytes], MappedFile]:
    def write(content: bytes) -> MappedFile:
        path = tmp_path / f"{BASE:020d}"
        path.write_bytes(content.ljust(8192, b"\0"))
        return MappedFile.open(path)

    return write


def test_the_next_record_is_found_wherever_it_starts(
    open_file: Callable[[bytes], MappedFile],
) -> None:
    for position in (1, 90, 4093, 4094, 4095, 4096, 6000):
        file = open_file(b"\xff" * position + encode(BASE + position))
        assert find_next(file, 0) == find_next(file, position) == position
        assert find_next(file, position + 1) is None


def test_records_from_elsewhere_are_passed_over(open_file: Callable[[bytes], MappedFile]) -> None:
    stale = encode(BASE + 100_000)
    position = 10 + len(stale)
    file = open_file(b"\xff" * 10 + stale + encode(BASE + position))
    assert find_next(file, 0) == position


def test_the_closing_blank_is_found_when_no_record_follows(
    open_file: Callable[[bytes], MappedFile],
) -> None:
    false_blank = BLANK_RECORD.pack(99, MAGIC_BLANK)
    blank = BLANK_RECORD.pack(8192 - 500, MAGIC_BLANK)
    file = open_file((b"\xff" * 100 + false_blank).ljust(500, b"\xff") + blank)
    assert find_next(file, 0) == 500


def test_the_last_store_time_is_found_from_the_end(
    open_file: Callable[[bytes], MappedFile],
) -> None:
    first = encode()
    embedding = encode(BASE + len(first), body=encode(0, store_time_ms=1), store_time_ms=T0 + 5)
    assert last_store_time_ms(open_file(first + embedding)) == T0 + 5
    assert last_store_time_ms(open_file(b"\xff" * 5000)) is None
    assert last_store_time_ms(open_file(b"")) is None


# Walking, and cutting what is behind the end.


def walk(log: LogWriter, start: int = 0, proven_end: int = 0) -> LogWalk:
    files = MappedFileQueue(log.root / "commitlog", 4096)
    files.load()
    found = LogWalk(files.files, start, proven_end=proven_end)
    assert [r.offset for r in found.records()] == sorted(r.offset for r in found.records())
    return found


def test_a_walk_can_start_at_any_record(tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    log.append_many(40)
    for number in (0, 1, 21, 22, 39):
        found = walk(log, log.written[number].offset)
        assert found.end == log.end
        assert found.holes == []
        assert found.last_store_time_ms == log.time_ms - 1


def test_a_walk_over_no_files_is_over_at_once() -> None:
    found = LogWalk([], 0)
    assert list(found.records()) == []
    assert found.end == 0


def test_damage_up_to_the_proven_end_is_a_hole(tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    log.append_many(5)
    last = log.written[-1]
    log.overwrite(last.offset, b"\xff" * last.size_bytes)
    assert walk(log).end == last.offset
    found = walk(log, proven_end=log.end)
    assert found.end == log.end
    assert [hole[:2] for hole in found.holes] == [(last.offset, last.end_offset)] * 2


def test_a_message_whose_last_bytes_are_zeros_is_torn_only_at_the_end(tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    for number in range(3):
        log.append(extra="END\x01zeros\0" if number else "")
    assert walk(log).end == log.written[2].offset
    log.append()
    assert walk(log).end == log.end


def test_what_is_cut_off_is_kept_over_several_files(tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    log.append_many(5)
    log.overwrite(log.end, b"first" + bytes(100))
    log.overwrite(4096 + 50, b"second")
    files = MappedFileQueue(log.root / "commitlog", 4096)
    files.load()
    cut = cut_tail(StoreLayout(tmp_path), files, log.end)
    assert cut is not None
    assert (cut.offset, cut.size_bytes) == (log.end, 5 + 56)
    kept = sorted(StoreLayout(tmp_path).quarantine.iterdir())
    assert [path.read_bytes() for path in kept] == [b"first", bytes(50) + b"second"]
    assert len(files.files) == 1
    assert files.write_offset == log.end
    assert log.read(log.end, 500).strip(b"\0") == b""
    assert cut_tail(StoreLayout(tmp_path), files, log.end) is None


def test_holes_say_why(tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    log.append_many(5)
    second = log.written[1]
    log.overwrite(second.offset, bytes(20))
    found = LogWalk([MappedFile.open(log.path_of(0))], 0)
    list(found.records())
    assert found.holes == [Hole(second.offset, second.end_offset, "zeros instead of a record")]
