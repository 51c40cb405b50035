"""Commit log directories written from messages, for readers without a broker."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rockhopper.protocol.store.record_head import BLANK_RECORD, MAGIC_BLANK
from tests.support.records import encode_message
from tests.support.rot import overwrite

T0_MS = 1_760_000_000_000


@dataclass
class WrittenLog:
    """A store directory under *root*; ``add`` appends, and rolls files like a broker."""

    root: Path
    file_size_bytes: int = 65_536
    end: int = 0
    offsets: list[int] = field(default_factory=list)

    @property
    def commit_log(self) -> Path:
        """The directory of the files."""
        return self.root / "commitlog"

    def add(self, count: int = 1, **fields: Any) -> "WrittenLog":
        """Append *count* messages; body, keys and store time depend on their number."""
        for _ in range(count):
            number = len(self.offsets)
            given = {
                "topic": f"topic-{number % 3}",
                "queue_id": number % 2,
                "queue_offset": number,
                "body": b"body %d" % number,
                "properties": {"KEYS": f"k{number}", "TAGS": "red"},
                "store_time_ms": T0_MS + number,
                "born_time_ms": T0_MS + number - 1,
                **fields,
            }
            size = len(encode_message(**given))
            left = self.file_size_bytes - self.end % self.file_size_bytes
            if size + BLANK_RECORD.size > left:
                self.write(self.end, BLANK_RECORD.pack(left, MAGIC_BLANK))
                self.end += left
            self.write(self.end, encode_message(**given, commit_log_offset=self.end))
            self.offsets.append(self.end)
            self.end += size
        return self

    def write(self, offset: int, data: bytes) -> None:
        """Write *data* at a commit log offset, in one file."""
        path = self.file_of(offset)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        if path.stat().st_size == 0:
            os.truncate(path, self.file_size_bytes)
        overwrite(path, offset % self.file_size_bytes, data)

    def file_of(self, offset: int) -> Path:
        """Return the file that holds *offset*."""
        base = offset - offset % self.file_size_bytes
        return self.commit_log / f"{base:020d}"

    def next_of(self, offset: int) -> int:
        """Return the start of the record after the one at *offset*."""
        return self.offsets[self.offsets.index(offset) + 1]


def read_rows(path: Path | str, options: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return all rows of all partitions of ``rocketmq-store``, in order, without Spark."""
    reader = store_reader(path, options)
    return [
        row
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.to_pylist(maps_as_pydicts="strict")
    ]


def store_reader(path: Path | str, options: Mapping[str, Any] | None = None) -> Any:
    """Return the reader that Spark gets for these options, with all columns by default."""
    from pyspark.sql.datasource import CaseInsensitiveDict

    from rockhopper.pipeline.store_source.source import StoreSource

    given = {"path": str(path), "columns": "all", **{k: str(v) for k, v in (options or {}).items()}}
    source = StoreSource(CaseInsensitiveDict(given))
    return source.reader(source.schema())


@contextmanager
def environment(**values: str | None) -> Iterator[None]:
    """Set or remove environment variables for a while."""
    before = {name: os.environ.get(name) for name in values}
    try:
        for name, value in values.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
