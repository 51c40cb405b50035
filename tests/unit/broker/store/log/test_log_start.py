"""A log that begins where its master's does."""

from pathlib import Path

import pytest

from rockhopper.broker.store.files.errors import GeometryError
from rockhopper.broker.store.log import log_start


def test_its_first_file_begins_there(tmp_path: Path) -> None:
    directory = tmp_path / "store" / "commitlog"
    assert not log_start.has_log(directory)
    log_start.begin_at(directory, 4096, 3 * 4096)
    assert log_start.has_log(directory)
    (file,) = directory.iterdir()
    assert (file.name, file.read_bytes()) == (f"{3 * 4096:020d}", bytes(4096))


def test_no_file_begins_in_the_middle_of_one(tmp_path: Path) -> None:
    with pytest.raises(GeometryError, match="files of 4096 bytes cannot start at 100"):
        log_start.begin_at(tmp_path / "commitlog", 4096, 100)
    assert not log_start.has_log(tmp_path / "commitlog")
