"""Checked lines: a file holds a whole document or none, and each problem is logged once."""

import json
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.store.files import checked_line


def load(path: Path) -> int | None:
    return checked_line.load(path, lambda document: int(document["name"]), "the name is lost")


def test_no_file_is_nothing_to_speak_of(tmp_path: Path) -> None:
    with capture_logs() as logs:
        assert load(tmp_path / "f") is None
    assert logs == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        checked_line.encode({"name": "7"})[:-3],
        json.dumps({"name": "7"}).encode(),
        checked_line.encode({}),
        checked_line.encode({"name": "seven"}),
    ],
    ids=["empty", "torn", "without a checksum", "a field missing", "a field of another kind"],
)
def test_what_cannot_be_used_is_none_and_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "f").write_bytes(data)
    with capture_logs() as logs:
        assert load(tmp_path / "f") is None
    (line,) = logs
    assert (line["event"], line["log_level"]) == ("the name is lost", "warning")
    assert line["path"] == str(tmp_path / "f")
    assert line["reason"]


def test_what_is_whole_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(checked_line.encode({"name": "7"}))
    assert load(tmp_path / "f") == 7


def test_a_disk_that_cannot_be_read_is_not_taken_for_damage(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        load(tmp_path)
