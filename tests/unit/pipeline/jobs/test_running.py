"""What jobs say when the machine lets them down: one sentence with a remedy."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from rockhopper.pipeline import jobs
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs import spark
from rockhopper.pipeline.jobs.archiving.files import LocalFiles
from rockhopper.pipeline.jobs.archiving.result import ArchiveResult
from rockhopper.pipeline.jobs.disk import check_writable, name_disk_problems
from rockhopper.pipeline.jobs.progress import JobProgress
from rockhopper.pipeline.jobs.results import JobResult
from rockhopper.pipeline.jobs.running import run_job
from rockhopper.pipeline.jobs.spark import spark_problem
from rockhopper.pipeline.store_source.directory import StoreDirectory
from tests.support.written_logs import WrittenLog

STAGE = "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
ABORTED = (
    ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 3 in stage 0.0 "
    "failed 4 times, most recent failure: Lost task 3.3 in stage 0.0 (TID 9): "
)


@pytest.mark.parametrize(
    ("number", "path", "says"),
    [
        (errno.ENOSPC, None, "the disk is full (No space left on device): make room"),
        (errno.EROFS, "/ro/h", "/ro/h cannot be used (Read-only file system): start the job as"),
        (errno.ENOTDIR, "/etc/passwd/x", "/etc/passwd/x cannot be made (Not a directory): choose"),
        (errno.EIO, "/dev/bad", "/dev/bad cannot be read or written (Input/output error): correct"),
    ],
)
def test_what_the_disk_refuses(
    number: int, path: str | None, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(_: JobProgress) -> JobResult:
        raise OSError(number, os.strerror(number), path)

    with pytest.raises(SystemExit) as ended:
        run_job(work, quiet=True)

    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith(f"pipeline: {says}")


def test_a_broker_that_was_away_is_told_and_ends_with_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = ArchiveResult("history", 1, "the brokers", away=["broker-b", "broker-c"])
    with pytest.raises(SystemExit) as ended:
        run_job(lambda _: result, quiet=True, as_json=True)
    assert ended.value.code == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["away"] == ["broker-b", "broker-c"]
    assert printed.err == (
        "pipeline: the brokers broker-b, broker-c are away, so what is there is missing here: "
        "start them and run this again; if gone for good, say so with --without broker-b --without "
        "broker-c\n"
    )


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize(
    "work",
    [
        lambda store, below, dry_run: jobs.archive(below, path=store, dry_run=dry_run),
        lambda store, below, dry_run: jobs.report(below, path=store, dry_run=dry_run),
        lambda store, below, dry_run: jobs.replay(
            store.parent / "archive", nameserver="127.0.0.1:1", state=below, dry_run=dry_run
        ),
    ],
    ids=["archive", "report", "replay"],
)
def test_functions_say_it_as_commands_do_and_dry_runs_beforehand(
    work: Callable[[Path, Path, bool], JobResult], dry_run: bool, tmp_path: Path
) -> None:
    store = WrittenLog(tmp_path / "store").add(3).root
    jobs.archive(tmp_path / "archive", path=store)
    (tmp_path / "file").touch()

    with pytest.raises(
        PipelineError, match=r"/file\S* cannot be made .*: choose another directory"
    ):
        work(store, tmp_path / "file" / "x", dry_run)


@pytest.mark.parametrize("name", ["audit", "search"])
def test_so_do_functions_that_only_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = WrittenLog(tmp_path / "store").add(3).root

    def fail(_: str) -> StoreDirectory:
        raise OSError(errno.EIO, os.strerror(errno.EIO), "/dev/bad")

    monkeypatch.setattr(f"rockhopper.pipeline.jobs.{name}ing.job.open_store", fail)
    with pytest.raises(PipelineError, match="/dev/bad cannot be read or written"):
        jobs.audit(str(store)) if name == "audit" else jobs.search(str(store), key="k")


def test_a_full_disk_and_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = WrittenLog(tmp_path / "store").add(3).root

    def write(files: LocalFiles, name: str, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(LocalFiles, "write", write)

    with pytest.raises(PipelineError, match=r"the disk is full .*: make room"):
        jobs.archive(tmp_path / "archive", path=store)


def test_a_closed_pipe_is_no_problem_of_a_disk() -> None:
    with pytest.raises(BrokenPipeError), name_disk_problems():
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


@pytest.mark.parametrize(("flags", "says"), [(os.ST_RDONLY, "Read-only"), (0, "Permission")])
def test_a_directory_that_may_not_be_written(
    flags: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_writable(tmp_path / "a" / "b")
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=flags))
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)

    with pytest.raises(OSError, match=says):
        check_writable(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b'Setting Spark log level to "OFF".\n', "Java is gone"),
        (b'Error: no such master\nSetting Spark log level to "OFF".\n', "Error: no such master"),
    ],
)
def test_why_spark_did_not_start_is_not_its_chatter(
    said: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark, "_is_hushed", True)

    def start() -> None:
        with spark.keep_quiet():
            os.write(2, said)
            raise RuntimeError("Java is gone")

    with pytest.raises(PipelineError, match=rf"^Spark did not start \({reason}\): set ROCK"):
        start()


def test_a_result_prints_as_its_summary() -> None:
    class Result(JobResult):
        def lines(self) -> list[str]:
            return ["archived 3 messages", "  orders: 3 messages"]

    assert str(Result()) == "archived 3 messages\n  orders: 3 messages"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            STAGE + ABORTED + "org.apache.spark.SparkException: Python worker exited unexpectedly "
            "(crashed)\n\tat org.apache.spark.api.python.BasePythonRunner",
            "a Python process of Spark's has ended in mid-task",
        ),
        (
            STAGE + ABORTED + "org.apache.spark.api.python.PythonException: Traceback (most recent "
            "call last):\n  File worker.py\nOSError: [Errno 28] No space left on device\n\n\tat x",
            "a disk is full (No space left on device), that of the output",
        ),
        (
            STAGE + ABORTED + "org.apache.spark.api.python.PythonException: Traceback (most recent "
            "call last):\n  File worker.py\nzlib.error: no\nKeyError: 'a'\n\n\tat x",
            "Spark gave up: KeyError: 'a'; set",
        ),
        (
            STAGE + ": org.apache.spark.SparkException: Job 0 cancelled because SparkContext was "
            "shut down\n\tat org.apache.spark",
            "Spark gave up: Job 0 cancelled because SparkContext was shut down; set",
        ),
    ],
)
def test_what_spark_gives_up_with(text: str, says: str) -> None:
    assert str(spark_problem(RuntimeError(text))).startswith(says)
