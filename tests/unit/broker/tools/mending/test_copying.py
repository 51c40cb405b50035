import zlib
from pathlib import Path

import pytest

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.tools.mending.copying import LogFileCopy, companions, copy_range, crc_of


def test_what_belongs_to_the_directory_is_left_behind(root: Path) -> None:
    for name in ("config/topics.json", "config/a.tmp", "rockhopper/pop/1.records", "timerlog/0"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    names = {path.relative_to(root).as_posix() for path in companions(StoreLayout(root))}
    assert names == {
        "config/topics.json",
        "rockhopper/geometry.json",
        "rockhopper/pop/1.records",
        "timerlog/0",
    }


def test_a_file_that_was_cut_short_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    got: list[bytes] = []
    assert list(copy_range(path, 1, 4, lambda at, data: got.append(data))) == [4]
    assert got == [b"234"]
    with pytest.raises(OSError, match="cut short"):
        list(copy_range(path, 1, 9, lambda at, data: None))
    assert crc_of(path, 3) == zlib.crc32(b"123")


def test_a_log_file_has_all_of_its_length(tmp_path: Path) -> None:
    copy = LogFileCopy(tmp_path / "file", 4096)
    copy.write(10, b"ab")
    copy.write(100, bytes(50))
    copy.overwrite(11, b"\0")
    copy.close()
    assert (tmp_path / "file").read_bytes() == bytes(10) + b"a" + bytes(4085)
