"""The pipeline on a real standalone cluster, with an executor killed in the middle of a job.

Jobs run as a user runs them: in processes of their own, with the cluster as their master.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.pipeline_data import write_store
from tests.support import spark_cluster
from tests.support.growing_directories import count_files
from tests.support.spark_cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(2400)]

ROOT = Path(__file__).parents[2]
MESSAGES = 1_000_000

APP = """
import json, sys
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, crc32, sum as total, count
from rockhopper import pipeline

spark = pipeline.register(SparkSession.builder.appName("counts").getOrCreate())
assert ".zip" in pipeline.__file__, pipeline.__file__
frame = spark.read.format("rocketmq-store").option("path", sys.argv[1])
frame = frame.option("splitSize", "16m").option("columns", "topic,queueId,body").load()
rows = (
    frame.groupBy("topic", "queueId")
    .agg(count("*"), total(crc32(col("body"))))
    .orderBy("topic", "queueId")
    .collect()
)
print("RESULT", json.dumps([list(row) for row in rows]))
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("store")
    write_store(directory, MESSAGES)
    return directory


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with spark_cluster.running(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def start(command: list[str], directory: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command,
        cwd=directory,
        env=spark_cluster.environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finish(process: "subprocess.Popen[str]") -> str:
    output, errors = process.communicate(timeout=1200)
    assert process.returncode == 0, errors[-4000:]
    return output


def job(cluster: Cluster, *arguments: str) -> "subprocess.Popen[str]":
    options = ["--json", "--master", cluster.url]
    return start([sys.executable, "-m", "rockhopper.pipeline", *arguments, *options], ROOT)


def kill_an_executor(cluster: Cluster, process: "subprocess.Popen[str]", ready: Any) -> int:
    """Wait until *ready* says that the job is in the middle, then SIGKILL one executor."""
    while process.poll() is None:
        executors = cluster.executors()
        if len(executors) == 2 and ready():
            os.kill(executors[0], signal.SIGKILL)
            return executors[0]
        time.sleep(0.01)
    raise AssertionError(f"it ended too early: {process.communicate()}")


def python_workers(cluster: Cluster) -> bool:
    """Whether executors have started Python, so that tasks run."""
    executors = set(cluster.executors())
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                text = (process / "stat").read_text()
            except OSError:
                continue
            if int(text.rpartition(")")[2].split()[1]) in executors:
                return True
    return False


@pytest.mark.long
def test_spark_submit_gives_the_same_after_an_executor_was_killed(
    cluster: Cluster, store: Path, tmp_path: Path
) -> None:
    package = tmp_path / "rockhopper-pipeline.zip"
    subprocess.run(
        [sys.executable, "-m", "rockhopper.pipeline", "package", "--output", str(package)],
        cwd=ROOT,
        check=True,
    )
    app = tmp_path / "app.py"
    app.write_text(APP)
    import pyspark

    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    options = ["--master", cluster.url, "--executor-memory", "512m", "--py-files", str(package)]
    options += ["--conf", "spark.sql.shuffle.partitions=4"]
    command = [submit, *options, str(app), str(store)]

    def result(process: "subprocess.Popen[str]") -> Any:
        lines = [line for line in finish(process).splitlines() if line.startswith("RESULT ")]
        return json.loads(lines[0].removeprefix("RESULT "))

    began = time.monotonic()
    undisturbed = result(start(command, tmp_path))
    clean_s = time.monotonic() - began
    began = time.monotonic()
    process = start(command, tmp_path)
    kill_an_executor(cluster, process, lambda: python_workers(cluster))
    disturbed = result(process)
    print(f"spark-submit: {clean_s:.1f} s, with a kill {time.monotonic() - began:.1f} s")

    assert disturbed == undisturbed
    assert sum(row[2] for row in undisturbed) == MESSAGES
    assert len(undisturbed) == 16


def test_a_job_archives_each_message_once_though_an_executor_was_killed(
    cluster: Cluster, store: Path, tmp_path: Path
) -> None:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    archives = [tmp_path / "undisturbed", tmp_path / "disturbed"]
    options = ("--path", str(store), "--split-size", "16m")
    began = time.monotonic()
    results = [json.loads(finish(job(cluster, "archive", str(archives[0]), *options)))]
    clean_s = time.monotonic() - began

    began = time.monotonic()
    process = job(cluster, "archive", str(archives[1]), *options)
    kill_an_executor(cluster, process, lambda: count_files(archives[1], ".parquet") > 0)
    results.append(json.loads(finish(process)))
    print(f"archive: {clean_s:.1f} s, with a kill {time.monotonic() - began:.1f} s")

    assert [each["rows"] for each in results] == [MESSAGES, MESSAGES]
    tables = [
        pq.read_table(directory, columns=["physOffset", "body"]).sort_by("physOffset")
        for directory in archives
    ]
    assert tables[0].equals(tables[1])
    assert pc.count_distinct(tables[1]["physOffset"]).as_py() == MESSAGES


def test_a_report_counts_on_the_cluster(cluster: Cluster, store: Path, tmp_path: Path) -> None:
    output = finish(job(cluster, "report", str(tmp_path / "out"), "--path", str(store)))

    assert json.loads(output)["messages"] == MESSAGES
    assert (tmp_path / "out" / "report.html").exists()
