"""Run the tasks of jobs in a Spark Connect session, which has no SparkContext.

A function over a frame of numbers carries the tasks, with one number in each partition. The rows of
its result are the pickled results. The server runs it in its Python workers like other tasks, and
retries it like them.
"""

import pickle
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.progress import JobProgress

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

REMOTE = "sc://"
"""The start of a server address."""
_PORT = 15002
_PATIENCE_S = 10
_INSTALL = "pip install 'rockhopper-mq[connect]'"


def connect_session(address: str) -> "SparkSession":
    """Return a session of the server at *address*, ``sc://host:15002``.

    Raises:
        PipelineError: there is no server, or a package that Spark Connect needs is missing.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    place = urlsplit(address)
    try:
        # Spark would retry for minutes.
        socket.create_connection((place.hostname or "", place.port or _PORT), _PATIENCE_S).close()
        return SparkSession.builder.remote(address).create()
    except (OSError, ValueError) as error:
        raise PipelineError(
            f"there is no server of Spark Connect at {address} ({_first_line(error)}): start one "
            "(sbin/start-connect-server.sh of Spark), or correct the address"
        ) from error
    except (ImportError, PySparkException) as error:
        raise PipelineError(
            f"Spark Connect cannot be used ({_first_line(error)}): {_INSTALL}"
        ) from error


def run_remotely(
    spark: "SparkSession",
    tasks: Sequence[_Task],
    work: Callable[[_Task], _Result],
    progress: JobProgress,
) -> list[_Result]:
    """Call *work* with each of *tasks* in the server's workers; return the results in order."""
    every = list(tasks)

    def do(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        for batch in batches:
            for number in batch.column("id").to_pylist():
                result = pickle.dumps(work(every[number]))
                yield pa.RecordBatch.from_pydict({"id": [number], "result": [result]})

    def tell(
        stages: Any, inflight_tasks: int, operation_id: str | None = None, done: bool = False
    ) -> None:
        progress.reach(sum(each.num_completed_tasks for each in stages or ()))

    handler: Any = tell
    tag = f"rockhopper-{uuid4().hex}"
    numbers = spark.range(0, len(every), 1, len(every))
    spark.addTag(tag)
    spark.registerProgressHandler(handler)
    try:
        rows = numbers.mapInArrow(do, "id long, result binary").collect()
    except KeyboardInterrupt:
        spark.interruptTag(tag)
        raise
    finally:
        spark.removeProgressHandler(handler)
        spark.removeTag(tag)
    found = {row.id: row.result for row in rows}
    return [pickle.loads(found[number]) for number in range(len(every))]


def default_parallelism(spark: "SparkSession") -> int:
    """Return the number of tasks that the server runs at a time; runs a small job to find out."""
    numbers = spark.range(1 << 16).selectExpr("spark_partition_id() AS part")
    return numbers.distinct().count()


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")
