"""The work of a search task: search a part of one source, return the matches."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rockhopper.pipeline.decoder import candidates
from rockhopper.pipeline.jobs.archiving.files import files_at
from rockhopper.pipeline.jobs.archiving.manifest import ArchivedFile
from rockhopper.pipeline.jobs.searching.condition import Condition
from rockhopper.pipeline.jobs.tasks import SMALL_BYTES
from rockhopper.pipeline.schema import COLUMNS
from rockhopper.pipeline.store_source.pieces import FilePiece
from rockhopper.pipeline.store_source.reading import ScanReading
from rockhopper.pipeline.store_source.rules import StoreReadRules
from rockhopper.pipeline.store_source.scan import DamagedRange, scan
from rockhopper.pipeline.where import parse_where
from rockhopper.protocol.calendar_times import CALENDAR_MS_MAX, CALENDAR_MS_MIN
from rockhopper.protocol.store.record_head import RECORD_SIZE_BYTES_MIN

_SAMPLED_QUEUES = 8

Row = dict[str, Any]
"""A message: the columns of the sources, and ``place``."""


@dataclass(slots=True)
class SearchMatches:
    """The result of a task; beyond the limit, it keeps the first matches by store time."""

    rows: list[Row] = field(default_factory=list)
    match_count: int = 0
    looked_at_count: int = 0
    skipped: list[str] = field(default_factory=list)
    """Damaged places and deleted files."""

    def append_rows(self, rows: list[Row], limit: int) -> None:
        """Add matches."""
        self.match_count += len(rows)
        self.rows += rows
        if len(self.rows) > 4 * limit:
            self.cut(limit)

    def cut(self, limit: int) -> None:
        """Keep the first *limit* matches."""
        self.rows.sort(key=order)
        del self.rows[limit:]


def order(row: Row) -> tuple[Any, ...]:
    """Return the sort key of results."""
    return row["storeTimestamp"], row["topic"], row["queueId"], row["queueOffset"]


@dataclass(frozen=True, slots=True)
class StoreTask:
    """Pieces of a store's log."""

    pieces: tuple[FilePiece, ...]
    rules: StoreReadRules
    deleted_topics: Mapping[str, int]
    condition: Condition
    limit: int


def search_store(task: StoreTask) -> SearchMatches:
    """Search the bytes of records first, so that few records must be decoded."""
    found = SearchMatches()
    reading = ScanReading(task.rules, task.deleted_topics)
    needles = task.condition.needles
    for piece in task.pieces:
        try:
            for part in scan(piece):
                if isinstance(part, DamagedRange):
                    found.skipped.append(f"{part.path}: {part.reason} at {part.start}")
                    continue
                found.looked_at_count += len(part)
                chosen = candidates(part, needles)
                if chosen is None:
                    continue
                for batch in reading.messages(chosen):
                    matches = task.condition.matching(batch)
                    found.append_rows(list(_rows(matches, piece)), task.limit)
        except FileNotFoundError:
            found.skipped.append(f"{piece.path}: expired")
    found.cut(task.limit)
    return found


def _rows(batch: Any, piece: FilePiece) -> Iterator[Row]:
    for row in batch.to_pylist():
        row["place"] = f"{piece.path} at byte {row['physOffset'] - piece.base_offset}"
        yield row


@dataclass(frozen=True)
class NetworkTask:
    """A partition of the source ``rocketmq``."""

    reader: Any
    partition: Any
    condition: Condition
    limit: int


def network_bytes(rules: Any, partitions: Sequence[Any]) -> int:
    """Estimate the bytes in the ranges of *partitions*, by samples from the longest queues."""
    from rockhopper.pipeline.network.discovery import Discovery

    waiting = {each.queue: each for partition in partitions for each in partition.ranges}
    ranges = sorted((each for each in waiting.values() if each.count), key=lambda one: -one.count)
    count: int = sum(each.count for partition in partitions for each in partition.ranges)
    if not ranges or count * RECORD_SIZE_BYTES_MIN > SMALL_BYTES:
        return count * RECORD_SIZE_BYTES_MIN
    starts = {each.queue: each.begin for each in ranges[:_SAMPLED_QUEUES]}
    sizes = Discovery(rules).record_bytes(starts).values()
    return int(count * (sum(sizes) / len(sizes) if sizes else RECORD_SIZE_BYTES_MIN))


def search_network(task: NetworkTask) -> SearchMatches:
    """Read the partition and return the matches."""
    found = SearchMatches()
    for batch in task.reader.read(task.partition):
        found.looked_at_count += batch.num_rows
        rows = task.condition.matching(batch).to_pylist()
        for row in rows:
            row["place"] = f"broker {row['brokerName']}"
        found.append_rows(rows, task.limit)
    found.cut(task.limit)
    return found


@dataclass(frozen=True, slots=True)
class ArchiveTask:
    """A file of an archive."""

    location: str
    file: ArchivedFile
    condition: Condition
    limit: int


def search_archive(task: ArchiveTask) -> SearchMatches:
    """Search the file; at first read only the columns that the condition needs."""
    import pyarrow.parquet as pq

    found = SearchMatches()
    where = f"{task.location.rstrip('/')}/{task.file.path}"
    try:
        opened = files_at(task.location).open_input(task.file.path)
        with opened as source, pq.ParquetFile(source) as parquet:
            for group in range(parquet.num_row_groups):
                _search_group(parquet, group, task, where, found)
    except (OSError, pa.ArrowException) as error:
        found.skipped.append(f"{where}: {str(error).splitlines()[0]}")
    found.cut(task.limit)
    return found


def _search_group(
    parquet: Any, group: int, task: ArchiveTask, where: str, found: SearchMatches
) -> None:
    names = [name for name in COLUMNS if name != "topic"]
    cheap = _list_needed(task.condition)
    first = parquet.read_row_group(group, columns=cheap)
    found.looked_at_count += first.num_rows
    numbered = _add_topic(first, task.file.topic).append_column(
        "row", pa.array(np.arange(first.num_rows))
    )
    matches = task.condition.matching(numbered.combine_chunks())
    if not matches.num_rows:
        return
    whole = _add_topic(parquet.read_row_group(group, columns=names), task.file.topic)
    rows = _make_readable(whole.take(matches.column("row")).select(COLUMNS)).to_pylist()
    for row in rows:
        row["place"] = where
    found.append_rows(rows, task.limit)


def _make_readable(table: Any) -> Any:
    """Clip times to the range of Python's dates: archives of old releases exceed it."""
    for name in ("storeTimestamp", "bornTimestamp"):
        column = table[name]
        us = column.cast(pa.int64())
        us = pc.min_element_wise(us, CALENDAR_MS_MAX * 1000, skip_nulls=False)
        us = pc.max_element_wise(us, CALENDAR_MS_MIN * 1000, skip_nulls=False)
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(name), us.cast(column.type))
    return table


def _list_needed(condition: Condition) -> list[str]:
    """Return the columns that a condition needs."""
    names = ["storeTimestamp"]
    if condition.key is not None:
        names += ["keys", "msgId"]
    if condition.tag is not None:
        names.append("tags")
    if condition.contains is not None:
        names.append("body")
    if condition.sql92 is not None:
        names.append("properties")
    where = None if condition.where is None else parse_where(condition.where)
    if where is not None:
        names += sorted(where.columns - {"topic", *names})
    return names


def _add_topic(table: Any, topic: str) -> Any:
    return table.append_column("topic", pa.repeat(pa.scalar(topic), table.num_rows))
