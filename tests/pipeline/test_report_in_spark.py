"""``report`` with a session: its tasks travel to workers."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.written_logs import WrittenLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.slow
def test_workers_count(spark: "SparkSession", tmp_path: Path) -> None:
    from rockhopper.pipeline import jobs

    WrittenLog(tmp_path / "store").add(2_000)

    result = jobs.report(tmp_path / "out", path=tmp_path / "store", spark=spark)

    assert {each.topic: each.messages for each in result.topics} == {
        "topic-0": 667,
        "topic-1": 667,
        "topic-2": 666,
    }
    assert "topic-2" in Path(result.page).read_text()
