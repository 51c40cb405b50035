"""RecordJournal: records over several files, in order, repaired after damage, forgotten in time."""

from pathlib import Path

import pytest

from rockhopper.broker.store.files.record_journal import RecordJournal
from rockhopper.protocol.store.journal_records import encode_record
from tests.support.rot import overwrite


def journal(tmp_path: Path, *, strict: bool = False) -> RecordJournal:
    return RecordJournal(
        tmp_path / "notes", tmp_path / "quarantine", what="notes", suffix=".n", strict=strict
    )


def note(number: int) -> bytes:
    return encode_record(1, b"%06d" % number)


def numbers(opened: RecordJournal) -> list[int]:
    return [int(payload) for _, payload in opened.read()]


def written(tmp_path: Path, files: int = 3, of_each: int = 3) -> list[Path]:
    """Files with records that are numbered through."""
    opened = journal(tmp_path)
    for file in range(files):
        if file:
            opened.rotate()
        for number in range(of_each):
            opened.append(note(file * of_each + number))
    opened.close()
    return opened.files()


def test_no_file_exists_before_the_first_record(tmp_path: Path) -> None:
    opened = journal(tmp_path)
    assert numbers(opened) == []
    assert opened.files() == []
    assert not (tmp_path / "notes").exists()
    opened.append(note(0))
    assert [path.name for path in opened.files()] == ["0" * 20 + ".n"]
    opened.close()


def test_records_are_read_in_the_order_of_the_files_and_go_on_in_the_newest(
    tmp_path: Path,
) -> None:
    paths = written(tmp_path)
    for name in ("x.n", "5", "00000000000000000007.n.tmp"):
        (tmp_path / "notes" / name).write_bytes(b"not ours")
    opened = journal(tmp_path)
    assert numbers(opened) == list(range(9))
    assert (opened.number, opened.size_bytes) == (2, paths[-1].stat().st_size)
    opened.append(note(9))
    opened.close()
    assert numbers(journal(tmp_path)) == list(range(10))
    assert opened.files() == paths


@pytest.mark.parametrize(
    ("strict", "left"), [(False, [0, 1, 2, 3, 5, 6, 7, 8]), (True, [0, 1, 2, 3])]
)
def test_behind_a_lost_record_counts_what_may_count(
    tmp_path: Path, strict: bool, left: list[int]
) -> None:
    paths = written(tmp_path)
    size = paths[1].stat().st_size // 3
    overwrite(paths[1], size + 5, b"\xa5" * (size - 10))
    opened = journal(tmp_path, strict=strict)
    assert numbers(opened) == left
    assert opened.is_damaged
    opened.repair()
    assert not opened.is_damaged
    assert list((tmp_path / "quarantine").iterdir()) != []
    opened.append(note(10))
    opened.close()
    again = journal(tmp_path, strict=strict)
    assert numbers(again) == [*left, 10]
    assert not again.is_damaged


def test_a_torn_end_is_mended(tmp_path: Path) -> None:
    path = written(tmp_path)[-1]
    path.write_bytes(path.read_bytes()[:-20])
    opened = journal(tmp_path)
    assert numbers(opened) == list(range(8))
    opened.repair()
    opened.append(note(8))
    opened.close()
    assert numbers(journal(tmp_path)) == list(range(9))


def test_old_files_go_and_the_newest_stays(tmp_path: Path) -> None:
    paths = written(tmp_path)
    opened = journal(tmp_path)
    assert numbers(opened) == list(range(9))
    opened.forget_before(1)
    assert opened.files() == paths[1:]
    opened.append(note(9))
    opened.forget_older()
    assert opened.files() == paths[2:]
    opened.close()
    opened.forget_older()
    assert opened.files() == paths[2:]


def test_what_was_written_is_taken_for_a_sync_once_and_given_back(tmp_path: Path) -> None:
    opened = journal(tmp_path)
    opened.append(note(0))
    opened.append(note(1))
    opened.rotate()
    opened.append(note(2))
    taken = opened.take_unsynced()
    assert taken == opened.files()
    assert opened.take_unsynced() == []
    opened.unsynced_again(taken[:1])
    assert opened.take_unsynced() == taken[:1]
    opened.close()


def test_a_file_that_is_in_the_way_of_the_next_one_is_emptied(tmp_path: Path) -> None:
    written(tmp_path, files=1)
    opened = journal(tmp_path)
    assert numbers(opened) == [0, 1, 2]
    (tmp_path / "notes" / f"{1:020d}.n").write_bytes(note(99))
    opened.rotate()
    opened.append(note(3))
    opened.close()
    assert numbers(journal(tmp_path)) == [0, 1, 2, 3]


def test_records_that_cannot_be_written_leave_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = journal(tmp_path)
    opened.append(note(0))

    def fail(descriptor: int, position: int, data: bytes) -> None:
        raise OSError(28, "no space")

    with monkeypatch.context() as patch:
        patch.setattr("rockhopper.broker.store.files.disk.write_fully", fail)
        with pytest.raises(OSError, match="no space"):
            opened.append(note(1))
    opened.append(note(2))
    opened.close()
    assert numbers(journal(tmp_path)) == [0, 2]
