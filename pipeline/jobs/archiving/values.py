"""Bodies as JSON or Avro: the column ``value``, a struct by a schema that somebody gives.

For JSON the schema is a JSON Schema object (``{"type": "object", "properties": …}``) or one of
Spark's (``df.schema.json()``); fields that it does not name are left out, missing ones are null.
For Avro it is the writer's schema, a record; bodies are single datums without a header.

A body that does not decode, or leaves bytes over, becomes null and is counted.
"""

import io
import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.value_schema import avro_type, json_type
from rockhopper.pipeline.options import nearest

FORMATS = ("json", "avro")


@dataclass(frozen=True)
class ValueFormat:
    """How bodies are decoded; travels to the workers."""

    format: str
    schema: str
    """The schema as it was given: JSON text."""

    def arrow_type(self) -> pa.DataType:
        """The type of the column. Raises PipelineError."""
        return json_type(self.schema) if self.format == "json" else avro_type(self.schema)

    def to_document(self) -> dict[str, str]:
        """As a manifest has it: equal for equal schemas, however they are spaced."""
        return {"format": self.format, "schema": json.dumps(json.loads(self.schema))}


def value_format(format_name: str, schema: str) -> ValueFormat:
    """The format *format_name* with a schema, its text. Raises PipelineError."""
    if format_name not in FORMATS:
        raise PipelineError(
            f"bodies cannot be decoded as {format_name!r}{nearest(format_name, FORMATS)}: "
            f"choose {' or '.join(FORMATS)}"
        )
    chosen = ValueFormat(format_name, schema)
    chosen.arrow_type()
    return chosen


class ValueDecoder:
    """Decodes bodies by one schema."""

    def __init__(self, value: ValueFormat) -> None:
        self._type = value.arrow_type()
        self._decode = self._json
        if value.format == "avro":
            import fastavro

            self._avro_schema = fastavro.parse_schema(json.loads(value.schema))
            self._decode = self._avro

    def decode(self, bodies: Any) -> tuple[Any, int]:
        """The values of *bodies*, an Arrow array of binary, and how many did not decode."""
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

        stream = io.BytesIO(body)
        try:
            value = fastavro.schemaless_reader(stream, self._avro_schema, None)
        except Exception:  # whatever arbitrary bytes make a decoder raise
            return None
        return value if stream.tell() == len(body) else None
