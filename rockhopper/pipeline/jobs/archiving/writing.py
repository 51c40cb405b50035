"""The work of a task on messages: sort them into directories, write Parquet, count.

    topic=orders/date=2026-11-20/part-<run>-<task>-<number>.parquet

Messages of one topic and UTC day are collected until they fill a row group. Only a few columns get
dictionaries and statistics: for the others the cost is high and the benefit small.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.files import Files, files_at
from rockhopper.pipeline.jobs.archiving.manifest import ArchivedFile, QueueSummary, merge_summaries
from rockhopper.pipeline.jobs.archiving.values import ValueDecoder, ValueFormat
from rockhopper.pipeline.jobs.body_hash import (
    CRC_BITS,
    Numbers,
    body_edges,
    body_hashes,
    stored_crcs,
)
from rockhopper.pipeline.schema import COLUMNS, arrow_schema

FILE_COLUMNS = tuple(name for name in COLUMNS if name != "topic")
"""The columns of the files; topic and date are in the directory names."""

ROW_GROUP_ROWS = 1 << 17
ROW_GROUP_BYTES = 64 << 20
COLLECTED_BYTES_MAX = 128 << 20
OPEN_FILES_MAX = 200
MS_PER_DAY = 86_400_000

# For random bytes zstd's fastest level costs time and saves nothing; _compresses detects that.
_CODEC, _LEVEL = "zstd", 1
_SAMPLE_BYTES_MIN = 1 << 12
_SAMPLE_BYTES_MAX = 1 << 16
_WORTH_COMPRESSING = 0.95
# The defaults of these two cost a sixth of the time to write.
_PAGE_BYTES = 4 << 20
_WRITE_BATCH_ROWS = 16_384
_DICTIONARIES = ["brokerName", "tags", "bornHost", "storeHost", "properties.key_value.key"]
_STATISTICS = [
    *("brokerName", "queueId", "queueOffset", "tags"),
    *("bornTimestamp", "storeTimestamp", "physOffset"),
]


@dataclass(frozen=True)
class WriteTarget:
    """The output of the tasks of one run; Spark sends it to the workers."""

    location: str
    staging: str
    run: int
    value: ValueFormat | None = None
    refuses_bad_values: bool = False
    """Whether a body that does not decode ends the run."""


@dataclass
class WrittenSplit:
    """The output and statistics of one task; ``staged`` has its files in the order of ``files``."""

    files: list[ArchivedFile] = field(default_factory=list)
    staged: list[str] = field(default_factory=list)
    undecoded: int = 0
    first_offset: int = -1
    """The log offset of the first record that the task has read."""
    log_end: int = -1
    """The log offset after the last record that the task has read; −1 if it has read none."""
    last_offset: int = -1
    last_head: str = ""
    left_out: Counter[str] = field(default_factory=Counter)
    """Messages of topics that were not chosen, by topic."""
    damaged: int = 0


def file_schema(value: ValueFormat | None) -> pa.Schema:
    """Return the schema of the files."""
    schema = arrow_schema(FILE_COLUMNS)
    return schema if value is None else schema.append(pa.field("value", value.arrow_type()))


class SplitWriter:
    """Writes the files of one task attempt; ``written`` describes them, and the task adds to it."""

    def __init__(
        self,
        target: WriteTarget,
        task: int,
        *,
        files: Files | None = None,
        row_group_rows: int = ROW_GROUP_ROWS,
        open_files_max: int = OPEN_FILES_MAX,
    ) -> None:
        self._target = target
        self._name = f"part-{target.run:05d}-{task:05d}"
        self._files = files or files_at(target.location)
        # A failed attempt must not write into the files of the successful one.
        self._directory = f"{target.staging}/{task:05d}-{uuid4().hex[:12]}"
        self._schema = file_schema(target.value)
        self._leaves = _leaves(self._schema)
        self._decoder: ValueDecoder | None = None
        self._row_group_rows = row_group_rows
        self._open_files_max = open_files_max
        self._parts: dict[tuple[str, int], _TopicDay] = {}
        self._collected_bytes = 0
        self.written = WrittenSplit()
        self._closed: list[Future[ArchivedFile]] = []
        # Syncs a file while the task writes the next one.
        self._settling = ThreadPoolExecutor(1, "settling")

    def write_batch(self, topic: str, batch: pa.RecordBatch) -> None:
        """Add messages of one topic and broker; *batch* has at least FILE_COLUMNS.

        If it has a column ``value``, that is stored unchanged.
        """
        times = batch.column("storeTimestamp").view(pa.int64()).to_numpy()
        for day, rows in _by_value(times // (MS_PER_DAY * 1000)):
            self._add(topic, day, batch if rows is None else batch.take(pa.array(rows)))

    def _bad_value(self, topic: str, batch: pa.RecordBatch, value: Any) -> str:
        """Return the error text for the first message whose *value* is null."""
        row = value.is_null().index(True).as_py()
        names = ("brokerName", "queueId", "queueOffset")
        broker, queue_id, offset = (batch.column(name)[row].as_py() for name in names)
        assert self._target.value is not None
        on = f" on {broker}" if broker else ""
        return (
            f"the body at offset {offset} of queue {queue_id} of {topic!r}{on} does not decode as "
            f"{self._target.value.format} by the schema: correct the schema, or archive with "
            "--bad-values null, which keeps such bodies, and counts them"
        )

    def _decode_values(self, topic: str, batch: pa.RecordBatch, value: ValueFormat) -> pa.Array:
        self._decoder = self._decoder or ValueDecoder(value)
        decoded, undecoded = self._decoder.decode(batch.column("body"))
        if undecoded and self._target.refuses_bad_values:
            raise PipelineError(self._bad_value(topic, batch, decoded))
        self.written.undecoded += undecoded
        return decoded

    def _add(self, topic: str, day: int, batch: pa.RecordBatch) -> None:
        columns = [batch.column(name) for name in FILE_COLUMNS]
        if "value" in self._schema.names and "value" in batch.schema.names:
            columns.append(batch.column("value"))
        elif self._target.value is not None:
            columns.append(self._decode_values(topic, batch, self._target.value))
        part = self._parts.setdefault((topic, day), _TopicDay(topic, day))
        part.batches.append(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        part.rows += batch.num_rows
        size = batch.nbytes
        part.bytes += size
        self._collected_bytes += size
        part.summaries += summarise_batch(topic, batch, stored_crcs(batch))
        if part.rows >= self._row_group_rows or part.bytes >= ROW_GROUP_BYTES:
            self._write(part)
        elif self._collected_bytes > COLLECTED_BYTES_MAX:
            self._write(max(self._parts.values(), key=lambda one: one.bytes))

    def finish(self) -> WrittenSplit:
        """Write the remaining messages, sync all files, and return ``written``."""
        with self._settling:
            while self._parts:  # opening the last file of one part may close that of another
                self._close(next(iter(self._parts.values())))
        self.written.files += [closed.result() for closed in self._closed]
        return self.written

    def _write(self, part: "_TopicDay") -> None:
        """Write the collected messages as a row group."""
        if part.writer is None:
            self._open(part)
        part.written_rows += part.rows
        part.writer.write_table(
            pa.Table.from_batches(part.batches, self._schema), row_group_size=part.rows
        )
        self._collected_bytes -= part.bytes
        part.batches, part.rows, part.bytes = [], 0, 0

    def _open(self, part: "_TopicDay") -> None:
        is_open = [other for other in self._parts.values() if other.writer is not None]
        if len(is_open) >= self._open_files_max:
            self._close(is_open[0])
        if not self.written.staged and not is_open:
            self._files.create_leaf(self._directory)
        part.staged = f"{self._directory}/{uuid4().hex[:12]}.staged"
        part.output = HashedOutput(self._files.open_output(part.staged))
        codecs = dict.fromkeys(self._leaves, _CODEC)
        if not _compresses(max((each.column("body") for each in part.batches), key=_bytes_of)):
            codecs["body"] = "none"
        part.writer = pq.ParquetWriter(
            part.output,
            self._schema,
            compression=codecs,
            compression_level={name: _LEVEL for name, codec in codecs.items() if codec == _CODEC},
            use_dictionary=_DICTIONARIES,
            write_statistics=_STATISTICS,
            data_page_size=_PAGE_BYTES,
            write_batch_size=_WRITE_BATCH_ROWS,
        )

    def _close(self, part: "_TopicDay") -> None:
        """Close the file of a part; later messages of the same topic and day start a new file."""
        if part.batches:
            self._write(part)
        del self._parts[part.topic, part.day]
        if part.writer is None:
            return
        part.writer.close()
        part.output.close()
        number = len(self.written.staged)
        self.written.staged.append(part.staged)
        self._closed.append(self._settling.submit(self._settle, part, number))

    def _settle(self, part: "_TopicDay", number: int) -> ArchivedFile:
        date = datetime.fromtimestamp(part.day * (MS_PER_DAY // 1000), UTC).date().isoformat()
        queues = merge_summaries(part.summaries)
        directory = f"{topic_directory(part.topic)}/date={date}"
        return ArchivedFile(
            path=f"{directory}/{self._name}-{number}.parquet",
            topic=part.topic,
            date=date,
            rows=part.written_rows,
            bytes=self._files.settle(part.staged),
            min_store_ms=min(each.min_store_ms for each in queues),
            max_store_ms=max(each.max_store_ms for each in queues),
            queues=queues,
            sha256=part.output.sha256,
        )


class HashedOutput:
    """An output for Parquet that also computes the SHA-256 of the written bytes."""

    closed = False

    def __init__(self, output: Any) -> None:
        self._output = output
        self._hash = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """The hash of all written bytes, in hexadecimal."""
        return self._hash.hexdigest()

    def write(self, data: Any) -> None:
        """Write and hash *data*."""
        self._hash.update(data)
        self._output.write(data)

    def flush(self) -> None:
        """Flush; pyarrow calls this at the end of a file."""
        self._output.flush()

    def close(self) -> None:
        """Close the file."""
        self._output.close()
        self.closed = True


class _TopicDay:
    """The messages of one topic and day."""

    def __init__(self, topic: str, day: int) -> None:
        self.topic = topic
        self.day = day
        self.batches: list[pa.RecordBatch] = []
        self.rows = 0
        self.bytes = 0
        self.written_rows = 0
        self.summaries: list[QueueSummary] = []
        self.staged = ""
        self.output: Any = None
        self.writer: Any = None


def _leaves(schema: pa.Schema) -> list[str]:
    """Return the leaf columns of a file, by their Parquet paths."""
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    return [column.path for column in pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema]


def _compresses(bodies: Any) -> bool:
    """Return whether bodies get smaller; compressed or encrypted ones do not."""
    size = min(_bytes_of(bodies), _SAMPLE_BYTES_MAX)
    if size < _SAMPLE_BYTES_MIN:
        return True
    start = int(body_edges(bodies)[0])
    packed = pa.Codec(_CODEC, _LEVEL).compress(bodies.buffers()[2][start : start + size])
    return len(packed) < _WORTH_COMPRESSING * size


def _bytes_of(bodies: Any) -> int:
    edges = body_edges(bodies)
    return int(edges[-1] - edges[0])


def _by_value(values: npt.NDArray[np.int64]) -> Iterator[tuple[int, Any]]:
    """Yield each value with its rows, None for all rows; nothing for an empty array."""
    if not len(values):
        return
    if values[0] == values[-1] and (values == values[0]).all():
        yield int(values[0]), None
        return
    for value in np.unique(values).tolist():
        yield value, np.flatnonzero(values == value)


def summarise_batch(
    topic: str,
    batch: pa.RecordBatch,
    crcs: Numbers,
    crc_bits: int = CRC_BITS,
) -> list[QueueSummary]:
    """Summarise a batch of messages of one topic and one broker, by queue.

    *crcs* are the CRCs of the bodies.
    """
    offsets = batch.column("queueOffset").to_numpy()
    sizes = np.diff(body_edges(batch.column("body")))
    hashes = body_hashes(crcs, sizes, offsets, crc_bits)
    times = batch.column("storeTimestamp").view(pa.int64()).to_numpy() // 1000
    broker = batch.column("brokerName")[0].as_py() or ""
    found = []
    for queue_id, rows in _by_value(batch.column("queueId").to_numpy()):
        chosen = slice(None) if rows is None else rows
        found.append(
            QueueSummary(
                topic=topic,
                broker=broker,
                queue_id=queue_id,
                first_offset=int(offsets[chosen].min()),
                last_offset=int(offsets[chosen].max()),
                rows=len(offsets[chosen]),
                body_bytes=int(sizes[chosen].sum()),
                body_hash=int(hashes[chosen].sum(dtype=np.uint64)),
                min_store_ms=int(times[chosen].min()),
                max_store_ms=int(times[chosen].max()),
                crc_bits=crc_bits,
            )
        )
    return found


def topic_directory(topic: str) -> str:
    """Return the directory of a topic's files, as Hive and Spark spell it.

    They read one name as null unless one of its characters is escaped.
    """
    name = quote(topic, safe="")
    return f"topic=%5F{name[1:]}" if topic == "__HIVE_DEFAULT_PARTITION__" else f"topic={name}"
