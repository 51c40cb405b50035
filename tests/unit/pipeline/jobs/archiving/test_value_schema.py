"""Schemas of bodies become types of columns, or a sentence that says why not."""

import json
import sys
from typing import Any

import pyarrow as pa
import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.value_schema import avro_type, check_names, json_type

TIME = pa.timestamp("us", tz="UTC")


def json_field(schema: Any) -> pa.DataType:
    found = json_type(json.dumps({"type": "object", "properties": {"f": schema}}))
    return found.field("f").type


def spark_field(kind: Any) -> pa.DataType:
    schema = {"type": "struct", "fields": [{"name": "f", "type": kind}]}
    return json_type(json.dumps(schema)).field("f").type


def avro_field(kind: Any) -> pa.DataType:
    schema = {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]}
    return avro_type(json.dumps(schema)).field("f").type


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, pa.string()),
        ({"type": "integer"}, pa.int64()),
        ({"type": "number"}, pa.float64()),
        ({"type": "boolean"}, pa.bool_()),
        ({"type": ["null", "integer"]}, pa.int64()),
        ({"type": "string", "format": "date-time"}, TIME),
        ({"type": "string", "format": "uri"}, pa.string()),
        ({"type": "array", "items": {"type": "string"}}, pa.list_(pa.string())),
        ({"properties": {"a": {"type": "number"}}}, pa.struct([("a", pa.float64())])),
    ],
)
def test_json_schema(schema: Any, expected: pa.DataType) -> None:
    assert json_field(schema) == expected


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("byte", pa.int8()),
        ("short", pa.int16()),
        ("integer", pa.int32()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("date", pa.date32()),
        ("timestamp", TIME),
        ({"type": "array", "elementType": "long"}, pa.list_(pa.int64())),
        (
            {"type": "struct", "fields": [{"name": "a", "type": "string"}]},
            pa.struct([("a", pa.string())]),
        ),
    ],
)
def test_schemas_of_spark(kind: Any, expected: pa.DataType) -> None:
    assert spark_field(kind) == expected


NAMED = {"type": "record", "name": "N", "fields": [{"name": "a", "type": "int"}]}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("bytes", pa.binary()),
        ("int", pa.int32()),
        (["null", "long"], pa.int64()),
        ({"type": "string"}, pa.string()),
        ("float", pa.float32()),
        ({"type": "array", "items": "double"}, pa.list_(pa.float64())),
        ({"type": "map", "values": "int"}, pa.map_(pa.string(), pa.int32())),
        ({"type": "fixed", "name": "F", "size": 4}, pa.binary(4)),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.string()),
        ({"type": "long", "logicalType": "timestamp-millis"}, TIME),
        ({"type": "long", "logicalType": "unheard-of"}, pa.int64()),
        ({"type": "int", "logicalType": "date"}, pa.date32()),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            pa.decimal128(9, 2),
        ),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9}, pa.decimal128(9, 0)),
        (NAMED, pa.struct([("a", pa.int32())])),
    ],
)
def test_avro(kind: Any, expected: pa.DataType) -> None:
    assert avro_field(kind) == expected


def test_a_type_of_avro_that_has_a_name_can_be_used_again() -> None:
    fields = [{"name": "one", "type": NAMED}, {"name": "two", "type": ["null", "N"]}]
    found = avro_type(json.dumps({"type": "record", "name": "R", "fields": fields}))
    assert found.field("two").type == found.field("one").type == pa.struct([("a", pa.int32())])


def test_avro_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(PipelineError, match=r"pip install 'rockhopper-mq\[spark\]'"):
        avro_field("int")


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("{", "the schema is not valid JSON"),
        ("[]", "is not a JSON object"),
        ("{}", "give a JSON Schema with"),
        ('{"properties": {"a": {"type": "null"}}}', "'null' for 'a', which has no column type"),
        ('{"properties": {"a": {"type": ["string", "number"]}}}', "for 'a', which has no column"),
        ('{"properties": {"a": {"type": "object"}}}', "'object' for 'a', which has no column"),
        ('{"properties": {"a": {"type": "array"}}}', "'array' for 'a', which has no column"),
        (
            '{"properties": {"a": {"type": "array", "items": {"type": "x"}}}}',
            "'x' for the items of 'a', which has no column type",
        ),
        ('{"properties": {}}', "for the body, which has no column type"),
        ('{"type": "struct", "fields": [{"name": "a", "type": "x"}]}', "the type 'x'"),
        ('{"type": "struct", "fields": []}', "which bodies cannot be decoded to"),
        ('{"type": "struct", "fields": [{"name": "a", "type": {"type": "map"}}]}', "use struct,"),
    ],
)
def test_schemas_of_json_that_cannot_be_used(schema: str, says: str) -> None:
    with pytest.raises(PipelineError, match=says):
        json_type(schema)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ('{"type": "int"}', "of type 'int': give that of a record"),
        ('{"type": "record"}', "the Avro schema is none"),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["int", "string"]}]}',
            "only unions with null",
        ),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "null"}]}',
            "the type 'null', which has no column type",
        ),
    ],
)
def test_schemas_of_avro_that_cannot_be_used(schema: str, says: str) -> None:
    with pytest.raises(PipelineError, match=says):
        avro_type(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"userId": {"type": "integer"}, "userid": {"type": "integer"}}},
        {
            "properties": {
                "rows": {
                    "type": "array",
                    "items": {"properties": {"a": {"type": "string"}, "A": {"type": "string"}}},
                }
            }
        },
    ],
)
def test_fields_that_differ_in_case_only_are_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(PipelineError, match="which differ in case only"):
        check_names(json_type(json.dumps(schema)))
    check_names(json_type(json.dumps({"properties": {"a": {"type": "string"}}})))
