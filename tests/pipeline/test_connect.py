"""Sources, sink and jobs in a session of Spark Connect."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import spark_connect
from tests.support.network_queries import numbered
from tests.support.pipeline_broker import PipelineBroker
from tests.support.written_logs import WrittenLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a server whose Python has a copy of the package: Spark gives streams no other."""
    from rockhopper.pipeline.packaging import write_zip

    directory = tmp_path_factory.mktemp("connect")
    package = directory / "installed.zip"
    write_zip(package)
    before = dict(os.environ)
    with spark_connect.running(directory, package) as address:
        yield address
    # PySpark notes in the environment that sessions are remote ones, for all that starts later.
    for name in os.environ.keys() - before.keys():
        if name.startswith("SPARK"):
            del os.environ[name]


@pytest.fixture(scope="module")
def remote(address: str) -> Iterator["SparkSession"]:
    from rockhopper import pipeline
    from rockhopper.pipeline.jobs.remote import connect_session

    session = pipeline.register(connect_session(address))
    yield session
    session.stop()


@pytest.fixture(scope="module")
def broker() -> Iterator[PipelineBroker]:
    with PipelineBroker() as broker:
        yield broker


def load(remote: "SparkSession", broker: PipelineBroker, topic: str) -> Any:
    given = {"nameServer": broker.nameserver, "subscribe": topic}
    return remote.read.format("rocketmq").options(**given).load()


def bodies(frame: Any) -> list[str]:
    return sorted(row.body.decode() for row in frame.select("body").collect())


def test_the_workers_have_what_the_session_sent(remote: "SparkSession") -> None:
    def where(batches: Any) -> Any:
        import pyarrow as pa

        from rockhopper import pipeline

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"file": [pipeline.__file__]})

    (row,) = remote.range(0, 1, 1, 1).mapInArrow(where, "file string").collect()
    assert "/rockhopper-pipeline.zip/" in row.file


def test_files_and_topics_are_read(
    remote: "SparkSession", broker: PipelineBroker, tmp_path: Path
) -> None:
    WrittenLog(tmp_path).add(60)
    frame = remote.read.format("rocketmq-store").option("path", str(tmp_path)).load()
    assert frame.groupBy("topic").count().count() == 3
    broker.create("read", 2)
    broker.send("read", numbered(0, 50), 0)
    broker.send("read", numbered(50, 60), 1)
    read = load(remote, broker, "read")
    assert bodies(read) == numbered(0, 60)
    broker.create("written", 2)
    writer = read.select("body").write.format("rocketmq").mode("append")
    writer.options(nameServer=broker.nameserver, topic="written").save()
    assert broker.bodies("written") == numbered(0, 60)


def test_a_stream_is_written_exactly_once(
    remote: "SparkSession", broker: PipelineBroker, tmp_path: Path
) -> None:
    source, target = "from", "to"
    broker.create(source, 2)
    broker.create(target, 2)
    broker.send(source, numbered(0, 30), 0)
    given = {"nameServer": broker.nameserver}
    stream = remote.readStream.format("rocketmq").options(**given, subscribe=source)
    frame = stream.option("startingOffsets", "earliest").load().select("body", "tags")
    where = str(tmp_path / "checkpoint")

    def run() -> None:
        writer = frame.writeStream.format("rocketmq").options(**given, topic=target)
        writer = writer.option("delivery", "exactly-once").option("checkpointLocation", where)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()

    run()
    broker.send(source, numbered(30, 40), 1)
    run()
    assert broker.bodies(target) == numbered(0, 40)


def test_jobs_run_in_the_session(
    remote: "SparkSession", broker: PipelineBroker, tmp_path: Path
) -> None:
    from rockhopper.pipeline import jobs

    for topic in ("kept", "again"):
        broker.create(topic, 2)
    broker.send("kept", numbered(0, 100), 0, keys="k", tags="red")
    archive, at = tmp_path / "archive", broker.nameserver

    archived = jobs.archive(str(archive), topics=["kept"], spark=remote, nameserver=at)
    assert archived.rows == 100
    replayed = jobs.replay(str(archive), to="again", spark=remote, nameserver=at)
    assert replayed.sent == 100
    assert broker.bodies("again") == numbered(0, 100)

    store = WrittenLog(tmp_path / "store").add(60, properties={"KEYS": "k"}).root
    assert not jobs.audit(str(store), checks=("crc",), spark=remote).findings
    found = jobs.search(str(store), where="length(keys) = 1 AND queueId = 0", spark=remote)
    assert found.match_count > 0
    jobs.report(str(tmp_path / "report"), path=str(store), spark=remote)
    assert (tmp_path / "report" / "report.html").exists()


def test_a_command_takes_the_address_as_its_master(address: str, tmp_path: Path) -> None:
    store = WrittenLog(tmp_path / "store").add(60).root
    command = [sys.executable, "-m", "rockhopper.pipeline", "archive", str(tmp_path / "archive")]
    command += ["--path", str(store), "--broker-name", "a", "--json", "--master", address]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["rows"] == 60


def test_what_goes_wrong_is_a_sentence(remote: "SparkSession", tmp_path: Path) -> None:
    from rockhopper.pipeline import PipelineError, jobs
    from rockhopper.pipeline.jobs.remote import connect_session

    with pytest.raises(Exception, match=r"no directory"):
        remote.read.format("rocketmq-store").option("path", str(tmp_path / "none")).load().count()
    log = WrittenLog(tmp_path / "store").add(60)
    with log.file_of(0).open("r+b") as file:
        file.seek(400)
        file.write(b"\xff" * 300)
    with pytest.raises(PipelineError) as raised:
        jobs.archive(str(tmp_path / "archive"), path=str(log.root), broker_name="a", spark=remote)
    assert "damaged" in str(raised.value)
    assert "Traceback" not in str(raised.value)
    with pytest.raises(PipelineError, match="no server of Spark Connect"):
        connect_session("sc://127.0.0.1:1")
