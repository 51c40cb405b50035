"""How jobs over the files of a store have their tasks done.

On Spark; but what takes less time than Spark takes to start is done right here, unless the caller
has a session or names a master.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rockhopper.pipeline.jobs.options import JobOptions, RunTasks
from rockhopper.pipeline.store_source.pieces import Piece

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL_BYTES = 128 << 20


def runner(job: str, asked: JobOptions, *, size_bytes: int) -> RunTasks:
    """Tasks are done by the workers of Spark, in a session made for them, or in this process.

    *size_bytes* is how much they read in all.
    """
    if is_small(asked, size_bytes):
        return in_this_process
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
    """Whether work is done right here, since nobody asks for Spark and it would take longer."""
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    is_free = asked.spark is None and asked.master is None and not is_submitted
    return is_free and size_bytes <= SMALL_BYTES


def in_this_process(tasks: Sequence[Any], work: Callable[[Any], Any], label: str = "") -> list[Any]:
    """One after the other, without Spark."""
    return [work(task) for task in tasks]


def size_of(groups: Iterable[Iterable[Piece]]) -> int:
    """How many bytes of the log the pieces span."""
    return sum(piece.end - piece.start for pieces in groups for piece in pieces)
