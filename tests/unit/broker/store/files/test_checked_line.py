"""A document with its checksum: whole or not there, and whatever else is said once."""

import json
from pathlib import Path
from zlib import crc32

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.store.files import checked_line

DOCUMENT = {"name": "café", "numbers": [1, 2]}
LINE = b'{"name":"caf\\u00e9","numbers":[1,2]}'


def test_it_is_one_line_of_json_and_one_with_its_checksum() -> None:
    data = checked_line.encode(DOCUMENT)
    assert data == LINE + b"\n" + b"%08x" % crc32(LINE) + b"\n"
    assert checked_line.decode(data) == DOCUMENT


@pytest.mark.parametrize("cut", [0, 1, len(LINE), len(LINE) + 5, len(LINE) + 9])
def test_a_part_of_it_is_refused(cut: int) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        checked_line.decode(checked_line.encode(DOCUMENT)[:cut])


def test_any_flipped_bit_is_refused_unless_it_says_the_same() -> None:
    data = checked_line.encode(DOCUMENT)
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            assert checked_line.decode(bytes(damaged)) == DOCUMENT, bit
        except ValueError:
            continue
        assert bit // 8 > len(LINE), bit


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
