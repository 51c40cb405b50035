"""The lock of a store: brokers and jobs keep each other out, across processes."""

import subprocess
import sys
from pathlib import Path

import pytest

from rockhopper.broker.store.files.lock_file import StoreLock
from rockhopper.pipeline.jobs.rebuilding.store_lock import lock_store

_TRY = """
import sys
from pathlib import Path
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.rebuilding.store_lock import lock_store
try:
    with lock_store(Path(sys.argv[1])):
        print("got it")
except PipelineError as error:
    print(error)
"""


def other_process(root: Path) -> str:
    """What another process gets that wants the lock."""
    command = [sys.executable, "-c", _TRY, str(root)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_only_one_process_has_it(tmp_path: Path) -> None:
    with lock_store(tmp_path):
        said = other_process(tmp_path)
        assert f"a broker runs on the store {tmp_path}" in said
        assert "--output" in said
    assert other_process(tmp_path) == "got it\n"


def test_it_is_let_go_when_the_job_fails(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the job"), lock_store(tmp_path):
        raise ValueError("the job failed")
    assert other_process(tmp_path) == "got it\n"


def test_it_is_the_lock_that_a_broker_takes(tmp_path: Path) -> None:
    lock = StoreLock(tmp_path, tmp_path / "lock", tmp_path / "abort")
    try:
        assert "a broker runs on the store" in other_process(tmp_path)
    finally:
        lock.release()


def test_what_a_broker_wrote_there_stays(tmp_path: Path) -> None:
    (tmp_path / "lock").write_bytes(b"lock")
    with lock_store(tmp_path):
        pass
    assert (tmp_path / "lock").read_bytes() == b"lock"
