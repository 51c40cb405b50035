from pathlib import Path

import pytest

from rockhopper.broker.store.files.errors import CorruptFileError
from rockhopper.broker.tools.repair.objects import Objects, snapshot
from tests.support.rot import flip_bit


def test_what_is_alike_is_kept_once(tmp_path: Path) -> None:
    objects = Objects(tmp_path)
    name = objects.store_object(b"table")
    assert objects.store_object(b"table") == name
    other = objects.store_object(b"other")
    assert objects.get(name) == b"table"
    assert objects.keep_only({name}) == 1
    assert not (tmp_path / other).exists()
    flip_bit(tmp_path / name, 10)
    with pytest.raises(CorruptFileError, match="of the backup is"):
        objects.get(name)


def test_a_table_that_is_replaced_meanwhile_is_copied_again(tmp_path: Path) -> None:
    table, journal = tmp_path / "a.json", tmp_path / "b.records"
    table.write_bytes(b"old")
    journal.write_bytes(b"1")
    calls: list[None] = []

    def find() -> list[Path]:
        calls.append(None)
        if len(calls) == 2:
            new = tmp_path / "new"
            new.write_bytes(b"new")
            new.replace(table)
        return [table, journal]

    assert snapshot(find) == {table: b"new", journal: b"1"}
    assert len(calls) == 4


def test_tables_that_never_rest_are_an_error(tmp_path: Path) -> None:
    def find() -> list[Path]:
        new = tmp_path / "new"
        new.write_bytes(b"new")
        new.replace(tmp_path / "a")
        (tmp_path / "keeps-the-number").write_bytes(b"")
        (tmp_path / "keeps-the-number").rename(tmp_path / f"b{len(list(tmp_path.iterdir()))}")
        return [tmp_path / "a", *tmp_path.glob("b*")]

    with pytest.raises(OSError, match="try again"):
        snapshot(find)
