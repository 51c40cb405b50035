"""What a disk refuses, said with a remedy; and whether it would, asked beforehand."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.disk import check_writable, name_disk_problems, sync


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.ENOSPC, "the disk of /out is full (No space left on device): make room"),
        (errno.EDQUOT, "the disk of /out is full"),
        (errno.EACCES, "/out cannot be used (Permission denied): start the job as a user who may"),
        (errno.EROFS, "/out cannot be used"),
        (errno.ENOTDIR, "/out cannot be made (Not a directory): choose another directory"),
        (errno.EIO, "/out cannot be read or written (Input/output error): correct that"),
    ],
)
def test_a_problem_is_a_sentence(number: int, says: str) -> None:
    with pytest.raises(PipelineError) as caught, name_disk_problems():
        raise OSError(number, os.strerror(number), "/out")
    assert str(caught.value).startswith(says)


def test_a_full_disk_without_a_name_is_one_all_the_same() -> None:
    with pytest.raises(PipelineError, match=r"^the disk is full"), name_disk_problems():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_pipe_that_closed_is_no_problem_of_the_disk() -> None:
    with pytest.raises(BrokenPipeError), name_disk_problems():
        raise BrokenPipeError


def test_what_can_be_made_may_be_written(tmp_path: Path) -> None:
    check_writable(tmp_path)
    check_writable(tmp_path / "not" / "there" / "yet")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError, match="out"):
        check_writable(tmp_path / "file" / "out")


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_directory_that_may_not_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    flags = os.ST_RDONLY if number == errno.EROFS else 0
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=flags))
    monkeypatch.setattr(os, "access", lambda _path, _mode: number != errno.EACCES)
    with pytest.raises(OSError, match="out") as caught:
        check_writable(tmp_path / "out")
    assert caught.value.errno == number


def test_files_and_directories_are_synced_and_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda number: synced.append(os.readlink(f"/proc/self/fd/{number}"))
    )
    path = tmp_path / "file"
    path.write_bytes(b"")
    sync(path)
    sync(tmp_path)
    assert synced == [str(path), str(tmp_path)]
    assert str(path) not in {
        os.readlink(f"/proc/self/fd/{name}")
        for name in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{name}")
    }
