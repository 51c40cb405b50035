"""File systems that a store cannot be on."""

import errno
import fcntl
import mmap
from collections.abc import Callable
from pathlib import Path

import pytest

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import UnfitFileSystemError
from rockhopper.broker.store.recovering.opening_checks import check_file_system


def failing(number: int) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise OSError(number, "not supported")

    return fail


def test_a_usual_one_is_good_and_nothing_stays(tmp_path: Path) -> None:
    check_file_system(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("module", "name", "number", "lack"),
    [
        (fcntl, "lockf", errno.ENOLCK, "no file locks"),
        (mmap, "mmap", errno.ENODEV, "no shared writable mappings"),
        (disk, "sync_directory", errno.EINVAL, "no fsync of directories"),
    ],
)
def test_one_that_lacks_something_is_refused_by_that(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: object,
    name: str,
    number: int,
    lack: str,
) -> None:
    monkeypatch.setattr(module, name, failing(number))
    with pytest.raises(
        UnfitFileSystemError, match=f"has {lack} .not supported.*, but a store needs"
    ):
        check_file_system(tmp_path)


def test_a_disk_that_fails_is_no_unfit_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "sync_directory", failing(errno.EIO))
    with pytest.raises(OSError, match="not supported") as caught:
        check_file_system(tmp_path)
    assert caught.value.errno == errno.EIO


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_on_a_full_disk_nothing_is_written_through_the_mapping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    class Mapped:
        def __init__(self, *_: object) -> None: ...

        def __enter__(self) -> "Mapped":
            return self

        def __exit__(self, *_: object) -> None: ...

        def __setitem__(self, *_: object) -> None:
            pytest.fail("the kernel would end the process by SIGBUS")

    monkeypatch.setattr(disk, "reserve", failing(number))
    monkeypatch.setattr(mmap, "mmap", Mapped)
    check_file_system(tmp_path)
