"""Compare an archive with the log, and with its own manifests.

For each queue in a file, the manifests hold the number of messages and a sum of hashes of their
bodies (pipeline.jobs.body_hash); for the file they hold its SHA-256. The audit computes the same
sums from the log for the same queue offsets. It compares the other columns of the files with the
log one by one (pipeline.jobs.column_hash). Where the log has expired, it still compares the files
with the manifests.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rockhopper.pipeline.decoder import Decoder, Records, pick
from rockhopper.pipeline.decoder.decode import topics
from rockhopper.pipeline.jobs.archiving.catalog import Catalog
from rockhopper.pipeline.jobs.archiving.files import Files, files_at
from rockhopper.pipeline.jobs.archiving.manifest import ArchivedFile, QueueSummary, list_expired
from rockhopper.pipeline.jobs.auditing.findings import AuditFindings, FaultKind, Finding
from rockhopper.pipeline.jobs.body_hash import CRC_BITS, Numbers, body_crcs, body_edges, body_hashes
from rockhopper.pipeline.jobs.column_hash import (
    HASHED_COLUMNS,
    NO_SUMS,
    ColumnSums,
    add_sums,
    column_hashes,
    compute_total,
    sum_columns,
)
from rockhopper.pipeline.jobs.results import format_count

_COLUMNS = ("topic", "body", *HASHED_COLUMNS)

LogQueue: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class MessageSums:
    """The number of messages, the size of their bodies, and the sum of their hashes."""

    rows: int = 0
    body_bytes: int = 0
    body_hash: int = 0
    columns: ColumnSums = field(default=NO_SUMS, compare=False)
    """The sums of the other columns, if computed; manifests do not have them one by one."""

    @classmethod
    def from_manifest(cls, queue: QueueSummary) -> "MessageSums":
        """Return the sums in a manifest."""
        return cls(queue.rows, queue.body_bytes, queue.body_hash)

    def __add__(self, other: "MessageSums") -> "MessageSums":
        return MessageSums(
            self.rows + other.rows,
            self.body_bytes + other.body_bytes,
            (self.body_hash + other.body_hash) % (1 << 64),
            add_sums(self.columns, other.columns),
        )


RangeSums: TypeAlias = dict[tuple[str, int, int], MessageSums]
"""Sums by topic, queue and number of the range; see _numbers."""


@dataclass(frozen=True, slots=True)
class ArchivedRange:
    """A range of queue offsets in one or several files, and its sums in the manifests."""

    first: int
    last: int
    sums: MessageSums
    parts: "tuple[ArchivedPart, ...]"
    """The files, with topic, broker and queue."""
    crc_bits: int
    """See pipeline.jobs.body_hash; 0 if the hashes are of two kinds, which cannot be compared."""
    has_expired: bool = False
    """Whether all of it was archived once, but is no longer in the archive."""


ArchivedPart: TypeAlias = tuple[str, tuple[str, str, int]]
"""The path of a file; topic, broker and queue."""

FileColumns: TypeAlias = dict[ArchivedPart, ColumnSums]
"""The column sums of the files."""

ArchivedRanges: TypeAlias = Mapping[LogQueue, tuple[ArchivedRange, ...]]
"""By queue, ascending."""


def find_archived_ranges(
    files: Iterable[ArchivedFile], broker: str | None, expired: Iterable[ArchivedFile] = ()
) -> ArchivedRanges:
    """Return the archived ranges of *broker*, or of all, including those of *expired* files."""
    found: dict[LogQueue, list[ArchivedRange]] = {}
    for has_expired, some in ((False, files), (True, expired)):
        for file in some:
            for queue in file.queues:
                if broker is None or queue.broker == broker:
                    span = queue.first_offset, queue.last_offset
                    parts = ((file.path, queue.queue),)
                    found.setdefault((queue.topic, queue.queue_id), []).append(
                        ArchivedRange(
                            *span,
                            MessageSums.from_manifest(queue),
                            parts,
                            queue.crc_bits,
                            has_expired,
                        )
                    )
    return {queue: _join(ranges) for queue, ranges in found.items()}


def _join(ranges: list[ArchivedRange]) -> tuple[ArchivedRange, ...]:
    """Merge ranges that overlap."""
    found: list[ArchivedRange] = []
    for each in sorted(ranges, key=lambda one: one.first):
        if found and each.first <= found[-1].last:
            before = found[-1]
            crc_bits = each.crc_bits if each.crc_bits == before.crc_bits else 0
            sums = before.sums + each.sums
            found[-1] = ArchivedRange(
                before.first,
                max(before.last, each.last),
                sums if crc_bits else replace(sums, body_hash=0),
                before.parts + each.parts,
                crc_bits,
                before.has_expired and each.has_expired,
            )
        else:
            found.append(each)
    return tuple(found)


@dataclass(slots=True)
class LogSums:
    """The log's sums for the queues in the archive."""

    sums: RangeSums = field(default_factory=dict)
    starts: dict[LogQueue, int] = field(default_factory=dict)
    """The first queue offset of each queue."""

    def extend(self, other: "LogSums") -> None:
        """Add the sums of another task."""
        for key, sums in other.sums.items():
            self.sums[key] = self.sums.get(key, MessageSums()) + sums
        for queue, offset in other.starts.items():
            self.starts[queue] = min(offset, self.starts.get(queue, offset))


