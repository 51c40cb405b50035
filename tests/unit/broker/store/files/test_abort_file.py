"""The abort file: there while a broker runs, and only then."""

import os
from pathlib import Path

from rockhopper.broker.store.files.lock_file import mark_in_use, mark_stopped, was_left_in_use


def test_it_is_there_from_create_to_remove_and_names_the_process(tmp_path: Path) -> None:
    path = tmp_path / "abort"
    assert not was_left_in_use(path)
    mark_in_use(path)
    assert was_left_in_use(path)
    assert path.read_text() == str(os.getpid())
    mark_stopped(path)
    assert not was_left_in_use(path)
    assert list(tmp_path.iterdir()) == []


def test_one_left_behind_is_replaced_and_removing_none_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "abort"
    path.write_text("99999999")
    mark_in_use(path)
    assert path.read_text() == str(os.getpid())
    mark_stopped(path)
    mark_stopped(path)
    assert not path.exists()
