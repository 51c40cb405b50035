from pathlib import Path

import pytest

from rockhopper.broker.kernel.tables.table_seal import seal
from rockhopper.broker.replication.election.replica_disk import ReplicaDisk
from rockhopper.broker.store.files.disk import write_atomically
from rockhopper.protocol.store.journal_records import encode_record
from tests.support.rot import flip_bit
from tests.support.tool_stores import checked

TABLE = b'{\n\t"offsetTable":{}\n}'


@pytest.fixture
def table(root: Path) -> Path:
    """A table as the broker saves it."""
    path = root / "config" / "consumerOffset.json"
    path.parent.mkdir()
    write_atomically(path, TABLE, seal(TABLE, 0))
    assert checked(root).is_sound
    return path


def _damages(root: Path) -> list[tuple[str, str]]:
    return [(Path(each.path).name, each.what.split(":")[0]) for each in checked(root).damages]


def test_a_table_that_is_not_as_it_was_saved_is_named(root: Path, table: Path) -> None:
    table.write_bytes(TABLE.replace(b"{}", b"{ }"))
    assert _damages(root) == [(table.name, "the table differs from what was saved")]
    table.write_bytes(b"{")
    assert _damages(root) == [(table.name, "the table cannot be read")]
    table.unlink()
    assert _damages(root) == [(table.name, "the table is missing or empty")]


def test_a_damaged_copy_is_named(root: Path, table: Path) -> None:
    flip_bit(table.with_name(table.name + ".bak"), 6)
    assert _damages(root) == [(table.name + ".bak", "the copy is damaged")]


@pytest.mark.parametrize("name", ["inventory.json", "commit-log.json", "geometry.json"])
def test_a_damaged_note_is_named(root: Path, name: str) -> None:
    flip_bit(root / "rockhopper" / name, 12)
    assert (name, "the file is damaged") in _damages(root)


def test_a_damaged_checkpoint_is_named(root: Path) -> None:
    flip_bit(root / "rockhopper" / "checkpoint", 4)
    assert _damages(root) == [("checkpoint", "the checkpoint is invalid")]


def test_damaged_records_of_notes_are_named(root: Path) -> None:
    path = root / "rockhopper" / "pop" / "0.records"
    path.parent.mkdir()
    path.write_bytes(encode_record(1, b"noted") * 2)
    flip_bit(path, 10)
    assert checked(root).damages[0].place["file_position"] == 0


def test_what_a_replica_must_not_forget_is_checked_with_its_copy(root: Path) -> None:
    ReplicaDisk(root / "rockhopper" / "ha").note_voted_epoch(7)
    assert checked(root).is_sound
    promise_file = root / "rockhopper" / "ha" / "promise.json"
    flip_bit(promise_file, 3)
    (found,) = checked(root).damages
    assert found.what.startswith("promise.json is damaged")
    assert "intact copy" in found.remedy
    flip_bit(promise_file.with_name("promise.json.bak"), 3)
    (found,) = checked(root).damages
    assert "refuses to start" in found.remedy