def add_log_sums(
    archived: ArchivedRanges, records: Records, gone: Mapping[str, int], found: LogSums
) -> None:
    """Add the sums of *records* to *found*."""
    coded = topics(records).dictionary_encode()
    codes = coded.indices.to_numpy()
    known = {topic for topic, _ in archived}
    positions = records.heads["physOffset"]
    for code, topic in enumerate(coded.dictionary.to_pylist()):
        if topic not in known:
            continue
        chosen = codes == code
        if topic in gone:
            chosen &= positions >= gone[topic]
        decoder = Decoder(_COLUMNS, failed=_ignore)
        for batch in decoder.batches(pick(records, chosen)):
            _add_batch(archived, topic, batch, found)


def _ignore(_offset: int, _reason: str) -> None:
    """Ignore bodies that do not decompress: they are missing on both sides."""


def _add_batch(archived: ArchivedRanges, topic: str, batch: Any, found: LogSums) -> None:
    offsets = batch.column("queueOffset").to_numpy()
    queue_ids = batch.column("queueId").to_numpy()
    bodies = batch.column("body")
    crcs, sizes = body_crcs(bodies), np.diff(body_edges(bodies))
    columns = column_hashes(batch)
    hashes: dict[int, Numbers] = {0: np.zeros(len(bodies), np.uint64)}
    for queue_id in np.unique(queue_ids).tolist():
        ranges = archived.get((topic, queue_id))
        if ranges is None:
            continue
        rows = np.flatnonzero(queue_ids == queue_id)
        first = int(offsets[rows].min())
        found.starts[topic, queue_id] = min(first, found.starts.get((topic, queue_id), first))
        numbers = _numbers(ranges, offsets[rows])
        for number in np.unique(numbers).tolist():
            part = rows[numbers == number]
            crc_bits = ranges[number // 2].crc_bits if number % 2 else CRC_BITS
            if crc_bits not in hashes:
                hashes[crc_bits] = body_hashes(crcs, sizes, offsets, crc_bits)
            body_hash = int(hashes[crc_bits][part].sum(dtype=np.uint64))
            sums = MessageSums(
                len(part), int(sizes[part].sum()), body_hash, sum_columns(columns, part)
            )
            key = topic, queue_id, number
            found.sums[key] = found.sums.get(key, MessageSums()) + sums


def _numbers(ranges: tuple[ArchivedRange, ...], offsets: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Number the offsets: 2·i + 1 in range i; 2·i between range i − 1 and range i."""
    edges = np.array([[each.first, each.last + 1] for each in ranges]).ravel()
    numbers: npt.NDArray[Any] = np.searchsorted(edges, offsets, side="right")
    return numbers


class ComparedCounts(NamedTuple):
    """How many messages archive and log have in common, and how many only one of them has."""

    in_both: int = 0
    only_archived: int = 0
    not_archived: int = 0


def compare_sums(
    archived: ArchivedRanges, found: LogSums, columns: FileColumns, findings: AuditFindings
) -> ComparedCounts:
    """Compare the sums of the archive with those of the log.

    Removes the compared entries from *columns*.
    """
    sums = found.sums
    both = only_archived = waiting = 0
    for (topic, queue_id), ranges in archived.items():
        start = found.starts.get((topic, queue_id))
        for number, each in enumerate(ranges):
            if each.has_expired:
                continue
            if start is None or each.first < start:
                only_archived += each.sums.rows
                continue
            in_log = sums.get((topic, queue_id, 2 * number + 1), MessageSums())
            both += in_log.rows
            if in_log != each.sums:
                findings.record(_difference(each, in_log))
            if in_log.rows == each.sums.rows:
                _compare_columns(each, in_log, columns, findings)
            between = sums.get((topic, queue_id, 2 * number), MessageSums()).rows
            if between and number:
                reason = f"{between} messages of the log are in no file of the archive"
                where = topic, queue_id, ranges[number - 1].last + 1, between
                findings.record(
                    Finding(FaultKind.ARCHIVE_MISSING, reason, None, None, None, *where)
                )
        waiting += sums.get((topic, queue_id, 2 * len(ranges)), MessageSums()).rows
    return ComparedCounts(both, only_archived, waiting)


def _compare_columns(
    each: ArchivedRange, in_log: MessageSums, columns: FileColumns, findings: AuditFindings
) -> None:
    parts = [columns.pop(part, None) for part in each.parts]
    if None in parts:
        return  # An unreadable file has a finding of its own.
    archived = reduce(add_sums, filter(None, parts))
    pairs = zip(HASHED_COLUMNS, archived, in_log.columns, strict=True)
    differ = [name for name, one, other in pairs if one != other]
    if differ:
        what = f"other values than the log in {', '.join(differ)}"
        findings.record(_about(each, FaultKind.ARCHIVE_DIFFERS, what, each.sums.rows))


def _difference(each: ArchivedRange, in_log: MessageSums) -> Finding:
    kind = FaultKind.ARCHIVE_MISSING if in_log.rows > each.sums.rows else FaultKind.ARCHIVE_DIFFERS
    what = "other bodies than the log, or CRCs of others"
    if in_log.rows != each.sums.rows:
        what = f"{each.sums.rows} messages, and the log has {in_log.rows}"
    elif in_log.body_bytes != each.sums.body_bytes:
        what = f"bodies of {each.sums.body_bytes} bytes, those in the log {in_log.body_bytes}"
    return _about(each, kind, what, abs(in_log.rows - each.sums.rows) or each.sums.rows)


def _about(each: ArchivedRange, kind: FaultKind, what: str, count: int) -> Finding:
    path, (topic, _, queue_id) = each.parts[0]
    reason = f"offsets {each.first} to {each.last}: the archive has {what}"
    return Finding(kind, reason, path, None, None, topic, queue_id, each.first, count)


@dataclass(slots=True)
class FileComparison:
    """The result of comparing a file with its manifest."""

    findings: AuditFindings = field(default_factory=AuditFindings)
    columns: FileColumns = field(default_factory=dict)


def _differences(
    file: ArchivedFile, found: Mapping[tuple[str, str, int], MessageSums]
) -> Iterator[tuple[str, tuple[str, str, int]]]:
    """Yield how the sums *found* in the file differ from its manifest, and in which queue."""
    noted = {queue.queue: MessageSums.from_manifest(queue) for queue in file.queues}
    for each in file.queues:
        sums = found.get(each.queue)
        if sums is not None and each.columns_hash not in (None, compute_total(sums.columns)):
            yield "the columns besides the bodies are not those that were archived", each.queue
    for queue in sorted({*noted, *found}):
        if noted.get(queue) != found.get(queue):
            has, was = found.get(queue, MessageSums()), noted.get(queue, MessageSums())
            reason = (
                f"the file has {has.rows} messages of {has.body_bytes} bytes where the manifest "
                f"says {was.rows} of {was.body_bytes}"
                if (has.rows, has.body_bytes) != (was.rows, was.body_bytes)
                else "the bodies in the file do not have the CRCs that were stored with them"
            )
            yield reason, queue


def check_archived_file(location: str, file: ArchivedFile) -> FileComparison:
    """Read a file of the archive at *location*, and compare it with its manifest."""
    checked = FileComparison()
    findings = checked.findings

    def add(reason: str, queue: tuple[str, str, int] | None = None) -> None:
        topic, _, queue_id = queue or (file.topic, "", None)
        about = topic, queue_id, None, 1 if queue else file.rows
        findings.record(Finding(FaultKind.ARCHIVE_FILE, reason, where, None, None, *about))

    where = f"{location.rstrip('/')}/{file.path}"
    try:
        found, sha256 = _read(location, file)
    except FileNotFoundError:
        add("the file is in a manifest, and not there")
        return checked
    except (OSError, pa.ArrowException, KeyError) as error:
        add(f"the file cannot be read ({str(error).splitlines()[0]})")
        return checked
    checked.columns = {(file.path, queue): each.columns for queue, each in found.items()}
    for reason, queue in _differences(file, found):
        add(reason, queue)
    if file.sha256 not in (None, sha256) and not findings.counts:
        add(
            "the file is not the one that was archived, and what was altered is no body: its "
            f"SHA-256 is {sha256}, that in the manifest {file.sha256}"
        )
    return checked


def _read(location: str, file: ArchivedFile) -> tuple[dict[tuple[str, str, int], MessageSums], str]:
    """Return the sums of a file by queue, and its SHA-256."""
    import pyarrow.parquet as pq

    from rockhopper.pipeline.jobs.archiving.writing import summarise_batch

    with files_at(location).open_input(file.path) as source:
        sha256 = hashlib.file_digest(source, "sha256").hexdigest()
        source.seek(0)
        parquet = pq.ParquetFile(source)
        crc_bits = min((queue.crc_bits for queue in file.queues), default=CRC_BITS)
        found: dict[tuple[str, str, int], MessageSums] = {}
        for batch in parquet.iter_batches(columns=["brokerName", "body", *HASHED_COLUMNS]):
            for part in _by_broker(batch) if batch.num_rows else ():
                crcs, columns = body_crcs(part.column("body")), column_hashes(part)
                queue_ids = part.column("queueId").to_numpy()
                for each in summarise_batch(file.topic, part, crcs, crc_bits):
                    rows = np.flatnonzero(queue_ids == each.queue_id)
                    sums = MessageSums(
                        each.rows, each.body_bytes, each.body_hash, sum_columns(columns, rows)
                    )
                    found[each.queue] = found.get(each.queue, MessageSums()) + sums
    return found, sha256


def _by_broker(batch: Any) -> list[Any]:
    names = batch.column("brokerName").fill_null("").dictionary_encode()
    if len(names.dictionary) == 1:
        return [batch]
    codes = range(len(names.dictionary))
    return [batch.filter(pc.equal(names.indices, code)) for code in codes]


def describe_unknown_columns(files: Iterable[ArchivedFile], columns: FileColumns) -> str:
    """Return a text about messages whose columns could not be compared; empty if there are none.

    *columns* are those that were not compared with the log.
    """
    without = {
        (file.path, queue.queue): queue.rows
        for file in files
        for queue in file.queues
        if queue.columns_hash is None and file.sha256 is None
    }
    count = sum(without[part] for part in without.keys() & columns.keys())
    if not count:
        return ""
    return (
        f"{format_count(count, 'archived message')} came into the archive before its manifests had "
        "checksums of columns, and the log does not have them any more: of these only the bodies"
    )


def check_foreign_files(location: str, files: Iterable[ArchivedFile]) -> AuditFindings:
    """Find files in no manifest that a Parquet reader would take for archived ones."""
    found, catalog = AuditFindings(), Catalog(files_at(location))
    if catalog.killed_run() is not None:  # a commit in progress adds its manifest last
        return found
    listed = {file.path for file in files}
    where = catalog.files.location.rstrip("/")
    for path in _visible(catalog.files, ("topic=", "date=")):
        if path not in listed:
            reason = "no manifest lists it, and spark.read.parquet reads it all the same"
            found.record(Finding(FaultKind.ARCHIVE_FOREIGN, reason, f"{where}/{path}"))
    return found


def _visible(files: Files, levels: tuple[str, ...], directory: str = "") -> Iterator[str]:
    for name in files.names(directory):
        path = f"{directory}/{name}".lstrip("/")
        if levels and name.startswith(levels[0]):
            try:
                yield from _visible(files, levels[1:], path)
            except NotADirectoryError:
                yield path
        elif not name.startswith(("_", ".")):
            yield path


def read_archive(location: str) -> list[ArchivedFile] | None:
    """Return the files in the archive's manifests; None if there is no archive.

    Raises:
        PipelineError: a manifest is damaged.
    """
    catalog = Catalog(files_at(location))
    return catalog.archived_files() if catalog.current() is not None else None


def list_expired_files(location: str) -> list[ArchivedFile]:
    """Return the files whose messages have expired from the archive."""
    return list_expired(Catalog(files_at(location)).manifests())
