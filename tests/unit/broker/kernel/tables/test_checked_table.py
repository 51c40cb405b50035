"""CheckedTable: two equal copies with a checksum, and a start without when both are damaged."""

from pathlib import Path

import pytest
import structlog

from rockhopper.broker.kernel.tables.checked_table import CheckedTable
from rockhopper.broker.kernel.tables.table_seal import unseal
from tests.support.rot import flipped


@pytest.fixture
def path(tmp_path: Path) -> Path:
    table = CheckedTable(tmp_path / "rockhopper" / "table.json")
    table.set("first", "a")
    table.save()
    table.set("second", ["b", 7])
    table.save()
    return table.path


def loaded(path: Path) -> CheckedTable:
    table = CheckedTable(path)
    table.load()
    return table


def test_both_copies_hold_the_last_change(path: Path) -> None:
    backup = path.with_name("table.json.bak")
    saved = unseal(backup.read_bytes())
    assert saved is not None
    assert saved.content == path.read_bytes()
    assert loaded(path).entries == {"first": "a", "second": ["b", 7]}


def test_every_flipped_bit_gives_way_to_the_copy(path: Path) -> None:
    good = path.read_bytes()
    entries = loaded(path).entries
    for bit in range(0, len(good) * 8, 7):
        damaged = flipped(good, bit)
        path.write_bytes(damaged)
        assert loaded(path).entries == entries


def test_without_either_copy_it_starts_empty_and_says_so(path: Path) -> None:
    for each in (path, path.with_name("table.json.bak")):
        each.write_bytes(each.read_bytes().replace(b'"a"', b'"x"'))
    with structlog.testing.capture_logs() as lines:
        table = loaded(path)
    assert table.entries == {}
    (line,) = (line for line in lines if line["log_level"] == "error")
    assert line["event"] == CheckedTable.lost
    assert "its checksum is wrong" in line["reason"]
    table.set("third", 1)
    table.save()
    assert b'"x"' in path.with_name("table.json.damaged").read_bytes()
    assert loaded(path).entries == {"third": 1}
