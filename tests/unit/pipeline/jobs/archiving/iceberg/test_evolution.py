"""Fields may come, and none may go or change its type."""

from typing import Any

import pytest
from pyspark.sql import types as t

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.iceberg.evolution import Addition, find_additions


def struct(**fields: Any) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in fields.items()])


def added(there: Any, wanted: Any) -> list[Addition]:
    return find_additions(
        struct(body=t.BinaryType(), **there), struct(body=t.BinaryType(), **wanted), "T"
    )


LONG, TEXT = t.LongType(), t.StringType()


def test_a_column_of_ours_and_fields_at_any_depth_are_added() -> None:
    one, two = struct(a=LONG), struct(a=LONG, b=TEXT)

    assert added({}, {"value": one}) == [Addition("", "value", one)]
    assert added({"value": one}, {"value": two}) == [Addition("value", "b", TEXT)]
    assert added({"value": struct(x=one)}, {"value": struct(x=two)}) == [
        Addition("value.x", "b", TEXT)
    ]
    assert added({"value": struct(x=t.ArrayType(one))}, {"value": struct(x=t.ArrayType(two))}) == [
        Addition("value.x.element", "b", TEXT)
    ]
    assert added(
        {"value": struct(x=t.MapType(TEXT, one))}, {"value": struct(x=t.MapType(TEXT, two))}
    ) == [Addition("value.x.value", "b", TEXT)]


def test_what_is_there_and_what_others_have_added_stays() -> None:
    assert added({"value": struct(a=LONG), "theirs": TEXT}, {"value": struct(a=LONG)}) == []
    assert added({"value": struct(a=LONG)}, {}) == []
    small = {"value": struct(a=t.ShortType(), b=t.ByteType())}
    assert added({"value": struct(a=t.IntegerType(), b=t.IntegerType())}, small) == []


def test_a_field_that_goes_or_changes_its_type_is_refused() -> None:
    with pytest.raises(PipelineError, match=r"T has the field value.b, which the schema does not"):
        added({"value": struct(a=LONG, b=TEXT)}, {"value": struct(a=LONG)})
    with pytest.raises(PipelineError, match=r"value.a is bigint in T, and string by the schema"):
        added({"value": struct(a=LONG)}, {"value": struct(a=TEXT)})
    with pytest.raises(PipelineError, match=r"value.a is bigint in T, and struct<b:bigint>"):
        added({"value": struct(a=LONG)}, {"value": struct(a=struct(b=LONG))})


def test_a_table_that_is_none_of_ours_is_refused() -> None:
    with pytest.raises(PipelineError, match="T has no column body, so archive has not made it"):
        find_additions(struct(n=LONG), struct(body=t.BinaryType()), "T")
