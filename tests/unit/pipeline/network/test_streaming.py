"""A stream of the network source is refused with a sentence where PySpark is too old for it."""

import sys

import pyspark
import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.network.source import RocketMQSource

OPTIONS = {"nameServer": "127.0.0.1:1", "subscribe": "orders"}


def test_a_stream_needs_a_newer_pyspark_than_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.1.4")
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)
    monkeypatch.delitem(sys.modules, "rockhopper.pipeline.network.streaming", raising=False)
    source = RocketMQSource(OPTIONS)
    schema = source.schema()

    source.reader(schema)
    with pytest.raises(PipelineError, match=r"4.2 or newer, and 4.1.4 is installed.* read batches"):
        source.streamReader(schema)
