"""Read the messages of a task's pieces as batches."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rockhopper.pipeline.decoder import Decoder, Records, candidates, pick
from rockhopper.pipeline.decoder.decode import topics
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.store_source.pieces import FilePiece
from rockhopper.pipeline.store_source.rules import StoreReadRules
from rockhopper.pipeline.store_source.scan import DamagedRange, scan
from rockhopper.pipeline.where import with_columns

# A row for a damaged place holds at most this many bytes.
_SHOWN_BYTES_MAX = 1 << 20


def read_batches(
    pieces: Sequence[FilePiece], rules: StoreReadRules, deleted_topics: Mapping[str, int]
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of *pieces* in log order, with the columns that *rules* choose.

    Raises:
        PipelineError: a place is damaged, or a file has expired; the message names it and the
            remedy.
    """
    reading = ScanReading(rules, deleted_topics)
    wanted = rules.wanted
    for batch in _read_all(pieces, rules, reading):
        if wanted is None:
            yield batch
        elif (found := wanted.matching(batch)).num_rows:
            yield found.select(list(rules.columns))


def _read_all(
    pieces: Sequence[FilePiece], rules: StoreReadRules, reading: "ScanReading"
) -> Iterator[pa.RecordBatch]:
    for piece in pieces:
        try:
            for found in scan(piece):
                if isinstance(found, DamagedRange):
                    yield from reading.damage(found)
                else:
                    yield from reading.messages(found)
        except FileNotFoundError:
            if rules.fail_on_data_loss:
                raise PipelineError(
                    f"{piece.path} was deleted while the store was being read, since its messages "
                    "have expired: read again, or read what is left with failOnDataLoss=false"
                ) from None


class ScanReading:
    """Turns the results of a scan into batches, by the rules."""

    def __init__(self, rules: StoreReadRules, deleted_topics: Mapping[str, int]) -> None:
        self._rules = rules
        self._deleted = {} if rules.include_deleted_topics else dict(deleted_topics)
        self._topics = None if rules.topics is None else pa.array(sorted(rules.topics), pa.string())
        self._bad_messages: list[tuple[int, str]] = []
        self._needles = rules.wanted.needles if rules.wanted is not None else ()
        self._decoder = Decoder(
            with_columns(rules.columns, rules.wanted),
            broker_name=rules.broker_name,
            decompress=rules.decompress,
            crc=rules.verify_crc,
            failed=None if rules.corrupt_records == "fail" else self._note,
        )

    def _note(self, offset: int, reason: str) -> None:
        self._bad_messages.append((offset, reason))

    def messages(self, records: Records) -> Iterator[pa.RecordBatch]:
        """Yield the batches of matching *records*, including the columns of the condition."""
        chosen = self._chosen(records)
        if chosen is not None:
            if not chosen.any():
                return
            records = pick(records, chosen)
        found = candidates(records, self._needles)
        if found is None:
            return
        records = found
        yield from self._decoder.batches(records)
        if self._bad_messages and self._rules.corrupt_records == "column":
            for offset, reason in self._bad_messages:
                body = self._body_of(records, offset)
                yield self._row(offset, body, reason)
        self._bad_messages.clear()

    def _chosen(self, records: Records) -> Any:
        """Return a mask of the records that the options choose; None if they choose all."""
        rules = self._rules
        masks = []
        times = records.heads["storeTimestamp"]
        if rules.start_ms is not None:
            masks.append(times >= rules.start_ms)
        if rules.end_ms is not None:
            masks.append(times < rules.end_ms)
        if rules.queue_ids is not None:
            masks.append(np.isin(records.heads["queueId"], list(rules.queue_ids)))
        if self._topics is not None or self._deleted:
            names = topics(records)
            if self._topics is not None:
                masks.append(_mask(pc.is_in(names, value_set=self._topics)))
            masks += self._not_deleted(records, names)
        return np.logical_and.reduce(masks) if masks else None

    def _not_deleted(self, records: Records, names: Any) -> list[Any]:
        start = records.heads["physOffset"][0]
        return [
            ~(_mask(pc.equal(names, topic)) & (records.heads["physOffset"] < end))
            for topic, end in self._deleted.items()
            if start < end
        ]

    def damage(self, damage: DamagedRange) -> Iterator[pa.RecordBatch]:
        """Handle a place without records: raise, skip it, or yield a row."""
        mode = self._rules.corrupt_records
        if mode == "fail":
            raise PipelineError(_sentence(damage))
        if mode == "column":
            yield self._row(damage.start, _bytes_of(damage), _sentence(damage).partition(": ")[0])

    def _row(self, offset: int, body: bytes, reason: str) -> pa.RecordBatch:
        """Return a row for a place of the log: its offset, its bytes, and the problem."""
        values = {"physOffset": offset, "body": body, "corrupt": reason}
        return pa.RecordBatch.from_pylist([values], schema=self._decoder.schema)

    def _body_of(self, records: Records, offset: int) -> bytes:
        row = int(np.flatnonzero(records.heads["physOffset"] == offset)[0])
        body = records.data[records.body_start[row] : records.body_end[row]]
        return body[:_SHOWN_BYTES_MAX].tobytes()


def _mask(values: Any) -> Any:
    return values.to_numpy(zero_copy_only=False)


def _bytes_of(damage: DamagedRange) -> bytes:
    try:
        with open(damage.path, "rb") as file:
            base = int(damage.path[-20:])
            file.seek(damage.start - base)
            return file.read(min(damage.end - damage.start, _SHOWN_BYTES_MAX)).rstrip(b"\0")
    except OSError:
        return b""


def _sentence(damage: DamagedRange) -> str:
    if damage.is_torn_tail:
        return (
            f"the commit log ends at {damage.start} with a torn record ({damage.reason}, in "
            f"{damage.path}): start a broker on the store, which cuts it off, or read with "
            f"corruptRecords=skip"
        )
    return (
        f"the commit log is damaged from {damage.start} to {damage.end} ({damage.reason}, in "
        f"{damage.path}): restore that file from a copy, or read what is left with "
        "corruptRecords=skip, or with corruptRecords=column to see each such place as a row"
    )
