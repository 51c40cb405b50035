"""Queue files as they are found: units by number, zeros where there is nothing, and their end."""

from pathlib import Path

import numpy as np
import pytest

from rockhopper.pipeline.derived.entries import QueueKey
from rockhopper.pipeline.derived.queue_files import (
    ListedQueueFiles,
    find_queues,
    queue_directory,
    unit_layout,
)
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT

KEY = QueueKey("orders", 1, False)
UNITS_IN_FILE = 5


def write(root: Path, *contents: list[int], first: int = 0) -> ListedQueueFiles:
    """Files of five units; a unit's position is its number given, None of them for nothing."""
    directory = queue_directory(root, KEY)
    directory.mkdir(parents=True, exist_ok=True)
    for number, content in enumerate(contents, first):
        data = b"".join(CONSUME_QUEUE_UNIT.pack(each, 50, 7) for each in content)
        path = directory / f"{number * UNITS_IN_FILE * 20:020d}"
        path.write_bytes(data.ljust(UNITS_IN_FILE * 20, b"\0"))
    return ListedQueueFiles(root, KEY)


def test_units_are_read_by_number_over_the_ends_of_files(tmp_path: Path) -> None:
    files = write(tmp_path, [10, 11, 12, 13, 14], [15, 16])
    units = files.read(3, 8)
    assert units["position"].tolist() == [13, 14, 15, 16, 0]
    assert units["size"].tolist() == [50, 50, 50, 50, 0]
    assert (files.start, files.end) == (0, 10)


def test_what_is_not_there_is_zeros(tmp_path: Path) -> None:
    files = write(tmp_path, [10] * 5, first=2)
    assert files.start == 10
    assert files.read(8, 12)["position"].tolist() == [0, 0, 10, 10]
    assert not np.any(ListedQueueFiles(tmp_path, QueueKey("none", 0, False)).read(0, 3)["size"])


@pytest.mark.parametrize(
    ("contents", "end"),
    [([], 0), ([[]], 0), ([[1]], 1), ([[1] * 5], 5), ([[1] * 5, []], 5), ([[1] * 5, [1, 2]], 7)],
)
def test_units_end_where_the_last_one_is(
    tmp_path: Path, contents: list[list[int]], end: int
) -> None:
    assert write(tmp_path, *contents).used_end() == end


def test_other_files_are_told_apart(tmp_path: Path) -> None:
    write(tmp_path, [1])
    directory = queue_directory(tmp_path, KEY)
    for name in ("5", "x" * 20, f"{100:020d}.tmp"):
        (directory / name).write_bytes(b"")
    (directory / f"{100:020d}").mkdir()
    files = ListedQueueFiles(tmp_path, KEY)
    assert len(files.files) == 1
    assert len(files.foreign) == 4


def test_a_file_that_vanishes_counts_as_zeros(tmp_path: Path) -> None:
    files = write(tmp_path, [1] * 5, [2] * 5)
    Path(files.files[0].path).unlink()
    assert files.read(4, 6)["position"].tolist() == [0, 2]


def test_queues_of_both_kinds_are_found(tmp_path: Path) -> None:
    for name in (
        "consumequeue/a/0",
        "consumequeue/a/10",
        "consumequeue/a/x",
        "batchconsumequeue/b/2",
    ):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "consumequeue" / "file").write_text("")
    assert set(find_queues(tmp_path)) == {
        QueueKey("a", 0, False),
        QueueKey("a", 10, False),
        QueueKey("b", 2, True),
    }
    assert list(find_queues(tmp_path / "gone")) == []


def test_the_two_kinds_have_their_own_units() -> None:
    assert (unit_layout(False).itemsize, unit_layout(True).itemsize) == (20, 46)
