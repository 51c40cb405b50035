"""Convert schemas of bodies to Arrow types: JSON Schema, Spark's schemas, Avro."""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from rockhopper.pipeline.errors import PipelineError

_TIME = pa.timestamp("us", tz="UTC")
_SPARK = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "timestamp": _TIME,
    "date": pa.date32(),
}
_JSON = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "integer": pa.int64(),
    "number": pa.float64(),
}
_AVRO = {
    "string": pa.string(),
    "bytes": pa.binary(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "enum": pa.string(),
}
_AVRO_LOGICAL = {
    "timestamp-millis": _TIME,
    "timestamp-micros": _TIME,
    "date": pa.date32(),
    "uuid": pa.string(),
}


def json_type(text: str) -> pa.DataType:
    """Return the struct type of a JSON Schema or a Spark schema. Raises PipelineError."""
    schema = _parse(text)
    if schema.get("type") == "struct" and "fields" in schema:
        return _spark(schema)
    if "properties" in schema:
        return _json(schema, "the body")
    raise PipelineError(
        'the schema describes no object: give a JSON Schema with "properties", or the schema of a '
        "DataFrame (df.schema.json())"
    )


def check_names(kind: pa.DataType) -> None:
    """Refuse fields of a struct that differ only in case: Spark reads neither of them.

    Raises:
        PipelineError: names two such fields.
    """
    known: dict[str, str] = {}
    for field in (kind.field(number) for number in range(kind.num_fields)):
        other = known.setdefault(field.name.casefold(), field.name)
        if other != field.name and pa.types.is_struct(kind):
            raise PipelineError(
                f"the schema has the fields {other!r} and {field.name!r}, which differ in case "
                "only, and Spark would not read such an archive: leave one of them out"
            )
        check_names(field.type)


def avro_type(text: str) -> pa.DataType:
    """Return the struct type of an Avro record schema. Raises PipelineError."""
    schema = _parse(text)
    if schema.get("type") != "record":
        raise PipelineError(
            f"the Avro schema is of type {schema.get('type')!r}: give that of a record"
        )
    try:
        import fastavro

        fastavro.parse_schema(json.loads(text))
    except ImportError:
        raise PipelineError(
            "decoding Avro needs fastavro, and it is not installed: "
            "pip install 'rockhopper-mq[spark]'"
        ) from None
    except Exception as error:
        raise PipelineError(f"the Avro schema is none ({error}): correct it") from error
    return _avro(schema, {})


def _parse(text: str) -> Mapping[str, Any]:
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise PipelineError(f"the schema is not valid JSON ({error}): correct it") from None
    if not isinstance(schema, dict):
        raise PipelineError("the schema is not a JSON object: give one that describes a body")
    return schema


def _spark(kind: Any) -> pa.DataType:
    if isinstance(kind, str) and kind in _SPARK:
        return _SPARK[kind]
    if isinstance(kind, dict):
        if kind.get("type") == "struct" and kind.get("fields"):
            fields = [(field["name"], _spark(field["type"])) for field in kind["fields"]]
            return pa.struct(fields)
        if kind.get("type") == "array":
            return pa.list_(_spark(kind["elementType"]))
    known = ", ".join(_SPARK)
    raise PipelineError(
        f"the schema has the type {kind!r}, which bodies cannot be decoded to: use struct, array "
        f"or one of {known}"
    )


def _json(schema: Any, place: str) -> pa.DataType:
    kinds = _json_kind(schema)
    if kinds == "object" and schema.get("properties"):
        fields = schema["properties"].items()
        return pa.struct([(name, _json(inner, f"{name!r}")) for name, inner in fields])
    if kinds == "array" and isinstance(schema.get("items"), dict):
        return pa.list_(_json(schema["items"], f"the items of {place}"))
    if kinds == "string" and schema.get("format") == "date-time":
        return _TIME
    if isinstance(kinds, str) and kinds in _JSON:
        return _JSON[kinds]
    raise PipelineError(
        f"the schema says {kinds!r} for {place}, which has no column type: give an object with "
        f"properties, an array with items, or one of {', '.join(_JSON)}"
    )


def _json_kind(schema: Any) -> Any:
    """Return the type of *schema*, without null; a list if there are several."""
    kinds = schema.get("type", "object" if "properties" in schema else None)
    if not isinstance(kinds, list):
        return kinds
    kinds = [kind for kind in kinds if kind != "null"]
    return kinds[0] if len(kinds) == 1 else kinds


def _avro(schema: Any, named: dict[str, pa.DataType]) -> pa.DataType:
    if isinstance(schema, list):
        return _avro(_drop_null(schema), named)
    if isinstance(schema, str):
        if schema in named:
            return named[schema]
        schema = {"type": schema}
    if schema.get("logicalType") in _AVRO_LOGICAL:
        return _AVRO_LOGICAL[schema["logicalType"]]
    if schema.get("logicalType") == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    found = _avro_type(schema, named)
    if "name" in schema:
        named[schema["name"]] = found
    return found


def _drop_null(union: list[Any]) -> Any:
    kinds = [kind for kind in union if kind != "null"]
    if len(kinds) != 1:
        raise PipelineError(
            f"the Avro schema has the union {union!r}: only unions with null have a column type"
        )
    return kinds[0]


def _avro_type(schema: Any, named: dict[str, pa.DataType]) -> pa.DataType:
    kind = schema.get("type")
    if kind == "record" and schema.get("fields"):
        return pa.struct([(f["name"], _avro(f["type"], named)) for f in schema["fields"]])
    if kind == "array":
        return pa.list_(_avro(schema["items"], named))
    if kind == "map":
        return pa.map_(pa.string(), _avro(schema["values"], named))
    if kind == "fixed":
        return pa.binary(schema["size"])
    if kind in _AVRO:
        return _AVRO[kind]
    raise PipelineError(
        f"the Avro schema has the type {kind!r}, which has no column type: leave it out"
    )
