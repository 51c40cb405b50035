"""Archive the files of a store: the work of a task on its pieces of the log.

Records are sorted by topic before they are decoded. This is cheap, because no row has to move.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rockhopper.pipeline.decoder import Records, pick
from rockhopper.pipeline.decoder.decode import topics
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.manifest import LogPosition
from rockhopper.pipeline.jobs.archiving.selection import Selection, find_archived_end
from rockhopper.pipeline.jobs.archiving.writing import SplitWriter, WriteTarget, WrittenSplit
from rockhopper.pipeline.store_source.directory import StoreDirectory
from rockhopper.pipeline.store_source.pieces import FilePiece
from rockhopper.pipeline.store_source.reading import ScanReading
from rockhopper.pipeline.store_source.rules import StoreReadRules
from rockhopper.pipeline.store_source.scan import DamagedRange, scan

HEAD_BYTES = 88
"""The bytes of a record that identify its log later: all of its fixed fields."""


@dataclass(frozen=True)
class StoreWork:
    """The work and the rules of the tasks; Spark sends it to the workers."""

    rules: StoreReadRules
    deleted_topics: Mapping[str, int]
    selection: Selection
    archived: Mapping[str, int]
    target: WriteTarget

    def __call__(self, task: tuple[int, tuple[FilePiece, ...]]) -> WrittenSplit:
        """Write the messages of a task's pieces. Raises PipelineError."""
        number, pieces = task
        writer = SplitWriter(self.target, number)
        reading = _Sorted(self, writer.written)
        for piece in pieces:
            try:
                is_whole = _archive_piece(piece, reading, writer)
            except FileNotFoundError:
                if self.rules.fail_on_data_loss:
                    raise PipelineError(
                        f"{piece.path} was deleted while it was being archived, since its messages "
                        "have expired: run the job again with --allow-gaps to archive what is left"
                    ) from None
                writer.written.log_end = piece.end
                continue
            if not is_whole:
                break
        return writer.finish()


def _archive_piece(piece: FilePiece, reading: "_Sorted", writer: SplitWriter) -> bool:
    """Archive one piece; return False if the log ends for this run, although more of it exists."""
    seen = writer.written
    for found in scan(piece):
        if isinstance(found, DamagedRange):
            for _ in reading.damage(found):  # raises, unless damage is skipped
                pass
            seen.damaged += 1
            # A torn record may be completed or overwritten: the next run checks it again.
            if not found.is_torn_tail:
                seen.log_end = max(seen.log_end, found.end)
            continue
        start = int(found.heads["physOffset"][0])
        if not follows(start, seen.log_end, piece):
            return False
        if seen.first_offset < 0:
            seen.first_offset = start
        at = int(found.offsets[-1])
        seen.last_offset = int(found.heads["physOffset"][-1])
        seen.log_end = seen.last_offset + int(found.ends[-1]) - at
        seen.last_head = found.data[at : at + HEAD_BYTES].tobytes().hex()
        for topic, batch in reading.sorted(found):
            writer.write_batch(topic, batch)
    return True


def follows(start: int, end: int, piece: FilePiece) -> bool:
    """Return whether records from *start* on follow *end* without a gap, in a live broker's log.

    In such a log a record counts by its store time, and a clock may be set back. So a later run
    archives the records after a gap.
    """
    if end < 0 or piece.flushed_ms is None:
        return True
    return start in (end, piece.base_offset)


class _Sorted(ScanReading):
    """Sorts messages by topic; keeps the chosen ones that are not archived yet."""

    def __init__(self, work: StoreWork, seen: WrittenSplit) -> None:
        super().__init__(work.rules, work.deleted_topics)
        self._work = work
        self._seen = seen
        self._starts: dict[str, int | None] = {}

    def _note(self, offset: int, reason: str) -> None:
        self._seen.damaged += 1

    def sorted(self, records: Records) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the batches of *records*, each with its topic."""
        names = topics(records).dictionary_encode()
        codes = names.indices.to_numpy()
        offsets = records.heads["physOffset"]
        for code, topic in enumerate(names.dictionary.to_pylist()):
            rows: npt.NDArray[Any] = np.flatnonzero(codes == code)
            start = self._start(topic)
            if start is None:
                self._seen.left_out[topic] += len(rows)
                continue
            if offsets[rows[0]] < start:
                rows = rows[offsets[rows] >= start]
                if not len(rows):
                    continue
            part = records if len(rows) == len(records) else pick(records, rows)
            for batch in self.messages(part):
                if batch.num_rows:
                    yield topic, batch

    def _start(self, topic: str) -> int | None:
        """Return the log offset at which archiving a topic starts; None if it is not chosen."""
        if topic not in self._starts:
            is_chosen = self._work.selection.chooses(topic)
            start = find_archived_end(self._work.archived, topic) if is_chosen else None
            self._starts[topic] = start
        return self._starts[topic]


def check_same_log(store: StoreDirectory, position: LogPosition, broker: str) -> None:
    """Check that the store is the one that was archived under this broker name before.

    Raises:
        PipelineError: it is another store.
    """
    offset = position.last_offset
    if offset < 0 or (store.segments and store.start_offset > offset):
        return  # that part of the log has expired
    for segment in store.segments:
        if segment.base_offset <= offset < segment.end_offset:
            with open(segment.path, "rb") as file:
                file.seek(offset - segment.base_offset)
                if file.read(len(position.last_head) // 2).hex() == position.last_head:
                    return
    named = f"the broker {broker!r}" if broker else "a broker without a name"
    raise PipelineError(
        f"{store.commit_log} is not the log that was archived as that of {named} before (it has "
        f"another record at {offset}): name the broker with --broker-name, or archive into another "
        "directory"
    )
