"""What jobs say when the machine lets them down: one sentence with a remedy."""

import errno
import os

import pytest

from pipeline.errors import PipelineError
from pipeline.jobs import spark
from pipeline.jobs.progress import Progress
from pipeline.jobs.results import JobResult
from pipeline.jobs.running import run_job
from pipeline.jobs.spark import spark_problem

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
    def work(_: Progress) -> JobResult:
        raise OSError(number, os.strerror(number), path)

    with pytest.raises(SystemExit) as ended:
        run_job(work, quiet=True)

    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith(f"pipeline: {says}")


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
        with spark._quiet():
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
