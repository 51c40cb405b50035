"""Cutting the log: what stood behind its end is kept, and the log ends in zeros."""

from pathlib import Path

import pytest

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue
from rockhopper.broker.store.recovering.log_walk import cut_tail, is_all_zeros

FILE = 4096


def log_files(layout: StoreLayout, *contents: bytes) -> MappedFileQueue:
    layout.commit_log.mkdir(parents=True)
    for number, content in enumerate(contents):
        path = layout.commit_log / f"{number * FILE:020d}"
        path.write_bytes(content.ljust(FILE, b"\0"))
    files = MappedFileQueue(layout.commit_log, FILE)
    files.load()
    return files


@pytest.fixture
def layout(tmp_path: Path) -> StoreLayout:
    return StoreLayout(tmp_path)


def test_what_is_behind_the_end_is_kept_and_gone(layout: StoreLayout) -> None:
    files = log_files(layout, b"good" + b"torn\0tail")
    tail = cut_tail(layout, files, 4)
    assert tail is not None
    assert (tail.offset, tail.size_bytes) == (4, 9)
    assert Path(tail.kept_as).read_bytes() == b"torn\0tail"
    files.close()
    assert (layout.commit_log / "0".zfill(20)).read_bytes() == b"good".ljust(FILE, b"\0")


def test_nothing_but_zeros_is_nothing_to_keep(layout: StoreLayout) -> None:
    files = log_files(layout, b"good")
    assert cut_tail(layout, files, 4) is None
    assert not layout.quarantine.exists()
    files.close()


def test_a_tail_over_several_files_is_one(layout: StoreLayout) -> None:
    files = log_files(layout, b"good" + b"x" * (FILE - 4), b"y" * 10)
    tail = cut_tail(layout, files, 4)
    assert tail is not None
    assert (tail.offset, tail.size_bytes) == (4, FILE - 4 + 10)
    kept = sorted(path.stat().st_size for path in layout.quarantine.iterdir())
    assert kept == [10, FILE - 4]
    assert files.files[-1].end_offset >= 4
    files.close()


def test_a_log_may_end_where_a_file_does(layout: StoreLayout) -> None:
    files = log_files(layout, b"x" * FILE, b"torn")
    tail = cut_tail(layout, files, FILE)
    assert tail is not None
    assert (tail.offset, tail.size_bytes) == (FILE, 4)
    files.close()
    assert (layout.commit_log / "0".zfill(20)).read_bytes() == b"x" * FILE


@pytest.mark.parametrize(
    ("content", "is_empty"), [(b"", True), (b"\0" * 100, True), (b"\0" * 4000 + b"x", False)]
)
def test_a_file_that_nothing_was_written_to(
    layout: StoreLayout, content: bytes, is_empty: bool
) -> None:
    files = log_files(layout, content)
    assert is_all_zeros(files.files[0]) is is_empty
    files.close()
