"""The messages of a report: from a store, from topics over the network, or from an archive."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.tasks import size_of

if TYPE_CHECKING:
    from rockhopper.pipeline.jobs.archiving.manifest import ArchivedFile

COLUMNS = (
    "topic",
    "brokerName",
    "queueId",
    "queueOffset",
    "msgId",
    "body",
    "tags",
    "storeTimestamp",
    "bornHost",
)
"""The columns that are counted; for bodies only the size."""

_MESSAGE_BYTES = 500
"""An estimate: brokers report only counts."""


@dataclass(frozen=True)
class Chosen:
    """The selected messages: from ``start_ms`` up to but not including ``end_ms``."""

    topics: tuple[str, ...] = ()
    start_ms: int | None = None
    end_ms: int | None = None


@dataclass(frozen=True)
class SourceTask:
    """One partition of a source; Spark sends it to a worker."""

    reader: Any
    partition: Any

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the messages of the partition."""
        yield from self.reader.read(self.partition)


@dataclass(frozen=True)
class ArchiveFilesTask:
    """Some files of an archive, each with its topic; Spark sends it to a worker."""

    location: str
    files: tuple[tuple[str, str], ...]
    chosen: Chosen

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the messages of the files."""
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        from rockhopper.pipeline.jobs.archiving.files import files_at, name_unreadable
        from rockhopper.pipeline.schema import arrow_schema

        archive = files_at(self.location)
        low, high = (_timestamp(ms) for ms in (self.chosen.start_ms, self.chosen.end_ms))
        schema = arrow_schema(COLUMNS)
        for name, topic in self.files:
            where = f"{self.location}/{name}"
            with name_unreadable(where), archive.open_input(name) as file:
                parquet = pq.ParquetFile(file)
                there = set(parquet.schema_arrow.names)
                wanted = [column for column in COLUMNS if column in there]
                for batch in parquet.iter_batches(10_000, columns=wanted):
                    times = batch.column("storeTimestamp")
                    if low is not None:
                        batch = batch.filter(pc.greater_equal(times, low))
                    if high is not None:
                        times = batch.column("storeTimestamp")
                        batch = batch.filter(pc.less(times, high))
                    yield _complete(batch, schema, topic)


Task = SourceTask | ArchiveFilesTask


class ReportTasks(NamedTuple):
    """The tasks, and their approximate size."""

    tasks: list[Task]
    size_bytes: int


def store_work(path: str, chosen: Chosen) -> ReportTasks:
    """Return the tasks that read a store directory. Raises PipelineError."""
    from rockhopper.pipeline.store_source.rules import read_rules
    from rockhopper.pipeline.store_source.source import StoreReader

    options = {
        "path": path,
        "columns": ",".join(COLUMNS),
        "decompress": "false",
        "topic": ",".join(chosen.topics),
        **_times(chosen),
    }
    reader = StoreReader(read_rules(_given(options)))
    partitions: list[Any] = list(reader.partitions())
    return ReportTasks(
        [SourceTask(reader, each) for each in partitions],
        size_of(each.pieces for each in partitions),
    )


def network_work(nameserver: str, chosen: Chosen, parallelism: int) -> ReportTasks:
    """Return the tasks that read the current messages of brokers. Raises PipelineError."""
    from rockhopper.pipeline.network.rules import read_rules
    from rockhopper.pipeline.network.source import NetworkReader

    options = {
        "nameServer": nameserver,
        "columns": ",".join(COLUMNS),
        "decompress": "false",
        "failOnDataLoss": "false",
        "minPartitions": str(parallelism),
        "subscribe": ",".join(chosen.topics),
        "subscribePattern": "" if chosen.topics else ".*",
        **_times(chosen),
    }
    reader = NetworkReader(read_rules(_given(options), streaming=False))
    partitions: list[Any] = list(reader.partitions())
    messages = sum(wanted.count for each in partitions for wanted in each.ranges)
    return ReportTasks([SourceTask(reader, each) for each in partitions], messages * _MESSAGE_BYTES)


def archive_work(location: str, chosen: Chosen, parallelism: int) -> ReportTasks:
    """Return the tasks that read an archive, without files that contain no selected messages.

    Raises:
        PipelineError: there is no archive, or it is damaged.
    """
    from rockhopper.pipeline.jobs.archiving.catalog import Catalog
    from rockhopper.pipeline.jobs.archiving.files import files_at

    catalog = Catalog(files_at(location))
    if catalog.current() is None:
        raise PipelineError(
            f"there is no archive in {location}: make one with "
            "python -m rockhopper.pipeline archive, or name another directory"
        )
    wanted = _wanted_files(catalog.archived_files(), chosen)
    shares: list[list[tuple[str, str]]] = [[] for _ in range(parallelism * 2)]
    for number, file in enumerate(sorted(wanted, key=lambda each: -each.bytes)):
        shares[number % len(shares)].append((file.path, file.topic))
    tasks: list[Task] = [
        ArchiveFilesTask(location, tuple(share), chosen) for share in shares if share
    ]
    return ReportTasks(tasks, sum(file.bytes for file in wanted))


def _wanted_files(files: "Iterable[ArchivedFile]", chosen: Chosen) -> "list[ArchivedFile]":
    low = chosen.start_ms if chosen.start_ms is not None else -(1 << 63)
    high = chosen.end_ms if chosen.end_ms is not None else (1 << 63) - 1
    return [
        file
        for file in files
        if (not chosen.topics or file.topic in chosen.topics)
        and file.max_store_ms >= low
        and file.min_store_ms < high
    ]


def _times(chosen: Chosen) -> dict[str, str]:
    return {
        "startingTimestamp": "" if chosen.start_ms is None else str(chosen.start_ms),
        "endingTimestamp": "" if chosen.end_ms is None else str(chosen.end_ms),
    }


def _given(options: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if value}


def _timestamp(ms: int | None) -> Any:
    return None if ms is None else pa.scalar(ms * 1000, pa.timestamp("us", tz="UTC"))


def _complete(batch: pa.RecordBatch, schema: pa.Schema, topic: str) -> pa.RecordBatch:
    """Return *batch* with all COLUMNS: only the directory name may hold the topic."""
    columns: list[Any] = []
    for field in schema:
        if field.name == "topic":
            columns.append(pa.array([topic] * batch.num_rows, field.type))
        elif field.name in batch.schema.names:
            columns.append(batch.column(field.name).cast(field.type))
        else:
            columns.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
