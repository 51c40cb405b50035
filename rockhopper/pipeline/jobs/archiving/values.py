"""Decode bodies as JSON or Avro: the column ``value``, a struct with one schema.

For JSON, the schema is a JSON Schema object (``{"type": "object", "properties": …}``) or a Spark
schema (``df.schema.json()``). Fields that it does not name are left out, and missing ones are null.

For Avro, it is the writer's schema, a record; bodies are single datums without a header.

For Avro from a registry (registry.py), it is the reader's schema, a record. Each body names its
writer's schema, and Avro's resolution rules convert the value.

A body that does not decode, or has bytes left over, becomes null and is counted.
"""

import io
import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.registry import registry_at, split
from rockhopper.pipeline.jobs.archiving.value_schema import avro_type, check_names, json_type
from rockhopper.pipeline.options import suggest_nearest

FROM_REGISTRY = "confluent-avro"
FORMATS = ("json", "avro", FROM_REGISTRY)


@dataclass(frozen=True)
class ValueFormat:
    """The format of bodies; Spark sends it to the workers."""

    format: str
    schema: str
    """The schema as given: JSON text."""
    registry: str = ""
    """The registry of the writers' schemas: an address or a directory."""

    def arrow_type(self) -> pa.DataType:
        """Return the type of the column. Raises PipelineError."""
        return json_type(self.schema) if self.format == "json" else avro_type(self.schema)

    def to_document(self) -> dict[str, str]:
        """Return the manifest entry; equal schemas give equal entries, whatever their spacing."""
        return {"format": self.format, "schema": json.dumps(json.loads(self.schema))}


def value_format(
    format_name: str, schema: str | None, registry: str = "", subject: str = ""
) -> ValueFormat:
    """Return the format *format_name* with *schema*, a text.

    Without *schema*, use the newest schema of *subject* in the *registry*.

    Raises:
        PipelineError: the format is unknown, or no schema gives a column.
    """
    if format_name not in FORMATS:
        raise PipelineError(
            f"bodies cannot be decoded as {format_name!r}{suggest_nearest(format_name, FORMATS)}: "
            f"choose {' or '.join(FORMATS)}"
        )
    if bool(registry) != (format_name == FROM_REGISTRY):
        raise PipelineError(
            f"bodies in {FROM_REGISTRY} need the registry of their schemas, an address or a "
            "directory, and others have none: give both or neither"
        )
    if schema is None:
        if not registry:
            raise PipelineError(f"bodies in {format_name} need a schema to be decoded: give one")
        schema = registry_at(registry).newest(subject)
    chosen = ValueFormat(format_name, schema, registry)
    check_names(chosen.arrow_type())
    return chosen


class ValueDecoder:
    """Decodes bodies with one schema."""

    def __init__(self, value: ValueFormat) -> None:
        self._type = value.arrow_type()
        self._decode = self._json
        if value.format != "json":
            import fastavro

            self._avro_schema = fastavro.parse_schema(json.loads(value.schema))
            self._decode = self._avro
        if value.format == FROM_REGISTRY and not value.registry:
            raise PipelineError(
                f"these bodies are in {FROM_REGISTRY}: say again where the registry of their "
                "schemas is"
            )
        self._registry = registry_at(value.registry) if value.registry else None

    def decode(self, bodies: Any) -> tuple[Any, int]:
        """Return the values of *bodies*, a binary Arrow array, and the number that did not decode.

        Raises:
            PipelineError: the registry cannot answer.
        """
        values = self._decode(bodies)
        return values, values.null_count

    def _json(self, bodies: Any) -> Any:
        values = self._parse(bodies) if len(bodies) else pa.nulls(0, self._type)
        if values is not None:
            return values
        if len(bodies) == 1:
            return pa.nulls(1, self._type)
        # One of these bodies does not match the schema: split in halves to find it.
        half = len(bodies) // 2
        return pa.concat_arrays([self._json(bodies.slice(0, half)), self._json(bodies.slice(half))])

    def _parse(self, bodies: Any) -> Any:
        """Return the values of all *bodies*, None if one of them does not fit."""
        from pyarrow import json as arrow_json

        # Wrap each body in a numbered object, so that a body cannot count as two or as none.
        numbers = pa.array([b'{"n":%d,"v":' % n for n in range(len(bodies))], pa.binary())
        filled = pc.fill_null(bodies, b"null")
        lines = pc.binary_join_element_wise(numbers, filled, pa.scalar(b"}\n"), pa.scalar(b""))
        text = b"".join(lines.to_pylist())
        schema = pa.schema([("n", pa.int64()), ("v", self._type)])
        try:
            table = arrow_json.read_json(
                pa.BufferReader(text),
                read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 64),
                parse_options=arrow_json.ParseOptions(
                    explicit_schema=schema,
                    newlines_in_values=True,
                    unexpected_field_behavior="ignore",
                ),
            )
        except pa.ArrowException:
            return None
        if table.num_rows != len(bodies) or table["n"].to_pylist() != list(range(len(bodies))):
            return None
        return table["v"].combine_chunks()

    def _avro(self, bodies: Any) -> Any:
        return self._array(
            [None if body is None else self._read(body) for body in bodies.to_pylist()]
        )

    def _array(self, values: list[Any]) -> Any:
        try:
            return pa.array(values, self._type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            if len(values) == 1:
                return pa.nulls(1, self._type)
            return pa.concat_arrays([self._array([value]) for value in values])

    def _read(self, body: bytes) -> Any:
        import fastavro

        written_by, read_by, start = self._avro_schema, None, 0
        if self._registry is not None:
            found = split(body)
            if found is None or (schema := self._registry.schema(found[0])) is None:
                return None
            written_by, read_by, start = schema, self._avro_schema, found[1]
        stream = io.BytesIO(body)
        stream.seek(start)
        try:
            value = fastavro.schemaless_reader(stream, written_by, read_by)
        except Exception:  # arbitrary bytes can make a decoder raise anything
            return None
        return value if stream.tell() == len(body) else None
