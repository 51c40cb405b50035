"""Where the kernel is told to read ahead in the commit log."""

import mmap
from pathlib import Path
from typing import Self

import pytest

from rockhopper.broker.store.files.mapped_file import MappedFile
from rockhopper.broker.store.log.commit_log import ReadAhead

PAGE = mmap.PAGESIZE
SIZE = 4 * PAGE


class Mapping(mmap.mmap):
    """Notes what it is advised, page by page."""

    pages = "?" * 4

    def __new__(cls) -> Self:
        return super().__new__(cls, -1, SIZE)

    def madvise(self, option: int, start: int = 0, length: int | None = None) -> None:
        assert start % PAGE == 0
        first, count = start // PAGE, (SIZE - start if length is None else length) // PAGE
        assert count > 0
        sign = {mmap.MADV_NORMAL: "n", mmap.MADV_RANDOM: "r"}[option]
        self.pages = self.pages[:first] + sign * count + self.pages[first + count :]


@pytest.fixture
def mapping() -> Mapping:
    return Mapping()


@pytest.fixture
def file(tmp_path: Path, mapping: Mapping) -> MappedFile:
    return MappedFile.create(tmp_path / f"{SIZE:020}", SIZE, SIZE, map_file=lambda _: mapping)


def test_who_opens_a_log_reads_all_of_it(mapping: Mapping) -> None:
    ReadAhead().advise(mapping, SIZE)
    assert mapping.pages == "nnnn"


@pytest.mark.parametrize(
    ("written", "pages"),
    [(0, "rrrr"), (SIZE + PAGE - 1, "rrrr"), (SIZE + 2 * PAGE + 1, "nnrr"), (3 * SIZE, "nnnn")],
)
def test_nothing_is_read_ahead_behind_the_end(mapping: Mapping, written: int, pages: str) -> None:
    read_ahead = ReadAhead()
    read_ahead.passed([], written)
    read_ahead.advise(mapping, SIZE)
    assert mapping.pages == pages


def test_what_was_written_since_may_be_read_ahead(file: MappedFile, mapping: Mapping) -> None:
    read_ahead = ReadAhead()
    read_ahead.passed([file], SIZE)
    assert mapping.pages == "????", "only what is mapped is advised"
    assert file.mapping is mapping
    read_ahead.passed([file], SIZE + PAGE)
    assert mapping.pages == "nrrr"


def test_an_operator_turns_it_off_and_on(file: MappedFile, mapping: Mapping) -> None:
    read_ahead = ReadAhead()
    read_ahead.passed([], SIZE + 3 * PAGE)
    assert file.mapping is mapping
    read_ahead.turn([file], enabled=False)
    assert mapping.pages == "rrrr"
    read_ahead.passed([file], SIZE + 3 * PAGE)
    assert mapping.pages == "rrrr"
    read_ahead.turn([file], enabled=True)
    assert mapping.pages == "nnnr"
