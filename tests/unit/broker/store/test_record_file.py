"""Files of records: whole appends, every record that can be read, and a word for what cannot."""

import errno
import os
import random
from itertools import pairwise
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from broker.store.record_file import RecordFile, mend, read_records
from broker.store.record_journal import RecordJournal
from protocol.note_records import Record, decode_records, encode_record
from tests.support.rot import flipped

RECORDS: list[Record] = [(1, b""), (2, b"short"), (7, b"x" * 40), (3, bytes(16)), (3, b"short")]
DATA = b"".join([encode_record(*record) for record in RECORDS])


def test_records_come_back_once() -> None:
    read = decode_records(DATA)
    assert read.records == RECORDS
    assert (read.damages, read.is_lossy, read.sound_count) == ([], False, 5)


def test_any_flipped_bit_is_mended_from_the_other_copy() -> None:
    for bit in range(len(DATA) * 8):
        data = flipped(DATA, bit)
        read = decode_records(data)
        assert read.records == RECORDS, bit
        assert read.damages
        assert not read.is_lossy, bit


def test_a_cut_at_any_length_keeps_what_is_in_front() -> None:
    ends = [0]
    for record in RECORDS:
        ends.append(ends[-1] + len(encode_record(*record)))
    for size_bytes in range(len(DATA)):
        read = decode_records(DATA[:size_bytes])
        # A record counts from its first copy on.
        count = sum(size_bytes >= start + (end - start) // 2 for start, end in pairwise(ends))
        assert read.records == RECORDS[:count], size_bytes
        assert read.is_lossy == (size_bytes - ends[count] > 0), size_bytes


def test_a_damage_over_both_copies_costs_that_record_and_is_known() -> None:
    dice = random.Random(1)
    size = len(encode_record(*RECORDS[0])) + len(encode_record(*RECORDS[1]))
    data = DATA[:size] + dice.randbytes(60) + DATA[size + 60 :]
    read = decode_records(data)
    assert read.records == RECORDS[:2] + RECORDS[2:][1:]
    assert read.is_lossy
    assert read.sound_count == 2


def test_single_records_of_0_1_0_are_read_and_no_damage_among_them_passes_for_a_copy() -> None:
    single = [encode_record(1, b"%04d" % number)[:13] for number in range(5)]
    assert decode_records(b"".join(single)).records == [(1, b"%04d" % n) for n in range(5)]
    for bit in range(13 * 8):
        damaged = flipped(single[2], bit)
        read = decode_records(b"".join([*single[:2], bytes(damaged), *single[3:]]))
        # With the bit of the kind flipped it is a record of another kind, with a wrong CRC.
        assert read.is_lossy
        assert read.sound_count == 2


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("written", [0, 1, 7])
def test_an_append_that_fails_leaves_nothing_and_a_short_write_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, written: int
) -> None:
    file = RecordFile(tmp_path / "f")
    file.append(encode_record(1, b"first"))
    real = os.pwrite
    calls: list[int] = []

    def fail(descriptor: int, data: bytes, position: int) -> int:
        calls.append(len(data))
        if len(calls) > 1 or not written:
            raise OSError(number, os.strerror(number))
        return real(descriptor, bytes(data)[:written], position)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fail)
        with pytest.raises(OSError, match=os.strerror(number)):
            file.append(encode_record(1, b"lost"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda d, data, at: real(d, bytes(data)[:7], at))
        file.append(encode_record(1, b"second"))
    file.close()
    read = read_records(tmp_path / "f")
    assert read.records == [(1, b"first"), (1, b"second")]
    assert read.damages == []


def test_a_damaged_file_is_kept_aside_named_and_written_anew(tmp_path: Path) -> None:
    path, quarantine = tmp_path / "notes" / "f", tmp_path / "quarantine"
    path.parent.mkdir()
    path.write_bytes(DATA + b"torn")
    read = read_records(path)
    with capture_logs() as logs:
        assert mend(path, read, quarantine, what="tests") == len(DATA)
    assert path.read_bytes() == DATA
    (kept,) = quarantine.iterdir()
    assert kept.read_bytes() == DATA + b"torn"
    assert [(entry["log_level"], entry["what"], entry["file"]) for entry in logs] == [
        ("error", "tests", str(path))
    ]
    path.write_bytes(DATA[:-1] + b"?")
    with capture_logs() as logs:
        mend(path, read_records(path), quarantine, what="tests")
    assert [entry["log_level"] for entry in logs] == ["warning"]
    assert len(list(quarantine.iterdir())) == 2


def test_behind_a_lost_record_nothing_counts_where_the_order_matters(tmp_path: Path) -> None:
    journal = RecordJournal(tmp_path / "j", tmp_path / "q", what="tests", strict=True)
    for number in range(3):
        journal.append(encode_record(1, b"%d" % number))
    journal.rotate()
    journal.append(encode_record(1, b"3"))
    journal.close()
    first, _ = journal.files()
    data = bytearray(first.read_bytes())
    data[24:34] = bytes(10)
    first.write_bytes(data)
    again = RecordJournal(tmp_path / "j", tmp_path / "q", what="tests", strict=True)
    assert list(again.read()) == [(1, b"0")]
    assert again.is_damaged
    again.mend()
    again.append(encode_record(1, b"new"))
    again.close()
    assert list(again.read()) == [(1, b"0"), (1, b"new")]
    assert not again.is_damaged
    assert len(list((tmp_path / "q").iterdir())) == 2
