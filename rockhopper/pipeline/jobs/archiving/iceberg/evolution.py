"""Compute the fields that a table lacks for the columns of a run.

Fields can be added, also inside structs, and are null in older rows. A field cannot be removed or
change its type.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import types

from rockhopper.pipeline.errors import PipelineError

_AS_ICEBERG = {types.ByteType(): types.IntegerType(), types.ShortType(): types.IntegerType()}


@dataclass(frozen=True)
class Addition:
    """A missing field."""

    parent: str
    """Empty for a column; otherwise Iceberg's path of the struct."""
    name: str
    type: types.DataType


def find_additions(
    there: types.StructType, wanted: types.StructType, table: str, own: str = "value"
) -> list[Addition]:
    """Return the fields of *wanted* that *there* lacks; the only column that can be added is *own*.

    Raises:
        PipelineError: a field was removed or has another type, or the table is not an archive.
    """
    strange = [name for name in wanted.fieldNames() if name not in there.fieldNames()]
    if set(strange) - {own}:
        raise PipelineError(
            f"{table} has no column {strange[0]}, so archive has not made it: name a table "
            "that does not exist yet"
        )
    if strange:
        return [Addition("", own, wanted[own].dataType)]
    found: list[Addition] = []
    for field in wanted.fields:
        found += _between(there[field.name].dataType, field.dataType, field.name, table)
    return found


def _between(there: Any, wanted: Any, path: str, table: str) -> Iterator[Addition]:
    if isinstance(there, types.StructType) and isinstance(wanted, types.StructType):
        yield from _between_structs(there, wanted, path, table)
    elif isinstance(there, types.ArrayType) and isinstance(wanted, types.ArrayType):
        yield from _between(there.elementType, wanted.elementType, f"{path}.element", table)
    elif isinstance(there, types.MapType) and isinstance(wanted, types.MapType):
        yield from _between(there.valueType, wanted.valueType, f"{path}.value", table)
    elif there != _AS_ICEBERG.get(wanted, wanted):
        raise PipelineError(
            f"{path} is {there.simpleString()} in {table}, and {wanted.simpleString()} by the "
            "schema: a field keeps its type, so give a new one another name, or archive into "
            "another table"
        )


def _between_structs(
    there: types.StructType, wanted: types.StructType, path: str, table: str
) -> Iterator[Addition]:
    gone = [name for name in there.fieldNames() if name not in wanted.fieldNames()]
    if gone:
        raise PipelineError(
            f"{table} has the field {path}.{gone[0]}, which the schema does not name any more: "
            "fields can be added, but none can go, so keep it, or archive into another table"
        )
    for field in wanted.fields:
        if field.name in there.fieldNames():
            inner = there[field.name].dataType
            yield from _between(inner, field.dataType, f"{path}.{field.name}", table)
        else:
            yield Addition(path, field.name, field.dataType)
