"""Find the Parquet files to replay: those of an archive, or any with the sink's columns.

Files of an archive are sorted by the order in which their messages were stored; other files are
sorted by name. As in Spark, values in directory names (``topic=orders``) count as columns.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from rockhopper.paths import expand_home
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.catalog import Catalog, find_kept_path
from rockhopper.pipeline.jobs.archiving.files import LocalFiles
from rockhopper.pipeline.jobs.archiving.manifest import make_stored_key


@dataclass(frozen=True)
class SourceFile:
    """One file to read."""

    path: str
    rows: int
    topic: str | None
    """The topic of all its messages; None if a column holds it."""
    min_store_ms: int | None = None
    max_store_ms: int | None = None
    sha256: str | None = None
    """The hash of the whole file, from the archive's manifest."""


@dataclass(frozen=True)
class MessageFiles:
    """The files with the messages."""

    root: Path
    """The directory below which directory names count as columns."""
    files: tuple[SourceFile, ...]
    columns: tuple[str, ...]
    is_archive: bool
    away: tuple[str, ...] = ()
    """Brokers that were offline during the last archive run."""


def find_source(location: str) -> MessageFiles:
    """Find the files at *location*, a local directory or file.

    Raises:
        PipelineError: there is no Parquet, or its columns cannot be sent.
    """
    path = _local_path(location)
    catalog = Catalog(LocalFiles(path))
    newest = catalog.current() if path.is_dir() else None
    if newest is not None:
        files = [
            SourceFile(
                str(catalog.files.path(each.path)),
                each.rows,
                each.topic,
                each.min_store_ms,
                each.max_store_ms,
                each.sha256,
            )
            for each in sorted(catalog.archived_files(), key=make_stored_key)
        ]
    else:
        files = [_source_file(each, path) for each in _parquet_files(path)]
    if not files:
        raise PipelineError(f"there is no Parquet file in {path}: give an archive, or such files")
    columns = tuple(_open(files[0].path).schema_arrow.names)
    if "body" not in columns:
        raise PipelineError(
            f"{files[0].path} has no column 'body', which holds what is sent: it has "
            f"{', '.join(columns)}"
        )
    root = path if path.is_dir() else path.parent
    away = () if newest is None else tuple(newest.away)
    return MessageFiles(root, tuple(files), columns, newest is not None, away)


def _local_path(location: str) -> Path:
    parts = urlsplit(location)
    if parts.scheme not in ("", "file"):
        raise PipelineError(
            f"{location} is not in a local directory: replay reads local files, so mount it, or "
            "write it to topics with df.write.format('rocketmq')"
        )
    path = expand_home(unquote(parts.path) if parts.scheme else location).absolute()
    if not path.exists():
        raise PipelineError(f"there is nothing at {path}: give an archive, or Parquet files")
    return path


def _parquet_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    found = []
    for directory, below, names in os.walk(path):
        below[:] = [name for name in below if name[:1] not in "_."]
        found += [
            Path(directory, name)
            for name in names
            if name[:1] not in "_." and name.endswith((".parquet", ".parq"))
        ]
    return sorted(found)


def _source_file(path: Path, root: Path) -> SourceFile:
    topic = None
    for part in path.relative_to(root).parts[:-1] if root.is_dir() else ():
        if part.startswith("topic="):
            topic = unquote(part.removeprefix("topic="))
    opened = _open(str(path))
    if topic is not None and "topic" in opened.schema_arrow.names:
        topic = None
    return SourceFile(str(path), opened.metadata.num_rows, topic)


def _open(path: str) -> Any:
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise PipelineError(
            f"{path} cannot be read as Parquet ({error}): restore it, or move it away"
        ) from error


def check_unaltered(files: Sequence[SourceFile]) -> None:
    """Check that files of an archive are unchanged. Raises PipelineError."""
    for each in files:
        if each.sha256 is None:
            continue
        try:
            with open(each.path, "rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise PipelineError(
                f"{each.path} cannot be read ({error.strerror}): restore it from a copy of the "
                "archive"
            ) from error
        if found != each.sha256:
            raise PipelineError(
                f"{each.path} was altered since it was archived (its SHA-256 is {found}, that in "
                f"the manifest {each.sha256}): restore it from a copy of the archive; the job "
                "audit tells what is wrong in it"
            )


def mean_row_bytes(files: Sequence[SourceFile]) -> float:
    """Return the mean size of a message, from the first few files."""
    size = rows = 0
    for each in files[:8]:
        metadata = _open(each.path).metadata
        size += sum(metadata.row_group(n).total_byte_size for n in range(metadata.num_row_groups))
        rows += metadata.num_rows
    return size / rows if rows else 1.0


def read_rows(path: str, columns: Sequence[str], rows: Any) -> list[pa.RecordBatch]:
    """Read some rows of a file; *rows* is a numpy array of ascending row numbers.

    Columns that the file lacks are left out.
    """
    import numpy as np

    opened = _open(find_kept_path(path))
    names = [name for name in columns if name in opened.schema_arrow.names]
    batches: list[pa.RecordBatch] = []
    start = 0
    for number in range(opened.metadata.num_row_groups):
        end = start + opened.metadata.row_group(number).num_rows
        low, high = np.searchsorted(rows, (start, end))
        if low < high:
            table = opened.read_row_group(number, columns=names)
            wanted = rows[low:high] - start
            first, last = int(wanted[0]), int(wanted[-1])
            if last - first + 1 == len(wanted):
                table = table.slice(first, len(wanted))
            else:
                table = table.take(pa.array(wanted))
            batches += table.combine_chunks().to_batches()
        start = end
    return batches
