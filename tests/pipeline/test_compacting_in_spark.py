"""An archive that is compacted and expires by Spark's tasks, and what Spark reads of it."""

import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rockhopper import pipeline
from rockhopper.pipeline import jobs
from rockhopper.pipeline.jobs.archiving.catalog import Catalog
from rockhopper.pipeline.jobs.archiving.files import LocalFiles
from rockhopper.pipeline.jobs.archiving.reading import read_archive
from tests.support.pipeline_broker import PipelineBroker
from tests.support.written_logs import T0_MS, WrittenLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DAY_MS = 86_400_000
SCHEMA = '{"type": "object", "properties": {"id": {"type": "integer"}}}'


def test_spark_reads_each_message_once_and_only_the_days_it_is_asked_for(
    spark: "SparkSession", tmp_path: Path
) -> None:
    log, root = WrittenLog(tmp_path / "store"), str(tmp_path / "history")
    for run in range(6):
        log.add(30, body=b'{"id": %d}' % run, store_time_ms=T0_MS + run // 3 * DAY_MS)
        jobs.archive(root, path=log.root, decode="json", schema=SCHEMA)
    order = ["topic", "physOffset"]
    before = read_archive(spark, root).orderBy(order).collect()

    result = jobs.compact(root, spark=spark)

    assert (result.files_before, result.rows) == (18, 180)
    assert read_archive(spark, root).orderBy(order).collect() == before
    plain = spark.read.parquet(root)
    assert plain.count() == 180 == plain.select("physOffset").distinct().count()

    now = T0_MS + 3 * DAY_MS // 2
    assert jobs.expire(root, older_than_ms=DAY_MS, now_ms=lambda: now).messages == 90
    day = datetime.datetime.fromtimestamp(T0_MS / 1000 + 86400, datetime.UTC).date()
    assert {row.date for row in read_archive(spark, root).select("date").collect()} == {day}
    assert spark.read.parquet(root).count() == 90


def test_a_view_over_what_was_merged_and_what_is_live(
    spark: "SparkSession", tmp_path: Path
) -> None:
    root = str(tmp_path / "history")
    with PipelineBroker() as broker:
        at = broker.nameserver
        broker.create("sold", 2)
        for run in range(3):
            broker.send("sold", [f"{run}-{number}" for number in range(20)], run % 2)
            jobs.archive(root, nameserver=at)
        broker.send("sold", ["live"], 0)
        sent = broker.bodies("sold")

        assert jobs.compact(root, spark=spark).files_after == 1
        pipeline.history_view(spark, "sold", archive=root, nameserver=at)

        rows = spark.sql("SELECT CAST(body AS STRING) AS body FROM sold").collect()
        assert sorted(row.body for row in rows) == sent
        (file,) = Catalog(LocalFiles(root)).archived_files()
        assert file.rows == 60
        # Files that go while a view is there end its queries, and are not left out silently.
        (Path(root) / file.path).unlink()
        with pytest.raises(Exception, match="FILE_NOT_EXIST"):
            spark.table("sold").select("body").collect()
