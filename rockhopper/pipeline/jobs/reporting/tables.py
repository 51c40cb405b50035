"""The tables of a report as files: Parquet for programs, CSV for spreadsheets."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rockhopper.pipeline.jobs.reporting.tallies import HOUR_MS, Tables

PARQUET, CSV = "parquet", "csv"


def prepare_for_files(counted: Tables) -> Tables:
    """Return the tables for the files: sorted, and with time columns."""
    times = counted["times"]
    hours = pc.multiply(pc.divide(times["timeMs"], HOUR_MS), HOUR_MS)
    times = times.set_column(times.schema.get_field_index("timeMs"), "hour", hours)
    by_hour = times.group_by(["hour", "topic"]).aggregate([("messages", "sum"), ("bytes", "sum")])
    by_hour = by_hour.rename_columns(["hour", "topic", "messages", "bytes"])
    queues = counted["queues"]
    return {
        "hours": _as_time(by_hour.sort_by([("hour", "ascending"), ("topic", "ascending")]), "hour"),
        "topics": _sort_most_first(_by(counted["queues"], "topic")),
        "tags": _sort_most_first(counted["tags"]),
        "sizes": counted["sizes"].sort_by([("topic", "ascending"), ("size", "ascending")]),
        "producers": _sort_most_first(counted["producers"]),
        "queues": _as_time(
            queues.rename_columns([n.replace("lastMs", "lastStored") for n in queues.column_names]),
            "lastStored",
        ).sort_by([(name, "ascending") for name in ("topic", "broker", "queueId")]),
    }


def _by(table: pa.Table, name: str) -> pa.Table:
    summed = table.group_by([name]).aggregate([("messages", "sum"), ("bytes", "sum")])
    return summed.rename_columns([name, "messages", "bytes"])


def _sort_most_first(table: pa.Table) -> pa.Table:
    return table.sort_by([("messages", "descending"), ("topic", "ascending")])


def _as_time(table: pa.Table, name: str) -> pa.Table:
    at = table.schema.get_field_index(name)
    return table.set_column(at, name, table[name].cast(pa.timestamp("ms", tz="UTC")))


def write_tables(directory: Path, tables: Mapping[str, pa.Table], formats: Sequence[str]) -> None:
    """Write each table to ``NAME.parquet`` and ``NAME.csv``, replacing existing files."""
    import pyarrow.csv
    import pyarrow.parquet as pq

    writers: dict[str, Callable[[pa.Table, Any], None]] = {
        PARQUET: pq.write_table,
        CSV: lambda table, file: pyarrow.csv.write_csv(_escape_formulas(table), file),
    }
    directory.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        for kind in formats:
            replace(directory / f"{name}.{kind}", partial(writers[kind], table))


def _escape_formulas(table: pa.Table) -> pa.Table:
    """Return *table* for spreadsheets: an apostrophe precedes texts that look like a formula.

    Anyone can choose the name of a topic, a tag or a host, such as ``=HYPERLINK(...)``.
    """
    for at, field in enumerate(table.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            texts = pc.replace_substring_regex(table[field.name], r"^([\s]*[=+\-@])", r"'\1")
            texts = pc.replace_substring_regex(texts, r"^([\t\r\n])", r"'\1")
            table = table.set_column(at, field.name, texts)
    return table


def replace(path: Path, write: Callable[[Any], None]) -> None:
    """Write a file atomically, so that no reader sees half of it."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(aside, "wb") as file:
            write(file)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
