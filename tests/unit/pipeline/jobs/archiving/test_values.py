"""Bodies as JSON and Avro: every body is itself or null, never its neighbour."""

import io
import json
from datetime import UTC, datetime
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.values import ValueDecoder, value_format

ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": ["string", "null"]},
        "at": {"type": "string", "format": "date-time"},
        "lines": {"type": "array", "items": {"type": "number"}},
    },
}
RECORD = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "state", "type": {"type": "enum", "name": "S", "symbols": ["NEW", "PAID"]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}


def decoded(format_name: str, schema: Any, bodies: list[bytes | None]) -> tuple[list[Any], int]:
    decoder = ValueDecoder(value_format(format_name, json.dumps(schema)))
    values, undecoded = decoder.decode(pa.array(bodies, pa.binary()))
    assert len(values) == len(bodies)
    values.validate(full=True)
    return values.to_pylist(), undecoded


def test_json_by_a_schema() -> None:
    body = b'{"id": 1,\n "at": "2024-01-02T03:04:05Z", "lines": [1, 2.5], "more": {"x": 1}}'

    assert decoded("json", ORDER, [body]) == (
        [
            {
                "id": 1,
                "name": None,
                "at": datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC),
                "lines": [1, 2.5],
            }
        ],
        0,
    )


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"no JSON",
        b"\xff\xfe",
        b'{"id": 1.5}',
        b'{"id": "one"}',
        b"[1]",
        b"null",
        b'{"id": 3},{"id": 4}',
        b'{"id": 3}}',
        b'{}}\n{"n":2,"v":{}',
        None,
    ],
)
def test_what_is_no_json_of_the_schema_is_null_and_moves_nobody(bad: bytes | None) -> None:
    good = [b'{"id": %d}' % number for number in range(9)]

    values, undecoded = decoded("json", ORDER, [*good[:4], bad, *good[4:]])

    assert undecoded == 1
    assert values[4] is None
    assert [value["id"] for value in values if value is not None] == list(range(9))


def test_a_schema_of_spark() -> None:
    schema = {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "integer", "nullable": True, "metadata": {}},
            {
                "name": "tags",
                "type": {"type": "array", "elementType": "string", "containsNull": True},
                "nullable": True,
                "metadata": {},
            },
        ],
    }

    assert decoded("json", schema, [b'{"id": 5, "tags": ["a"]}']) == ([{"id": 5, "tags": ["a"]}], 0)


def test_avro_by_a_schema() -> None:
    stream = io.BytesIO()
    at = datetime(2024, 1, 2, tzinfo=UTC)
    written = {"id": 5, "name": "x", "state": "PAID", "at": at}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(dict(RECORD)), written)
    good = stream.getvalue()

    values, undecoded = decoded("avro", RECORD, [good, b"", good[:-1], good + b"x", good])

    assert values == [written, None, None, None, written]
    assert undecoded == 3


def test_a_format_that_is_none() -> None:
    with pytest.raises(PipelineError, match="did you mean 'json'"):
        value_format("jason", "{}")
