"""Archive and replay where Spark does the work: many tasks, conditions in SQL, plain reading."""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rockhopper.pipeline import jobs
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.reading import read_archive
from rockhopper.pipeline.jobs.results import UsageProblem
from rockhopper.pipeline.jobs.spark import run_tasks
from rockhopper.pipeline.schema import COLUMNS
from tests.support.hang import HANG_S
from tests.support.pipeline_broker import PipelineBroker
from tests.support.written_logs import T0_MS, WrittenLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.slow
def test_tasks_archive_what_spark_reads_back(spark: "SparkSession", tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "store", file_size_bytes=16_384).add(400)
    log.add(5, topic="0815", store_time_ms=T0_MS + 86_400_000)
    root = str(tmp_path / "history")

    result = jobs.archive(root, path=log.root, split_size_bytes=8192, spark=spark)

    assert result.tasks > 3
    plain = spark.read.parquet(root)
    assert plain.count() == 405
    assert plain.where("topic = 'topic-1' AND tags = 'red'").count() == 133
    archived = read_archive(spark, root)
    assert archived.columns == [*COLUMNS, "date"]
    whole = {"path": str(log.root), "columns": "all"}
    stored = spark.read.format("rocketmq-store").options(**whole).load()
    assert archived.drop("date").schema == stored.schema
    same = ["physOffset", "topic", "body", "keys", "storeTimestamp", "queueOffset", "bodyCrc"]
    assert archived.select(same).exceptAll(stored.select(same)).count() == 0
    assert [row.topic for row in archived.where("topic = '0815'").collect()] == ["0815"] * 5


def description(_: int) -> str | None:
    """What Spark's UI says of the job that this task belongs to."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return context.getLocalProperty("spark.job.description")


@pytest.mark.slow
def test_jobs_say_in_sparks_ui_what_they_do(spark: "SparkSession") -> None:
    context = spark.sparkContext
    context.setJobDescription("the notebook's")
    try:
        assert run_tasks(spark, [1, 2], description, label="archiving orders") == (
            ["archiving orders"] * 2
        )
        assert run_tasks(spark, [1], description, description="batch 1 of 2") == ["batch 1 of 2"]
        assert context.parallelize([1], 1).map(description).collect() == ["the notebook's"]
        assert context.getLocalProperty("spark.jobGroup.id") is None
    finally:
        context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_tasks_sentence_reaches_the_caller(spark: "SparkSession", tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "store").add(30)
    log.write(log.offsets[3], bytes(20))

    with pytest.raises(PipelineError, match=r"^the commit log is damaged .*--corrupt skip$"):
        jobs.archive(tmp_path / "history", path=log.root, spark=spark)


@pytest.mark.slow
def test_conditions_choose_what_is_replayed(spark: "SparkSession", tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "store").add(300)
    log.add(10, topic="%DLQ%group", properties={"KEYS": "a b"})
    root = tmp_path / "history with blanks"
    jobs.archive(root, path=log.root)
    jobs.archive(root, path=log.root, topics=["%DLQ%group"])

    with PipelineBroker() as broker:
        for topic in ("some", "keyed", "timed"):
            broker.create(topic, 2)

        def replay(to: str, **chosen: Any) -> Any:
            return jobs.replay(root, to=to, nameserver=broker.nameserver, spark=spark, **chosen)

        sql = "topic LIKE 'topic%' AND CAST(body AS STRING) LIKE '%7' AND queueId = 1"
        foretold = replay("some", where=sql, dry_run=True)
        result = replay("some", where=sql)
        replay("keyed", key="b", topics=["%DLQ%group"])
        replay("timed", start_ms=T0_MS + 10, end_ms=T0_MS + 20)

        assert foretold.rows == result.sent == 30
        assert broker.bodies("some") == sorted(f"body {n}" for n in range(300) if n % 10 == 7)
        assert len(broker.stored("keyed")) == 10
        assert broker.bodies("timed") == sorted(f"body {n}" for n in range(10, 20))
        with pytest.raises(UsageProblem, match=r"`bodi` cannot be resolved.*Spark SQL over"):
            replay("some", where="bodi = 1")


@pytest.mark.slow
def test_the_command_line(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "store").add(10)

    def run(*arguments: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "rockhopper.pipeline", *arguments],
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    archive = str(tmp_path / "a")
    status, out, _ = run("archive", archive, "--path", str(log.root), "--json")
    assert (status, out.startswith('{"directory":')) == (0, True)
    status, out, error = run("archive", archive, "--path", str(tmp_path / "nothing"))
    assert (status, out) == (1, "")
    assert error.splitlines()[-1].startswith("pipeline: there is no directory")
    status, _, error = run("archive", archive, "-n", "localhost:1", "-t", "x", "--pattern", "y")
    assert (status, error) == (
        2,
        "pipeline: topics and a pattern are mutually exclusive: leave one out\n",
    )
    status, _, error = run("replay", archive, "-n", "localhost:1", "--from", "soon")
    assert (status, "--from" in error) == (2, True)


def test_help_needs_no_pyspark() -> None:
    script = (
        "import sys\n"
        "for name in ('pyspark', 'pyarrow', 'numpy'): sys.modules[name] = None\n"
        "from rockhopper.pipeline.jobs.command_line import main\n"
        "main(sys.argv[1:])\n"
    )
    for arguments in (["--help"], ["archive", "--help"], ["replay", "--help"]):
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True
        )
        assert "--help" in done.stdout
