"""StoreLock and abort file: one process per store, and a trace of those that were cut off."""

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rockhopper.broker.store.files.errors import StoreLockedError
from rockhopper.broker.store.files.lock_file import (
    StoreLock,
    mark_in_use,
    mark_stopped,
    was_left_in_use,
)
from tests.support.hang import HANG_S

# Takes the lock as Java's FileChannel.tryLock(0, 1, false) does, and reports the outcome.
OTHER_PROCESS = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
except OSError:
    print("refused")
else:
    print("locked", flush=True)
    sys.stdin.read()
"""


def try_from_another_process(path: Path) -> str:
    return subprocess.run(
        [sys.executable, "-c", OTHER_PROCESS, str(path)],
        input="",
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG_S,
    ).stdout.strip()


def lock(directory: Path) -> StoreLock:
    return StoreLock(directory, directory / "lock", directory / "abort")


def count_open_files(directory: Path) -> int:
    """Count the open files below *directory*, which may be open itself."""
    targets = [f"{target}/" for target in map(os.path.realpath, Path("/proc/self/fd").iterdir())]
    return sum(target.startswith(f"{directory}/") for target in targets)


def test_other_processes_are_kept_out_until_release(tmp_path: Path) -> None:
    held = lock(tmp_path)
    assert try_from_another_process(tmp_path / "lock") == "refused"
    held.release()
    assert try_from_another_process(tmp_path / "lock") == "locked"


def test_second_attempt_of_the_same_process_is_refused_and_does_no_harm(tmp_path: Path) -> None:
    with lock(tmp_path):
        with pytest.raises(StoreLockedError, match="this process itself"):
            lock(tmp_path)
        assert try_from_another_process(tmp_path / "lock") == "refused"


def test_it_can_be_taken_again_after_release(tmp_path: Path) -> None:
    open_before = count_open_files(tmp_path)
    for _ in range(2):
        held = lock(tmp_path)
        held.release()
        held.release()
    assert count_open_files(tmp_path) == open_before


def test_a_commit_log_that_another_store_uses_is_refused_until_its_release(tmp_path: Path) -> None:
    log, roots = tmp_path / "log", (tmp_path / "a", tmp_path / "b")
    for directory in (log, *roots):
        directory.mkdir()
    first, second = map(lock, roots)
    first.lock_commit_log(log)
    with pytest.raises(StoreLockedError, match="storePathCommitLog"):
        second.lock_commit_log(log)
    first.release()
    second.lock_commit_log(log)
    second.release()


def test_file_holds_the_text_that_rocketmq_writes(tmp_path: Path) -> None:
    with lock(tmp_path):
        assert (tmp_path / "lock").read_bytes() == bytes.fromhex("6c6f636b")


def test_a_check_leaves_the_state_of_the_file_as_the_last_run_left_it(tmp_path: Path) -> None:
    with lock(tmp_path) as held:
        left = held.state
    StoreLock(tmp_path, tmp_path / "lock", tmp_path / "abort", is_check=True).release()
    with lock(tmp_path) as held:
        assert held.found_state == left
        assert held.state != left


def test_refusal_names_directory_process_and_remedy(tmp_path: Path) -> None:
    (tmp_path / "lock").write_bytes(b"lock")
    (tmp_path / "abort").write_text("4711")
    with subprocess.Popen(
        [sys.executable, "-c", OTHER_PROCESS, str(tmp_path / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        open_before = count_open_files(tmp_path)
        with pytest.raises(StoreLockedError) as caught:
            lock(tmp_path)
        assert count_open_files(tmp_path) == open_before
        other.communicate(timeout=HANG_S)
    assert str(tmp_path) in str(caught.value)
    assert "process 4711" in str(caught.value)
    assert "storePathRootDir" in str(caught.value)


def test_a_store_whose_lock_file_was_replaced_is_refused_and_nothing_stays_open(
    tmp_path: Path,
) -> None:
    with lock(tmp_path):
        (tmp_path / "lock").unlink()
        open_before = count_open_files(tmp_path)
        with pytest.raises(StoreLockedError):
            lock(tmp_path)
        assert count_open_files(tmp_path) == open_before


@pytest.mark.parametrize("call", ["lockf", "flock"])
def test_only_the_lock_file_must_be_lockable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    open_before = count_open_files(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(fcntl, call, refuse)
        if call == "lockf":
            with pytest.raises(OSError, match="No locks available"):
                lock(tmp_path)
        else:
            with lock(tmp_path):
                assert try_from_another_process(tmp_path / "lock") == "refused"
    assert count_open_files(tmp_path) == open_before


def test_abort_file_holds_the_process_id(tmp_path: Path) -> None:
    path = tmp_path / "abort"
    assert not was_left_in_use(path)
    mark_in_use(path)
    assert was_left_in_use(path)
    assert path.read_bytes() == str(os.getpid()).encode()


def test_removing_the_abort_file_twice_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "abort"
    mark_in_use(path)
    mark_stopped(path)
    mark_stopped(path)
    assert not was_left_in_use(path)
