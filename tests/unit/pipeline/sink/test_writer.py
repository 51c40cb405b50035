"""Making a writer: what would overwrite a topic is refused before anything is sent."""

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.sink.rules import read_rules
from rockhopper.pipeline.sink.writer import make_stream_writer, make_writer

BASE = {"nameServer": "127.0.0.1:9876", "topic": "orders"}
FRAME = StructType([StructField("body", StringType())])


def test_topics_are_not_overwritten() -> None:
    with pytest.raises(PipelineError, match=r"mode\('append'\)"):
        make_writer(FRAME, read_rules(BASE, streaming=False), True)
    with pytest.raises(PipelineError, match=r"outputMode\('append'\)"):
        make_stream_writer(FRAME, read_rules(BASE, streaming=True), True)
