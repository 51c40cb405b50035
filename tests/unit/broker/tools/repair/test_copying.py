import contextlib
import zlib
from pathlib import Path

import pytest

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files.errors import StoreError, StoreLockedError
from rockhopper.broker.tools.repair import copying
from rockhopper.broker.tools.repair.copying import (
    LogFileCopy,
    companions,
    copy_range,
    crc_of,
    making,
)
from rockhopper.broker.tools.store_view import StoreView
from tests.support import open_stores


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
    with pytest.raises(OSError, match="was it truncated"):
        list(copy_range(path, 1, 9, lambda at, data: None))
    assert crc_of(path, 3) == zlib.crc32(b"123")


def test_a_log_file_has_all_of_its_length(tmp_path: Path) -> None:
    copy = LogFileCopy(tmp_path / "file", 4096)
    copy.write(10, b"ab")
    copy.write(100, bytes(50))
    copy.overwrite(11, b"\0")
    copy.close()
    assert (tmp_path / "file").read_bytes() == bytes(10) + b"a" + bytes(4085)


def _cut_off(target: Path) -> None:
    with contextlib.suppress(KeyboardInterrupt), making(target):
        (target / "commitlog").mkdir()
        raise KeyboardInterrupt


def test_what_was_cut_off_is_begun_again_over_what_it_left(tmp_path: Path) -> None:
    _cut_off(tmp_path / "new")
    with making(tmp_path / "new"):
        left = {path.name for path in (tmp_path / "new").iterdir()}
    assert left == {"UNFINISHED", "lock"}
    assert not (tmp_path / "new" / "UNFINISHED").exists()
    with pytest.raises(StoreError, match="is not empty"), making(tmp_path / "new"):
        raise AssertionError


def test_two_runs_exclude_each_other(tmp_path: Path) -> None:
    with making(tmp_path):
        (tmp_path / "kept").touch()
        with pytest.raises(StoreError, match="another run"), making(tmp_path):
            raise AssertionError
        assert (tmp_path / "kept").exists()


@pytest.mark.parametrize("is_new", [True, False])
def test_a_store_that_is_served_keeps_its_files(
    tmp_path: Path, is_new: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_new:  # A broker starts in the empty directory right now.
        monkeypatch.setattr(copying, "check_empty", lambda target: None)
    store = open_stores.open_store(tmp_path)
    mark = StoreLayout(tmp_path).unfinished
    if not is_new:
        mark.touch()
    with pytest.raises(StoreLockedError), making(tmp_path):
        raise AssertionError
    assert mark.exists() is not is_new
    open_stores.put(store, b"one")
    open_stores.close(store)
    mark.unlink(missing_ok=True)
    assert len(list(StoreView(tmp_path).records())) == 1
