"""The columns of messages: their names, their order, and their types in Arrow and in Spark.

Both sources have the same columns. Spark does not prune the columns of a Python source, so readers
choose columns by options. The Arrow types are exactly those that Spark requires of a batch: the
same order, ``binary`` rather than ``large_binary``, no dictionaries, microseconds in UTC.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.options import read_boolean, suggest_nearest

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_PROPERTIES = pa.map_(pa.string(), pa.string())

_TYPES: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "brokerName": pa.string(),
    "queueId": pa.int32(),
    "queueOffset": pa.int64(),
    "msgId": pa.string(),
    "offsetMsgId": pa.string(),
    "body": pa.binary(),
    "tags": pa.string(),
    "keys": pa.string(),
    "properties": _PROPERTIES,
    "flag": pa.int32(),
    "sysFlag": pa.int32(),
    "bornTimestamp": _TIMESTAMP,
    "storeTimestamp": _TIMESTAMP,
    "bornHost": pa.string(),
    "storeHost": pa.string(),
    "reconsumeTimes": pa.int32(),
    "physOffset": pa.int64(),
    "bodyCrc": pa.int32(),
    "preparedTransactionOffset": pa.int64(),
    "rawProperties": pa.binary(),
    "crcOk": pa.bool_(),
    "corrupt": pa.string(),
}

OPTIONAL_COLUMNS = ("rawProperties", "crcOk", "corrupt")
"""Columns on request only.

``rawProperties`` holds the properties as stored. ``crcOk`` is true if the body has its stored CRC
(null for an empty body). ``corrupt`` says what is wrong, in the row of a damaged place of a store.
"""

COLUMNS = tuple(name for name in _TYPES if name not in OPTIONAL_COLUMNS)
"""All other columns, in this order: the result of requesting all columns."""

_DEAR_COLUMNS = ("msgId", "offsetMsgId", "properties", "bornHost", "storeHost")
_RARE_COLUMNS = (
    "flag",
    "sysFlag",
    "reconsumeTimes",
    "physOffset",
    "bodyCrc",
    "preparedTransactionOffset",
)
DEFAULT_COLUMNS = tuple(
    name for name in COLUMNS if name not in _DEAR_COLUMNS and name not in _RARE_COLUMNS
)
"""The columns without any option: those of Kafka's source, and others that are as cheap."""

ALL_COLUMNS = ("*", "all")
"""The values of the option ``columns`` that mean COLUMNS."""

_NAMED_ELSEWHERE = {
    "id": "msgId",
    "messageid": "msgId",
    "broker": "brokerName",
    "headers": "properties",
    "key": "keys",
    "offset": "queueOffset",
    "partition": "queueId",
    "queue": "queueId",
    "tag": "tags",
    "timestamp": "storeTimestamp",
    "value": "body",
}
"""The names of these columns in other sources, mostly in Kafka's."""

COLUMN_OPTIONS = ("columns", "includeBody", "includeProperties", "includeRawProperties")
"""The options that ``choose_columns`` reads, besides verifyCrc and corruptRecords."""


def arrow_schema(columns: Iterable[str] = COLUMNS) -> pa.Schema:
    """Return the Arrow schema of batches with *columns*."""
    return pa.schema([pa.field(name, _TYPES[name]) for name in columns])


def spark_schema(columns: Iterable[str] = COLUMNS) -> "StructType":
    """Return Spark's schema of frames with *columns*; every column is nullable."""
    from pyspark.sql import types

    spark_types: dict[pa.DataType, types.DataType] = {
        pa.string(): types.StringType(),
        pa.binary(): types.BinaryType(),
        pa.int32(): types.IntegerType(),
        pa.int64(): types.LongType(),
        pa.bool_(): types.BooleanType(),
        _TIMESTAMP: types.TimestampType(),
        _PROPERTIES: types.MapType(types.StringType(), types.StringType()),
    }
    return types.StructType(
        [types.StructField(name, spark_types[_TYPES[name]]) for name in columns]
    )


def find_nearest_column(name: str, known: Iterable[str]) -> str:
    """Like ``suggest_nearest`` for columns, but also accept their names in other sources."""
    meant = _NAMED_ELSEWHERE.get(name.lower(), name)
    return suggest_nearest(meant if meant in known else name, known)


def choose_columns(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns that a source's options choose; option names are case-insensitive.

    Raises:
        PipelineError: a column is unknown, no column is chosen, or options contradict each other
            or are not boolean.
    """
    given = {name.lower(): str(value).strip() for name, value in options.items()}
    has_crc = given.get("verifycrc", "").lower() == "flag"
    has_corrupt = given.get("corruptrecords", "").lower() == "column"
    switches = {
        name: read_boolean(option, given[option.lower()])
        for name, option in (
            ("body", "includeBody"),
            ("properties", "includeProperties"),
            ("rawProperties", "includeRawProperties"),
        )
        if given.get(option.lower())
    }
    named = given.get("columns", "")
    if named and named.lower() not in ALL_COLUMNS:
        chosen = _named_columns(named)
        _refuse_contradictions(chosen, switches, has_crc, has_corrupt)
    else:
        chosen = _switched_columns(COLUMNS if named else DEFAULT_COLUMNS, switches, has_corrupt)
    chosen += [
        name
        for name, wanted in (("crcOk", has_crc), ("corrupt", has_corrupt))
        if wanted and name not in chosen
    ]
    return tuple(chosen)


def _switched_columns(
    usual: Collection[str], switches: Mapping[str, bool], has_corrupt: bool
) -> list[str]:
    wanted = {*usual}
    if has_corrupt:
        wanted.add("physOffset")  # the place of the damage
    chosen = [name for name in COLUMNS if switches.get(name, name in wanted)]
    if switches.get("rawProperties", False):
        chosen.append("rawProperties")
    return chosen


def _named_columns(named: str) -> list[str]:
    spelled = {name.lower(): name for name in _TYPES}
    chosen: list[str] = []
    for part in (part.strip() for part in named.split(",")):
        name = spelled.get(part.lower())
        if name is None:
            raise PipelineError(
                f"there is no column {part!r}{find_nearest_column(part, _TYPES)}: "
                f"the option columns takes names among {', '.join(_TYPES)}"
            )
        if name in chosen:
            raise PipelineError(f"the option columns names {name!r} twice: leave one out")
        chosen.append(name)
    return chosen


def _refuse_contradictions(
    chosen: list[str], switches: Mapping[str, bool], has_crc: bool, has_corrupt: bool
) -> None:
    for name, wanted in switches.items():
        if wanted != (name in chosen):
            option = f"include{name[0].upper()}{name[1:]}"
            raise PipelineError(
                f"the options columns and {option}={str(wanted).lower()} contradict each other: "
                f"{'add' if wanted else 'take'} {name!r} {'to' if wanted else 'out of'} columns, "
                f"or leave {option} out"
            )
    if "crcOk" in chosen and not has_crc:
        raise PipelineError("the column 'crcOk' needs the option verifyCrc=flag: set it")
    if "corrupt" in chosen and not has_corrupt:
        raise PipelineError("the column 'corrupt' needs the option corruptRecords=column: set it")
