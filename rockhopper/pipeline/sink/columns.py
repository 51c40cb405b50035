"""The columns that a sink accepts, and their types."""

from typing import TYPE_CHECKING

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.schema import COLUMNS, OPTIONAL_COLUMNS, find_nearest_column
from rockhopper.pipeline.sink.rules import SinkRules

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_TEXT = ("string",)
_INTEGER = ("byte", "short", "integer", "long")
_TIME = ("timestamp", "timestamp_ntz", *_INTEGER)
SINK_COLUMNS: dict[str, tuple[str, ...]] = {
    "body": ("string", "binary"),
    "topic": _TEXT,
    "tags": _TEXT,
    "keys": ("string", "array<string>"),
    "properties": ("map<string,string>",),
    "rawProperties": ("binary",),
    "queueId": _INTEGER,
    "brokerName": _TEXT,
    "shardingKey": _TEXT,
    "delayTimeLevel": _INTEGER,
    "deliverTimestamp": _TIME,
    "flag": _INTEGER,
    "bornTimestamp": _TIME,
}
"""Name -> the Spark types that the column may have."""


_CONTRADICTING = (
    ("properties", "rawProperties"),
    ("queueId", "shardingKey"),
    ("delayTimeLevel", "deliverTimestamp"),
)


def check_columns(schema: "StructType", rules: SinkRules) -> None:
    """Check that a frame can be written.

    Raises:
        PipelineError: a column is unknown or has a wrong type, there is no body, or neither a
            column nor an option sets the topic.
    """
    names = schema.fieldNames()
    _check_types(schema)
    for name in names:
        if names.count(name) > 1:
            raise PipelineError(f"there are several columns {name!r}: drop or rename one of them")
    if "body" not in names:
        raise PipelineError(
            "there is no column 'body', which holds what is sent: make one, for example with "
            ".select(to_json(struct('*')).alias('body'))"
        )
    if "topic" not in names and not rules.topic:
        raise PipelineError(
            "nothing says which topic to write to: set the option topic, or add a column 'topic'"
        )
    for one, other in _CONTRADICTING:
        if {one, other} <= set(names):
            raise PipelineError(
                f"the columns {one!r} and {other!r} contradict each other: drop one"
            )
    if rules.is_exactly_once and "brokerName" in names:
        raise PipelineError(
            "delivery=exactly-once publishes a whole batch on one broker: drop the column "
            "'brokerName', and name the broker by the option broker if it matters"
        )


def _check_types(schema: "StructType") -> None:
    for field in schema.fields:
        allowed = SINK_COLUMNS.get(field.name)
        if allowed is None:
            raise PipelineError(_unknown(field.name))
        kind = _kind(field.dataType)
        if kind not in allowed:
            raise PipelineError(
                f"the column {field.name!r} is of type {kind}: cast it to {_listed(allowed)}"
            )


def _unknown(name: str) -> str:
    listed = ", ".join(SINK_COLUMNS)
    if name in COLUMNS or name in OPTIONAL_COLUMNS:
        return f"the column {name!r} is one that only brokers fill: drop it; a sink takes {listed}"
    return (
        f"a sink has no column {name!r}{find_nearest_column(name, SINK_COLUMNS)}: drop or rename "
        f"it; it takes {listed}"
    )


def _kind(data_type: object) -> str:
    from pyspark.sql import types

    if isinstance(data_type, types.MapType):
        return f"map<{_kind(data_type.keyType)},{_kind(data_type.valueType)}>"
    if isinstance(data_type, types.ArrayType):
        return f"array<{_kind(data_type.elementType)}>"
    if isinstance(data_type, types.StringType):
        return "string"
    return str(getattr(data_type, "typeName", lambda: data_type)())


def _listed(kinds: tuple[str, ...]) -> str:
    return " or ".join(kinds) if len(kinds) < 3 else f"{', '.join(kinds[:-1])} or {kinds[-1]}"
