"""Choose how jobs on the files of a store run their tasks.

They run on Spark. But if the work takes less time than starting Spark, they run in this process,
unless the caller has a session or names a master.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rockhopper.pipeline.jobs.options import JobOptions, RunTasks
from rockhopper.pipeline.store_source.pieces import FilePiece

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL_BYTES = 128 << 20


def runner(job: str, asked: JobOptions, *, size_bytes: int) -> RunTasks:
    """Return a function that runs tasks: in Spark's workers, in a new session, or in this process.

    *size_bytes* is the total size that the tasks read.
    """
    if is_small(asked, size_bytes):
        return run_in_this_process
    sessions: list[SparkSession] = []

    def run(tasks: Sequence[Any], work: Callable[[Any], Any], label: str) -> list[Any]:
        from rockhopper.pipeline.jobs.spark import job_session, run_tasks

        if not tasks:
            return []
        if not sessions:
            if asked.spark is None:
                asked.progress.step("starting Spark")
            sessions.append(job_session(job, asked.spark, asked.master))
        return run_tasks(sessions[0], tasks, work, label=label, progress=asked.progress)

    return run


def is_small(asked: JobOptions, size_bytes: int) -> bool:
    """Return whether to work in this process: Spark is not requested and would take longer."""
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    is_free = asked.spark is None and asked.master is None and not is_submitted
    return is_free and size_bytes <= SMALL_BYTES


def run_in_this_process(
    tasks: Sequence[Any], work: Callable[[Any], Any], label: str = ""
) -> list[Any]:
    """Run the tasks in order, without Spark."""
    return [work(task) for task in tasks]


def size_of(groups: Iterable[Iterable[FilePiece]]) -> int:
    """Return the number of bytes of the log that the pieces span."""
    return sum(piece.end - piece.start for pieces in groups for piece in pieces)
