"""Sessions and tasks of jobs.

A job works in Spark's Python workers and receives a small result for each task; messages do not
pass through the JVM. For Spark Connect sessions, remote.py runs the tasks.
"""

import logging
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.progress import JobProgress
from rockhopper.pipeline.jobs.remote import (
    REMOTE,
    connect_session,
    default_parallelism,
    run_remotely,
)
from rockhopper.pipeline.packaging import is_remote, ship

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

_POLL_S = 0.3
_SENTENCE = re.compile(r"pipeline\.[\w.]*?(?:PipelineError|UsageProblem): (.+)")
_JAVA_REASON = re.compile(r"^(?:: |Caused by: )?(?:[a-z]\w*\.)+\w*(?:Exception|Error): (.+)$", re.M)
_PYTHON_REASON = re.compile(r"^((?:\w+\.)*\w*(?:Error|Exception): .+)$", re.M)
_CHATTER = re.compile(r"WARNING: Using incubator|Using Spark's default|Setting |To adjust logging")
_GATEWAY_COMPLAINT = "Exception while sending command."
# Spark's default is one failure on a single machine and four on a cluster.
_LOCAL_MASTER = "local[*,4]"
_DESCRIPTION = "spark.job.description"
_OF_JOBS = (_DESCRIPTION, "spark.jobGroup.id", "spark.job.interruptOnCancel")
_own: "list[SparkSession]" = []
_is_hushed = False


