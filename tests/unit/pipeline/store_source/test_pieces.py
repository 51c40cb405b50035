"""Where in a file anything was written: holes are left out, and doubt counts as written."""

import errno
import os
from pathlib import Path

import pytest

from rockhopper.pipeline.store_source.pieces import data_ranges_of

BLOCK = 1 << 16


@pytest.fixture
def sparse(tmp_path: Path) -> Path:
    """Data in the first and the fourth of six blocks."""
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.write(b"x" * BLOCK)
        file.seek(3 * BLOCK)
        file.write(b"y" * BLOCK)
        file.truncate(6 * BLOCK)
    return path


@pytest.mark.parametrize(
    ("start", "end", "ranges"),
    [
        (0, 6, [(0, 1), (3, 4)]),
        (0, 3, [(0, 1)]),
        (1, 3, []),
        (4, 6, []),
        (3, 4, [(3, 4)]),
        (2, 2, []),
    ],
)
def test_holes_are_left_out(
    sparse: Path, start: int, end: int, ranges: list[tuple[int, int]]
) -> None:
    found = data_ranges_of(str(sparse), start * BLOCK, end * BLOCK)
    assert found == [(low * BLOCK, high * BLOCK) for low, high in ranges]


def test_a_range_within_data_is_cut_to_what_was_asked(sparse: Path) -> None:
    assert data_ranges_of(str(sparse), 10, BLOCK // 2) == [(10, BLOCK // 2)]


def test_a_file_that_is_gone_counts_as_written(tmp_path: Path) -> None:
    assert data_ranges_of(str(tmp_path / "gone"), 5, 9) == [(5, 9)]


def test_a_file_system_that_does_not_tell_counts_as_written(
    sparse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> int:
        raise OSError(errno.EINVAL, "x")

    monkeypatch.setattr(os, "lseek", refuse)
    assert data_ranges_of(str(sparse), 0, 6 * BLOCK) == [(0, 6 * BLOCK)]
