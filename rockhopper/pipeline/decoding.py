"""Decode bodies in a frame as JSON or Avro: an added column, for batches and streams."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.values import ValueDecoder, ValueFormat, value_format
from rockhopper.pipeline.options import suggest_nearest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_VALUE = "value"
_PLACE = ("topic", "brokerName", "queueId", "queueOffset")


def decoded(
    frame: "DataFrame",
    format_name: str,
    schema: str | None = None,
    *,
    registry: str = "",
    subject: str = "",
    body: str = "body",
    bad_values: str = "null",
) -> "DataFrame":
    """Add the column ``value`` to *frame*: the decoded bodies, as a struct.

    *format_name* is ``json``, ``avro`` or ``confluent-avro``. *schema* is the text of the schema,
    as the job ``archive`` takes it (docs/jobs.md). For ``confluent-avro``, *registry* is an address
    or a directory. Without *schema*, the newest schema of *subject* at the time of this call
    applies. A body that does not decode becomes null; with *bad_values* ``fail`` it ends the query.

    Raises:
        PipelineError: the arguments are invalid, or there is no schema.
    """
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField, StructType

    if body not in frame.columns:
        raise PipelineError(
            f"the frame has no column {body!r}{suggest_nearest(body, frame.columns)}: keep it, or "
            "name another with body="
        )
    if _VALUE in frame.columns:
        raise PipelineError(f"the frame has a column {_VALUE!r} already: rename it")
    if schema is not None and not isinstance(schema, str):
        raise PipelineError("the schema is no text: give json.dumps of it")
    if bad_values not in ("null", "fail"):
        raise PipelineError(f"bad_values is {bad_values!r}: choose null or fail")
    chosen = value_format(format_name, schema, registry, subject)
    added = StructField(_VALUE, from_arrow_type(chosen.arrow_type()))
    work = _DecodeFunction(chosen, body, refuses=bad_values == "fail")
    return frame.mapInArrow(work, StructType([*frame.schema.fields, added]))


class _DecodeFunction:
    """The function that runs on the workers; Spark serialises it."""

    def __init__(self, value: ValueFormat, body: str, *, refuses: bool) -> None:
        self._value = value
        self._body = body
        self._refuses = refuses

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = ValueDecoder(self._value)
        for batch in batches:
            bodies: Any = batch.column(self._body).cast(pa.binary())
            values, bad_count = decoder.decode(bodies)
            if self._refuses and bad_count:
                first = pc.index(pc.is_null(values), True).as_py()
                raise PipelineError(
                    f"a body does not decode as {self._value.format}: {_place(batch, first)}; "
                    "set bad_values to null to continue without it, or correct the schema"
                )
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, values], names=[*batch.schema.names, _VALUE]
            )


def _place(batch: pa.RecordBatch, row: int) -> str:
    names = [name for name in _PLACE if name in batch.schema.names]
    return ", ".join(f"{name} {batch.column(name)[row]}" for name in names) or f"row {row}"
