"""Audit, rebuild and search with Spark's workers: what only Spark can tell."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rockhopper.pipeline import PipelineError, jobs
from rockhopper.pipeline.jobs.tasks import run_in_this_process
from tests.support.derived_stores import (
    GEOMETRY,
    write_store,
)
from tests.support.rot import overwrite
from tests.support.where_conditions import UNDERSTOOD, log_of_odd_messages
from tests.support.written_archives import archive_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.slow
def test_tasks_travel_to_workers_and_results_back(spark: "SparkSession", tmp_path: Path) -> None:
    store = write_store(tmp_path / "store")
    overwrite(store / "consumequeue" / "Topic1" / "1" / f"{0:020d}", 0, bytes(20))
    audited = jobs.audit(str(store), split_size=4096, spark=spark, **GEOMETRY)
    found = jobs.search(str(store), key="kk", limit=3, spark=spark)

    assert audited.task_count > 4
    assert audited.counts == {"unit missing": 1}
    assert len(found.messages) == 3


@pytest.mark.slow
def test_a_condition_in_sparks_sql(spark: "SparkSession", tmp_path: Path) -> None:
    store = write_store(tmp_path / "store")

    found = jobs.search(
        str(store),
        where="queueId = 1 and size(properties) = 2",
        contains="body 1",
        topics=["Topic1"],
        limit=5,
        spark=spark,
    )

    assert 0 < len(found.messages) <= 5
    assert all(one["body"].startswith("body 1") for one in found.messages)
    assert all(len(one["properties"]) == 2 for one in found.messages)
    with pytest.raises(
        PipelineError, match="not a valid Spark SQL condition over the columns topic"
    ):
        jobs.search(str(store), where="nonsense = 1", spark=spark)


@pytest.mark.slow
def test_conditions_that_need_no_spark_find_what_spark_finds(
    spark: "SparkSession", tmp_path: Path
) -> None:
    log = log_of_odd_messages(tmp_path / "store")
    options = {"path": str(log.root), "corruptRecords": "skip", "columns": "all"}
    rows = spark.read.format("rocketmq-store").options(**options).load().cache()
    archive = str(archive_of(log, tmp_path / "archive"))

    for where in UNDERSTOOD:
        expected = {row["physOffset"] for row in rows.where(where).select("physOffset").collect()}
        sources: list[dict[str, Any]] = [{"path": str(log.root)}, {"archive": archive}]
        for source in sources:
            found = jobs.search(**source, where=where, limit=1000, run=run_in_this_process)
            assert {one["physOffset"] for one in found.messages} == expected, where
    by_spark = jobs.search(str(log.root), where=UNDERSTOOD[0], spark=spark)
    here = jobs.search(str(log.root), where=UNDERSTOOD[0], run=run_in_this_process)
    without_place = [[{**one, "place": ""} for one in found.messages] for found in (by_spark, here)]
    assert without_place[0] == without_place[1] != []
