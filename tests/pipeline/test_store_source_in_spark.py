"""``rocketmq-store`` in a real session: what only Spark can tell."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rockhopper.pipeline.schema import COLUMNS, OPTIONAL_COLUMNS, spark_schema
from tests.support import apache_golden
from tests.support.written_logs import T0_MS, WrittenLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def load(spark: "SparkSession", path: Path, **options: str) -> "DataFrame":
    return spark.read.format("rocketmq-store").options(path=str(path), **options).load()


def test_every_column_arrives(spark: "SparkSession", tmp_path: Path) -> None:
    log = WrittenLog(tmp_path, file_size_bytes=16_384).add(500, queue_id=1)
    log.add(5, topic="t" * 200, born_host=bytes(15) + b"\x01" + bytes(4))
    options = {"includeRawProperties": "true", "verifyCrc": "flag", "corruptRecords": "column"}
    options["columns"] = "all"

    frame = load(spark, tmp_path, splitSize="4096", **options)

    assert frame.schema == spark_schema((*COLUMNS, *OPTIONAL_COLUMNS))
    assert frame.rdd.getNumPartitions() > 10
    rows = frame.orderBy("physOffset").collect()
    assert [row.physOffset for row in rows] == log.offsets
    assert rows[7].properties == {"KEYS": "k7", "TAGS": "red"}
    assert rows[7].body == b"body 7"
    assert rows[500].bornHost == "[::1]:0"
    assert {row.crcOk for row in rows} == {True}


@pytest.mark.slow
def test_a_store_of_apache(spark: "SparkSession", tmp_path: Path) -> None:
    store = apache_golden.unpack("batch", tmp_path)

    counts: dict[str, int] = dict(load(spark, store.path).groupBy("topic").count().collect())

    assert counts["Batches"] == 75


@pytest.mark.slow
def test_conditions_of_one_query_do_not_reach_another_of_the_same_frame(
    spark: "SparkSession", tmp_path: Path
) -> None:
    WrittenLog(tmp_path).add(300)
    frame = load(spark, tmp_path)

    some, every = frame.where("topic = 'topic-1'"), frame.where("length(topic) > 1")
    assert some.count() == 100
    assert frame.count() == 300
    assert every.unionAll(some).count() == 400
    late = f"storeTimestamp >= timestamp_millis({T0_MS + 290})"
    assert frame.where(late).count() == 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"columns": "bodi"}, "did you mean 'body'?"),
        ({"startPhysOffset": "99999999"}, "leave it out"),
        ({}, "the commit log is damaged from 0 to"),
    ],
)
def test_what_is_wrong_stands_in_the_drivers_exception(
    options: dict[str, str], says: str, spark: "SparkSession", tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException

    log = WrittenLog(tmp_path).add(3)
    log.write(0, bytes(20))

    with pytest.raises(PySparkException, match="PipelineError") as caught:
        load(spark, tmp_path, **options).count()
    assert says in str(caught.value)
