"""Files of records: whole appends, and a word for what cannot be read, which is kept aside."""

import errno
import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.store.files.record_file import RecordFile, read_records, repair
from rockhopper.broker.store.files.record_journal import RecordJournal
from rockhopper.protocol.store.journal_records import encode_record

DATA = encode_record(1, b"") + encode_record(2, b"short") + encode_record(7, bytes(40))


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
        assert repair(path, read, quarantine, what="tests") == len(DATA)
    assert path.read_bytes() == DATA
    (kept,) = quarantine.iterdir()
    assert kept.read_bytes() == DATA + b"torn"
    assert [(entry["log_level"], entry["what"], entry["file"]) for entry in logs] == [
        ("error", "tests", str(path))
    ]
    path.write_bytes(DATA[:-1] + b"?")
    with capture_logs() as logs:
        repair(path, read_records(path), quarantine, what="tests")
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
    again.repair()
    again.append(encode_record(1, b"new"))
    again.close()
    assert list(again.read()) == [(1, b"0"), (1, b"new")]
    assert not again.is_damaged
    assert len(list((tmp_path / "q").iterdir())) == 2
