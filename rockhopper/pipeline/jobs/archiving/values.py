"""Bodies as JSON or Avro: the column ``value``, a struct by one schema.

For JSON the schema is a JSON Schema object (``{"type": "object", "properties": …}``) or one of
Spark's (``df.schema.json()``); fields that it does not name are left out, missing ones are null.
For Avro it is the writer's schema, a record; bodies are single datums without a header.
For Avro from a registry (registry.py) it is the schema to read by, a record: each body names the
one that it was written with, and Avro's rules make the one of the other.

A body that does not decode, or leaves bytes over, becomes null and is counted.
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
from rockhopper.pipeline.options import nearest

FROM_REGISTRY = "confluent-avro"
FORMATS = ("json", "avro", FROM_REGISTRY)


@dataclass(frozen=True)
class ValueFormat:
    """How bodies are decoded; travels to the workers."""

    format: str
    schema: str
    """The schema as it was given: JSON text."""
    registry: str = ""
    """Where the schemas are that bodies were written with: an address or a directory."""

    def arrow_type(self) -> pa.DataType:
        """The type of the column. Raises PipelineError."""
        return json_type(self.schema) if self.format == "json" else avro_type(self.schema)

    def to_document(self) -> dict[str, str]:
        """As a manifest has it: equal for equal schemas, however they are spaced."""
        return {"format": self.format, "schema": json.dumps(json.loads(self.schema))}


def value_format(
    format_name: str, schema: str | None, registry: str = "", subject: str = ""
) -> ValueFormat:
    """The format *format_name* with a schema, its text.

    Without *schema* that is the newest of *subject* in the *registry*.

    Raises:
        PipelineError: no such format, or there is no schema that makes a column.
    """
    if format_name not in FORMATS:
        raise PipelineError(
            f"bodies cannot be decoded as {format_name!r}{nearest(format_name, FORMATS)}: "
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
    """Decodes bodies by one schema."""

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
        """The values of *bodies*, an Arrow array of binary, and how many did not decode.

        Raises:
            PipelineError: the registry cannot be asked.
        """
        values = self._decode(bodies)
        return values, values.null_count

    def _json(self, bodies: Any) -> Any:
        values = self._parse(bodies) if len(bodies) else pa.nulls(0, self._type)
        if values is not None:
            return values
        if len(bodies) == 1:
            return pa.nulls(1, self._type)
        # Somewhere in here is a body that is no JSON of this schema: look for it by halves.
        half = len(bodies) // 2
        return pa.concat_arrays([self._json(bodies.slice(0, half)), self._json(bodies.slice(half))])

    def _parse(self, bodies: Any) -> Any:
        """The values of all *bodies*, None if one of them does not fit."""
        from pyarrow import json as arrow_json

        # Every body stands in an object with its number, so that none can pass for two or none.
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
        except Exception:  # whatever arbitrary bytes make a decoder raise
            return None
        return value if stream.tell() == len(body) else None