def job_session(
    job: str,
    spark: "SparkSession | None" = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> "SparkSession":
    """Return *spark*, or the running session, or a new one that has our sources.

    *conf* are settings for a new session; under spark-submit they have no effect.

    Raises:
        PipelineError: there is no Java or no Spark Connect server, or a package is missing or too
            old.
    """
    from rockhopper.pipeline.session import check_packages, register

    if spark is not None:
        return register(spark) if is_remote(spark) else spark
    check_packages()
    if master is not None and master.startswith(REMOTE):
        made = register(connect_session(master))
        _own.append(made)
        return made
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    if master is None and "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit chose the master
        made = register(SparkSession.builder.appName(f"rockhopper {job}").getOrCreate())
        ship(made)
    else:
        made = _start_session(job, master or _LOCAL_MASTER, conf or {})
    _own.append(made)
    return made


def _start_session(job: str, master: str, conf: Mapping[str, str]) -> "SparkSession":
    from rockhopper.pipeline.session import local_session

    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with keep_quiet() as settings:
        return local_session(f"rockhopper {job}", master=master, **settings, **conf)


def hush() -> None:
    """Keep Java's output off standard error from now on: commands print one-sentence errors.

    ROCKHOPPER_SPARK_LOG=1 in the environment disables this.
    """
    global _is_hushed
    _is_hushed = os.environ.get("ROCKHOPPER_SPARK_LOG", "") in ("", "0")
    if _is_hushed:
        logging.getLogger().addFilter(lambda record: record.msg != _GATEWAY_COMPLAINT)


@contextmanager
def keep_quiet() -> Iterator[dict[str, str]]:
    """Yield settings for a session started in this block; its Java then logs nothing."""
    if not _is_hushed:
        yield {}
        return
    sys.stderr.flush()
    before = os.dup(2)
    with tempfile.TemporaryFile() as scratch:
        os.dup2(scratch.fileno(), 2)
        try:
            yield {"spark.log.level": "OFF"}
        except PipelineError:
            raise
        except Exception as error:
            scratch.seek(0)
            said = scratch.read().decode(errors="replace").split("\n")
            told = [line.strip() for line in said if line.strip() and not _CHATTER.match(line)]
            last = (told or [str(error).partition("\n")[0] or "it said nothing"])[-1]
            raise PipelineError(
                f"Spark did not start ({last}): set ROCKHOPPER_SPARK_LOG=1 to see why"
            ) from error
        finally:
            os.dup2(before, 2)
            os.close(before)


def stop_own_session() -> None:
    """Stop the session that ``job_session`` created, if any."""
    while _own:
        session = _own.pop()
        if _has_java(session):
            session.stop()


def run_tasks(
    spark: "SparkSession",
    tasks: Sequence[_Task],
    work: Callable[[_Task], _Result],
    *,
    label: str = "",
    description: str = "",
    progress: JobProgress | None = None,
) -> list[_Result]:
    """Call *work* with each of *tasks* in a worker; return the results in the order of the tasks.

    *work* is a function of a module, or a picklable callable object. It may be called again for a
    task, even while the first call still runs. Without *label*, no progress is shown. Spark's UI
    shows *description*, else *label*.

    Raises:
        PipelineError: *work* raised it, or Spark gave up.
    """
    if not tasks:
        return []
    progress = progress if progress is not None and label else JobProgress()
    progress.step(label, len(tasks))
    if is_remote(spark):
        try:
            results = run_remotely(spark, tasks, work, progress)
        except Exception as error:
            raise spark_problem(error) from error
    else:
        what = description or label or "rockhopper"
        results = _run_in_java(spark, tasks, work, what, progress)
    progress.reach(len(tasks))
    return results


def _run_in_java(
    spark: "SparkSession",
    tasks: Sequence[_Task],
    work: Callable[[_Task], _Result],
    description: str,
    progress: JobProgress,
) -> list[_Result]:
    context = spark.sparkContext
    group = f"rockhopper-{uuid4().hex}"
    done = threading.Event()

    def watch() -> None:
        tracker = context.statusTracker()
        while not done.wait(_POLL_S):
            try:
                progress.reach(_completed(tracker, group))
            except Exception:  # the session is ending; the job then reports the reason
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        with describe_jobs(spark, description):
            context.setLocalProperty("spark.jobGroup.id", group)
            context.setLocalProperty("spark.job.interruptOnCancel", "true")
            return context.parallelize(list(tasks), len(tasks)).map(work, True).collect()
    except KeyboardInterrupt:
        context.cancelJobGroup(group)
        raise
    except Exception as error:
        if not _has_java(spark):
            raise PipelineError(
                "the Java process that Spark runs in has ended (killed, or out of memory): start "
                "the job again; what it had finished is not done twice"
            ) from error
        raise spark_problem(error) from error
    finally:
        done.set()
        watcher.join()


@contextmanager
def describe_jobs(spark: "SparkSession", description: str) -> Iterator[None]:
    """Set the description in Spark's UI of jobs that this thread starts inside the block.

    The previous description is restored afterwards. Spark Connect sessions are unchanged.
    """
    if is_remote(spark):
        yield
        return
    context = spark.sparkContext
    before = {name: context.getLocalProperty(name) for name in _OF_JOBS}
    context.setLocalProperty(_DESCRIPTION, description)
    try:
        yield
    finally:
        if _has_java(spark):
            for name, value in before.items():
                context.setLocalProperty(name, value)  # type: ignore[arg-type]


def cores(spark: "SparkSession") -> int:
    """Return the number of tasks that run at a time."""
    if is_remote(spark):
        return default_parallelism(spark)
    return spark.sparkContext.defaultParallelism


def _has_java(spark: "SparkSession") -> bool:
    """Return whether Spark's JVM still answers; it may have been killed."""
    if is_remote(spark):
        return True
    with suppress(Exception):
        return not spark.sparkContext._jsc.sc().isStopped()
    return False


def _completed(tracker: Any, group: str) -> int:
    count = 0
    for job_id in tracker.getJobIdsForGroup(group):
        job = tracker.getJobInfo(job_id)
        for stage_id in job.stageIds if job is not None else ():
            stage = tracker.getStageInfo(stage_id)
            count += stage.numCompletedTasks if stage is not None else 0
    return count


def spark_problem(error: Exception) -> PipelineError:
    """Extract our error from a Spark error; without one, use its first line."""
    if isinstance(error, PipelineError):
        return error
    text = str(error)
    found = _SENTENCE.findall(text)
    if found:
        return PipelineError(found[-1].strip())
    if "Python worker exited unexpectedly" in text:
        return PipelineError(
            "a Python process of Spark's has ended in mid-task, time and again (killed, or out of "
            "memory): start the job again, on fewer cores (--master 'local[1]') if memory is short"
        )
    if "No space left on device" in text:
        return PipelineError(
            "a disk is full (No space left on device), that of the output or of Spark's scratch "
            "files (TMPDIR, spark.local.dir): make room, and start the job again"
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = _PYTHON_REASON.findall(text) if "Traceback" in text else []
    first = next(iter(raised[-1:] or _JAVA_REASON.findall(text) or lines), type(error).__name__)
    return PipelineError(
        f"Spark gave up: {first.strip().rstrip('.')}; set ROCKHOPPER_SPARK_LOG=1 to see its log"
    )
