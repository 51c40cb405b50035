"""A full disk is named with what is missing, at best before anything is written."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from rockhopper.broker.store.files.errors import DiskFullError, StoreError
from rockhopper.broker.tools.repair.room import NoRoomError, count_used_bytes, room, shortage
from tests.support.tool_stores import run

FREE_BYTES = 3 << 20


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A disk with three blocks of a MiB, of which the last is root's."""
    status = SimpleNamespace(f_frsize=1 << 20, f_bavail=2, f_bfree=3)
    monkeypatch.setattr(os, "statvfs", lambda _: status)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return status


def test_what_does_not_fit_is_refused_before(
    tmp_path: Path, disk: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with room(tmp_path / "new", FREE_BYTES, ""):
        pass
    with (
        pytest.raises(NoRoomError, match=r"new: 3\.5 MiB needed, 3\.0 MiB free\. Nothing was"),
        room(tmp_path / "new", FREE_BYTES + (1 << 19), ""),
    ):
        raise AssertionError
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert shortage(tmp_path, FREE_BYTES) == f"{tmp_path}: 3.0 MiB needed, 2.0 MiB free"


def test_what_is_deleted_first_is_room(tmp_path: Path, disk: SimpleNamespace) -> None:
    (tmp_path / "left" / "below").mkdir(parents=True)
    (tmp_path / "left" / "below" / "file").write_bytes(bytes([1]) * (1 << 20))
    assert count_used_bytes(tmp_path / "left") == 1 << 20
    assert shortage(tmp_path, 4 << 20, freed=tmp_path / "left") is None
    assert shortage(tmp_path, 4 << 20) is not None


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "no space left on device"),
        (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)), "disk quota exceeded"),
        (DiskFullError("no room for another file"), "the disk is full"),
    ],
)
def test_a_disk_that_gets_full_is_named_with_the_rest(
    tmp_path: Path, disk: SimpleNamespace, error: Exception, why: str
) -> None:
    def write() -> None:
        with room(tmp_path, 2 << 20, "Run it again"):
            (tmp_path / "part").write_bytes(bytes([1]) * (1 << 20))
            disk.f_bfree = 0
            raise error

    with pytest.raises(NoRoomError) as raised:
        write()
    told = f"{tmp_path}: 1.0 MiB more needed, 0 bytes free ({why}). Run it again"
    assert str(raised.value) == told


def test_other_failures_stay_what_they_are(tmp_path: Path) -> None:
    for error in (OSError(errno.EIO, "broken"), StoreError("damaged")):
        with pytest.raises(type(error)), room(tmp_path, 0, ""):
            raise error


class FullDisk:
    """A disk that is full from some write on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._write, self._open = os.pwrite, os.open
        self.writes_left = 0
        monkeypatch.setattr(os, "pwrite", self._pwrite)
        monkeypatch.setattr(os, "open", self._open_new)

    def _count(self) -> None:
        self.writes_left -= 1
        if self.writes_left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _pwrite(self, descriptor: int, data: bytes, position: int) -> int:
        self._count()
        return self._write(descriptor, data, position)

    def _open_new(self, path: str, flags: int, *rest: int, **more: int) -> int:
        if flags & os.O_CREAT and not os.path.exists(path):
            self._count()
        return self._open(path, flags, *rest, **more)


@pytest.mark.parametrize("command", ["backup", "restore", "repair", "rebuild"])
def test_a_disk_that_is_full_at_any_write(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    before, backup, target = run("dump", root).out, tmp_path / "backup", tmp_path / "new"
    run("backup", root, backup, "--write")
    arguments: list[object] = {
        "backup": ["backup", root, target],
        "restore": ["restore", backup, target],
        "repair": ["repair", root, "--into", target],
        "rebuild": ["rebuild", root],
    }[command]
    named = root if command == "rebuild" else target
    state = {"backup": "The points so far are complete", "rebuild": "both continue"}
    count = 0
    while True:
        with monkeypatch.context() as patched:
            FullDisk(patched).writes_left = count
            ended = run(*arguments, "--write")
        if ended.code == 0:
            break
        assert (ended.code, ended.err.count("\n")) == (1, 1), ended.err
        assert f"{named}: " in ended.err
        assert "needed" in ended.err
        assert state.get(command, "not a complete store yet") in ended.err
        if command in ("restore", "repair") and target.exists():
            assert run("check", target).code != 0
        count += 1
    assert count > 5
    if command == "backup":
        assert run("restore", target, tmp_path / "again", "--write").code == 0
        named = tmp_path / "again"
    assert run("dump", named).out == before
    assert run("check", named).out.endswith("Sound\n")
