"""``rocketmq`` in a real session, reading and writing: what only Spark can tell."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rockhopper.pipeline.schema import spark_schema
from rockhopper.pipeline.sink.home import HOME_FILE
from tests.support.ending_query import run_to_end
from tests.support.pipeline_broker import PipelineBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def broker() -> Iterator[PipelineBroker]:
    with PipelineBroker() as broker:
        yield broker


def numbered(start: int, end: int) -> list[str]:
    return [f"{number:05d}" for number in range(start, end)]


def load(spark: "SparkSession", broker: PipelineBroker, topic: str, **options: str) -> "DataFrame":
    given = {"nameServer": broker.nameserver, "subscribe": topic, **options}
    return spark.read.format("rocketmq").options(**given).load()


def stream(spark: "SparkSession", broker: PipelineBroker, **options: str) -> "DataFrame":
    reader = spark.readStream.format("rocketmq").option("nameServer", broker.nameserver)
    return reader.options(**options).load()


def run(frame: "DataFrame", broker: PipelineBroker, **options: str) -> list[dict[str, Any]]:
    """Write a stream until it is at its end; the progress of its batches."""
    writer = frame.writeStream.format("rocketmq").option("nameServer", broker.nameserver)
    return run_to_end(writer.options(**options).trigger(availableNow=True).start)


def test_a_batch_read_over_several_tasks(spark: "SparkSession", broker: PipelineBroker) -> None:
    broker.create("read", 2)
    broker.send("read", numbered(0, 60), 0, tags="red", keys="k")
    broker.send("read", numbered(60, 100), 1, tags="blue")

    frame = load(spark, broker, "read", minPartitions="3", columns="all")

    assert frame.schema == spark_schema()
    rows = frame.orderBy("queueId", "queueOffset").collect()
    assert [row.body.decode() for row in rows] == numbered(0, 100)
    assert (rows[0].tags, rows[0].keys, rows[0].brokerName) == ("red", "k", "broker-a")
    assert rows[99].properties["TAGS"] == "blue"
    assert load(spark, broker, "read", subExpression="blue", columns="tags").count() == 40


def test_a_stream_goes_on_from_its_checkpoint(
    spark: "SparkSession", broker: PipelineBroker, tmp_path: Path
) -> None:
    broker.create("in", 2)
    broker.create("out", 2)
    given = {
        "subscribe": "in",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "40",
        "groupId": "copying",
        "commitOffsets": "onBatch",
    }
    delivery = {
        "topic": "out",
        "delivery": "exactly-once",
        "checkpointLocation": str(tmp_path / "checkpoint"),
    }
    broker.send("in", numbered(0, 100), 0, tags="t", properties={"n": "1"})
    frame = stream(spark, broker, includeProperties="true", **given)
    frame = frame.select("body", "tags", "properties")

    progress = run(frame, broker, **delivery)

    assert '"broker": "broker-a"' in (tmp_path / "checkpoint" / HOME_FILE).read_text()
    assert [each["numInputRows"] for each in progress] == [40, 40, 20]
    source = progress[0]["sources"][0]
    assert '"0": 40' in str(source["endOffset"]).replace("'", '"')
    assert '"0": 100' in str(source["latestOffset"]).replace("'", '"')
    broker.send("in", numbered(100, 130), 1, tags="t", properties={"n": "1"})
    progress = run(frame, broker, **delivery)
    assert sum(each["numInputRows"] for each in progress) == 30
    assert broker.bodies("out") == numbered(0, 130)
    assert {(m.tags, m.properties["n"]) for m in broker.stored("out")} == {("t", "1")}
    ranges = broker.run(broker.admin.ranges("in"))
    committed = [
        broker.run(broker.admin.offsets.committed("copying", each.queue)) for each in ranges
    ]
    assert committed == [100, 30]


def test_a_frame_is_written_once_however_often(
    spark: "SparkSession", broker: PipelineBroker
) -> None:
    broker.create("written", 3)
    rows = spark.range(0, 500, 1, 3).selectExpr(
        "format_string('%05d', id) AS body",
        "concat('key', id) AS keys",
        "CAST(id % 5 AS STRING) AS shardingKey",
    )
    for _ in range(2):
        rows.write.format("rocketmq").mode("append").options(
            nameServer=broker.nameserver, topic="written", delivery="exactly-once", sinkId="frame"
        ).save()
    assert broker.bodies("written") == numbered(0, 500)
    rows.write.format("rocketmq").mode("append").option("nameServer", broker.nameserver).option(
        "topic", "written"
    ).save()
    assert broker.bodies("written") == sorted(numbered(0, 500) * 2)


def test_two_checkpoints_that_write_under_one_id_in_foreach_batch(
    spark: "SparkSession", broker: PipelineBroker, tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException

    broker.create("shared-in", 1)
    broker.create("shared-out", 1)

    def write(batch: "DataFrame", batch_id: int) -> None:
        batch.write.format("rocketmq").mode("append").options(
            nameServer=broker.nameserver,
            topic="shared-out",
            delivery="exactly-once",
            sinkId="shared",
            batchId=batch_id,
        ).save()

    def run_one(checkpoint: str) -> None:
        frame = stream(spark, broker, subscribe="shared-in", startingOffsets="earliest")
        writer = frame.select("body").writeStream.foreachBatch(write).trigger(availableNow=True)
        run_to_end(writer.option("checkpointLocation", str(tmp_path / checkpoint)).start)

    broker.send("shared-in", ["a"], 0)
    run_one("first")
    broker.send("shared-in", ["b"], 0)
    with pytest.raises(PySparkException, match="has batches of the streaming query"):
        run_one("second")
    run_one("first")
    assert broker.bodies("shared-out") == ["a", "b"]


@pytest.mark.parametrize(
    ("options", "columns", "mode", "says"),
    [
        ({"topic": "T"}, "id", "append", "a sink has no column 'id'"),
        ({"topic": "T"}, "'a' AS body", "overwrite", "a topic cannot be overwritten"),
        ({}, "'a' AS body", "append", "nothing says which topic to write to"),
        ({"topic": "T"}, "CAST(NULL AS STRING) AS body", "append", "1 rows for 'T' have no body"),
    ],
)
def test_what_cannot_be_written_stands_in_the_drivers_exception(
    options: dict[str, str],
    columns: str,
    mode: str,
    says: str,
    spark: "SparkSession",
    broker: PipelineBroker,
) -> None:
    from pyspark.errors import PySparkException

    frame = spark.range(1).selectExpr(columns)
    writer = frame.write.format("rocketmq").mode(mode).option("nameServer", broker.nameserver)
    with pytest.raises(PySparkException, match="PipelineError") as caught:
        writer.options(**options).save()
    assert says in str(caught.value)


def test_what_cannot_be_read_stands_in_the_drivers_exception(
    spark: "SparkSession", broker: PipelineBroker
) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="knows no topic 'nowhere'"):
        load(spark, broker, "nowhere").count()


def test_small_batches_wait_and_the_lag_is_in_the_progress(
    spark: "SparkSession", broker: PipelineBroker, tmp_path: Path
) -> None:
    broker.create("few", 1)
    broker.send("few", numbered(0, 3), 0)
    frame = stream(
        spark, broker, subscribe="few", startingOffsets="earliest", minOffsetsPerTrigger="10"
    )
    checkpoint = str(tmp_path / "checkpoint")
    writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
    query = writer.queryName("few at a time").start()
    try:
        query.processAllAvailable()
        broker.send("few", numbered(3, 7), 0)
        query.processAllAvailable()  # returns when the source has nothing that is to be read now
        broker.send("few", numbered(7, 13), 0)
        query.processAllAvailable()
        read = [each["numInputRows"] for each in query.recentProgress]
        assert [count for count in read if count] == [3, 10]
        assert lag(query) == {("few", "broker-a", "0"): 0}
    finally:
        query.stop()


def lag(query: Any) -> dict[tuple[str, str, str], int]:
    """As docs/spark.md says it."""
    text = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    code = text.split("### Lag, and Spark's UI")[1].split("```python\n")[1].split("```")[0]
    scope: dict[str, Any] = {}
    exec(code, scope)
    found: dict[tuple[str, str, str], int] = scope["lag"](query)
    return found


def test_history_and_what_is_live_are_one_view(
    spark: "SparkSession", broker: PipelineBroker, tmp_path: Path
) -> None:
    from rockhopper import pipeline
    from rockhopper.pipeline import PipelineError, jobs

    at, archive = broker.nameserver, str(tmp_path / "history")
    for topic in ("sold", "beside"):
        broker.create(topic, 2)
        broker.send(topic, numbered(0, 50), 0)
    jobs.archive(archive, nameserver=at)
    broker.send("sold", numbered(50, 60), 0)
    broker.send("sold", numbered(60, 70), 1)

    def bodies() -> list[str]:
        rows = spark.sql("SELECT CAST(body AS STRING) AS body FROM sold").collect()
        return sorted(row.body for row in rows)

    pipeline.history_view(spark, "sold", archive=archive, nameserver=at)
    assert bodies() == numbered(0, 70)
    jobs.archive(archive, nameserver=at)
    broker.send("sold", numbered(70, 75), 1)
    assert bodies() == numbered(0, 70)  # the archive has grown, the view is as it was
    pipeline.history_view(spark, "sold", archive=archive, nameserver=at, columns="body,queueId")
    assert bodies() == numbered(0, 75)
    shown = spark.table("sold")
    assert shown.columns == ["body", "queueId", "date"]
    assert shown.where("date < '2020-01-01'").count() == 0
    given = {"where": "queueOffset = 3", "columns": "body"}
    pipeline.history_view(spark, "few", archive=archive, nameserver=at, topics=["sold"], **given)
    assert spark.table("few").count() == 2
    topics = ["sold", "beside"]
    pipeline.history_view(spark, "every", archive=archive, nameserver=at, topics=topics)
    assert spark.table("every").count() == 125

    broker.delete("sold")
    broker.create("sold", 2)
    broker.send("sold", numbered(0, 90), 0)
    pipeline.history_view(spark, "sold", archive=archive, nameserver=at)
    with pytest.raises(Exception, match="was deleted and recreated"):
        spark.table("sold").count()
    with pytest.raises(PipelineError, match="no topic 'sol'"):
        pipeline.history_view(spark, "sol", archive=archive, nameserver=at)


def test_bodies_are_decoded_in_a_stream(
    spark: "SparkSession", broker: PipelineBroker, tmp_path: Path
) -> None:
    from rockhopper import pipeline

    broker.create("json", 1)
    broker.send("json", ['{"id": 1, "at": "2026-11-26T00:00:00Z"}', "none", '{"id": 3}'], 0)
    fields = {"id": {"type": "integer"}, "at": {"type": "string", "format": "date-time"}}
    schema = json.dumps({"type": "object", "properties": fields})
    frame = stream(spark, broker, subscribe="json", startingOffsets="earliest")
    written = pipeline.decoded(frame, "json", schema).writeStream.format("parquet")
    where = str(tmp_path / "decoded")
    written = written.options(path=where, checkpointLocation=str(tmp_path / "checkpoint"))
    run_to_end(written.trigger(availableNow=True).start)
    rows = spark.read.parquet(where).orderBy("queueOffset").selectExpr("value.id", "value.at")
    assert [(row.id, row.at and row.at.timestamp()) for row in rows.collect()] == [
        (1, 1795651200.0),
        (None, None),
        (3, None),
    ]


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_rows_that_cannot_be_sent_become_dead_letters(
    spark: "SparkSession", broker: PipelineBroker, tmp_path: Path, delivery: str
) -> None:
    source, good, bad = (f"{delivery}-{name}" for name in ("all", "good", "bad"))
    for topic in (source, good, bad):
        broker.create(topic, 1)
    broker.send(source, numbered(0, 40), 0)
    named = stream(
        spark, broker, subscribe=source, startingOffsets="earliest", includeProperties="true"
    )
    frame = named.selectExpr(
        "IF(queueOffset % 10 = 3, NULL, body) AS body",
        "IF(queueOffset % 10 = 4, 'x\u0001y', 'tag') AS tags",
        "properties",
    )
    run(
        frame,
        broker,
        topic=good,
        delivery=delivery,
        onBadRow="deadletter",
        deadLetterTopic=bad,
        checkpointLocation=str(tmp_path / "checkpoint"),
    )
    assert broker.bodies(good) == [each for each in numbered(0, 40) if each[-1] not in "34"]
    letters = load(spark, broker, bad, includeProperties="true").selectExpr(
        "CAST(body AS STRING) AS body", "properties['RH_BAD_COLUMN'] AS why"
    )
    told = sorted((row.body, row.why) for row in letters.collect())
    assert told == [("", "body")] * 4 + [(f"000{n}4", "tags") for n in range(4)]
