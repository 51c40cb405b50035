"""The work of a compaction task: read small files, sort their messages, write one file."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.files import files_at
from rockhopper.pipeline.jobs.archiving.manifest import ArchivedFile, merge_summaries
from rockhopper.pipeline.jobs.archiving.writing import (
    ROW_GROUP_ROWS,
    SplitWriter,
    WriteTarget,
    WrittenSplit,
    file_schema,
)
from rockhopper.pipeline.jobs.compacting.planning import Group

_ORDER = [(name, "ascending") for name in ("brokerName", "queueId", "queueOffset")]


@dataclass(frozen=True)
class CompactWork:
    """The work of the tasks; Spark sends it to the workers."""

    target: WriteTarget

    def __call__(self, task: tuple[int, Group]) -> WrittenSplit:
        """Write the messages of a group of files into one.

        Raises:
            PipelineError: a file is damaged, or differs from its manifest.
        """
        number, group = task
        schema = file_schema(self.target.value)
        table = pa.concat_tables([self._read(file, schema) for file in group])
        writer = SplitWriter(self.target, number)
        for batch in _by_broker(table.sort_by(_ORDER)):
            writer.write_batch(group[0].topic, batch)
        written = writer.finish()
        self._check(group, written)
        place = group[0].place or group[0].path
        written.files = [replace(file, place=place) for file in written.files]
        return written

    def _read(self, file: ArchivedFile, schema: pa.Schema) -> pa.Table:
        where = f"{self.target.location.rstrip('/')}/{file.path}"
        try:
            with files_at(self.target.location).open_input(file.path) as source:
                data = source.read()
            if file.sha256 is not None and hashlib.sha256(data).hexdigest() != file.sha256:
                raise _describe_damage(where, "its SHA-256 is not that in its manifest")
            table = pq.ParquetFile(pa.BufferReader(data)).read()
        except (OSError, pa.ArrowException) as error:
            raise _describe_damage(where, str(error).splitlines()[0]) from error
        if table.schema.names != schema.names or table.num_rows != file.rows:
            raise _describe_damage(
                where, f"it has {table.num_rows} messages of {len(table.schema.names)} columns"
            )
        return table.cast(schema)

    def _check(self, group: Group, written: WrittenSplit) -> None:
        """Check that no message was lost: compare the sums of each queue. Raises PipelineError."""
        wanted = [replace(queue, columns_hash=None) for file in group for queue in file.queues]
        found = [queue for file in written.files for queue in file.queues]
        if merge_summaries(found) != merge_summaries(wanted):
            paths = ", ".join(file.path for file in group)
            raise _describe_damage(
                self.target.location, f"the messages in {paths} are not those of the manifests"
            )


def _by_broker(table: pa.Table) -> Iterator[pa.RecordBatch]:
    names = table.column("brokerName")
    for name in pc.unique(names).to_pylist():
        mask = pc.is_null(names) if name is None else pc.equal(names, name)
        part: Any = table.filter(mask)
        for start in range(0, part.num_rows, ROW_GROUP_ROWS):
            (batch,) = part.slice(start, ROW_GROUP_ROWS).combine_chunks().to_batches()
            yield batch


def _describe_damage(where: str, why: str) -> PipelineError:
    return PipelineError(
        f"{where} is damaged ({why}), so nothing was merged: restore it from a copy of the "
        "archive; audit --archive says what else is wrong"
    )
