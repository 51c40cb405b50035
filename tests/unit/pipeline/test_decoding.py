"""decoded: what the workers make of batches, without Spark."""

import json
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types

from rockhopper import pipeline
from rockhopper.pipeline import PipelineError

SCHEMA = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}})


class Frame:
    """Takes what decoded asks of a frame."""

    def __init__(self, *names: str) -> None:
        self.columns = list(names)
        self.schema = types.StructType([types.StructField(n, types.StringType()) for n in names])

    def mapInArrow(self, work: Any, schema: types.StructType) -> Any:  # noqa: N802
        return SimpleNamespace(work=work, schema=schema)


def test_a_column_more_with_nulls_for_what_does_not_decode() -> None:
    made: Any = pipeline.decoded(Frame("topic", "body"), "json", SCHEMA)  # type: ignore[arg-type]
    assert made.schema.fieldNames() == ["topic", "body", "value"]
    assert made.schema["value"].dataType.fieldNames() == ["id"]
    batch = pa.RecordBatch.from_pydict({"topic": ["t"] * 3, "body": [b'{"id":1}', b"no", None]})
    (found,) = made.work(iter([batch]))
    assert found.column("value").to_pylist() == [{"id": 1}, None, None]
    assert found.column("body").to_pylist() == [b'{"id":1}', b"no", None]


def test_a_body_that_does_not_decode_can_end_the_query() -> None:
    frame: Any = Frame("topic", "text")
    made: Any = pipeline.decoded(frame, "json", SCHEMA, body="text", bad_values="fail")
    batch = pa.RecordBatch.from_pydict({"topic": ["a", "b"], "text": ['{"id":1}', "no"]})
    with pytest.raises(PipelineError, match="does not decode as json: topic b;"):
        list(made.work(iter([batch])))


@pytest.mark.parametrize(
    ("columns", "more", "says"),
    [
        (("tags",), {}, "has no column 'body'"),
        (("bodi",), {}, "did you mean"),
        (("body", "value"), {}, "has a column 'value' already"),
        (("body",), {"bad_values": "drop"}, "choose null or fail"),
        (("body",), {"schema": None}, "need a schema"),
        (("body",), {"schema": {"type": "object"}}, "no text: give json.dumps of it"),
    ],
)
def test_what_makes_no_sense(columns: tuple[str, ...], more: dict[str, Any], says: str) -> None:
    frame: Any = Frame(*columns)
    with pytest.raises(PipelineError, match=says):
        pipeline.decoded(frame, "json", **{"schema": SCHEMA, **more})
