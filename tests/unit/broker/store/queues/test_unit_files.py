"""Unit files: read over their ends, searched by halves, and where the units in them end."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.broker.store.files.mapped_file import Mappings
from rockhopper.broker.store.queues import unit_files as module
from rockhopper.broker.store.queues.unit_files import Unit, UnitFiles, find_end, points_into_log

UNIT = struct.Struct(">qi")
FILE = 5 * UNIT.size
LOG_END = 1 << 20


class Rules:
    """Units of 50 bytes each, in ascending order."""

    def is_plausible(self, unit: Unit, commit_log_max: int) -> bool:
        return points_into_log(unit, commit_log_max)

    def count_valid(self, units: bytes, previous: Unit | None, commit_log_max: int) -> int:
        last = -1 if previous is None else previous[0]
        count = 0
        for unit in UNIT.iter_unpack(units):
            if not points_into_log(unit, commit_log_max) or unit[0] <= last:
                break
            last = unit[0]
            count += 1
        return count


def unit(number: int) -> bytes:
    return UNIT.pack(100 * number, 50)


class Written:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.mappings = Mappings(16)
        self.opened: list[UnitFiles] = []

    def files(self, *contents: bytes) -> UnitFiles:
        """Files with these contents, filled up with zeros; an empty one is not there."""
        for number, content in enumerate(contents):
            if content:
                path = self.directory / f"{number * FILE:020d}"
                path.write_bytes(content.ljust(FILE, b"\0"))
        found = UnitFiles(self.directory, FILE, UNIT, lambda file: self.mappings.map(file, found))
        found.load()
        self.opened.append(found)
        return found


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    made = Written(tmp_path)
    yield made
    for files in made.opened:
        files.close()


def units(*numbers: int) -> bytes:
    return b"".join(map(unit, numbers))


def test_bytes_are_read_over_the_end_of_a_file(written: Written) -> None:
    files = written.files(units(*range(5)), units(5, 6))
    assert files.read(UNIT.size, 6 * UNIT.size) == units(1, 2, 3, 4, 5)
    assert files.read(0, UNIT.size) == units(0)
    assert files.read(3 * FILE, 4 * FILE) == b""
    assert files.unit_at(6 * UNIT.size) == (600, 50)


@pytest.mark.parametrize("number", range(11))
def test_a_search_finds_the_first_unit_behind(written: Written, number: int) -> None:
    files = written.files(units(*range(5)), units(*range(5, 10)))
    found = files.first(0, 2 * FILE, lambda each: each[0] >= 100 * number)
    assert found == number * UNIT.size
    assert files.first(FILE, 0, lambda each: True) == FILE


def test_units_come_newest_first_until_one_is_none(written: Written) -> None:
    files = written.files(units(*range(5)), units(5, 6))
    assert [offset for offset, _ in files.newest_first()] == [600, 500, 400, 300, 200, 100, 0]
    blank = written.files(UNIT.pack(0, 0x7FFFFFFF) + units(1, 2))
    assert [offset for offset, _ in blank.newest_first()][-2:] == [200, 100]


@pytest.mark.parametrize("trusted_below", [0, LOG_END])
@pytest.mark.parametrize("count", [0, 1, 4, 5, 6, 10])
def test_the_end_is_behind_the_last_unit(written: Written, count: int, trusted_below: int) -> None:
    files = written.files(units(*range(min(count, 5))) or bytes(FILE), units(*range(5, count)))
    _, end = find_end(files, Rules(), LOG_END, trusted_below)
    assert end == count * UNIT.size


def test_a_hole_that_a_crash_left_ends_the_units(written: Written) -> None:
    files = written.files(units(0, 1) + bytes(UNIT.size) + units(3, 4), units(5))
    assert find_end(files, Rules(), LOG_END, trusted_below=0)[1] == 2 * UNIT.size


def test_stale_units_behind_the_end_do_not_count(written: Written) -> None:
    files = written.files(units(7, 8, 9, 2, 3))
    assert find_end(files, Rules(), LOG_END, trusted_below=0)[1] == 3 * UNIT.size


def test_units_behind_the_end_of_the_log_do_not_count(written: Written) -> None:
    files = written.files(units(*range(5)), units(5, 6))
    assert find_end(files, Rules(), 250, trusted_below=0)[1] == 3 * UNIT.size


def test_what_is_behind_a_lost_file_does_not_count(written: Written) -> None:
    files = written.files(units(*range(5)), b"", units(*range(10, 13)))
    assert find_end(files, Rules(), LOG_END, trusted_below=0)[1] == FILE


def test_only_what_may_not_have_been_on_disk_is_read(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_UNITS_TO_VERIFY", 2)
    files = written.files(units(*range(5)), units(*range(5, 10)))
    start, end = find_end(files, Rules(), LOG_END, trusted_below=850)
    assert (start, end) == (7 * UNIT.size, 10 * UNIT.size)


def test_where_all_that_was_read_is_bad_more_is_read(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_UNITS_TO_VERIFY", 0)
    files = written.files(units(0, 1, 2) + UNIT.pack(900, 50) * 2, UNIT.pack(800, 50) * 5)
    start, end = find_end(files, Rules(), LOG_END, trusted_below=LOG_END)
    assert (start, end) == (0, 4 * UNIT.size)


@pytest.mark.parametrize(
    ("fields", "is_one"),
    [
        ((0, 1), True),
        ((-1, 10), False),
        ((0, 0), False),
        ((0, -1), False),
        ((0, 0x7FFFFFFF), False),
        ((990, 10), True),
        ((991, 10), False),
    ],
)
def test_a_unit_points_into_the_log_or_not(fields: Unit, is_one: bool) -> None:
    assert points_into_log(fields, 1000) is is_one
