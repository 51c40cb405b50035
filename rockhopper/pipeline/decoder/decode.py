"""The only decoder: from records to batches with the columns of rockhopper.pipeline.schema."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rockhopper.pipeline.decoder.bodies import BATCH_SIZE_BYTES_MAX, Bodies, damaged_bodies
from rockhopper.pipeline.decoder.inner_batches import Unwrapped
from rockhopper.pipeline.decoder.properties import Properties
from rockhopper.pipeline.decoder.records import (
    Records,
    born_host_start,
    pick,
    read_records,
    store_host_start,
)
from rockhopper.pipeline.decoder.strings import constant, gather, host_texts, offset_message_ids
from rockhopper.pipeline.decoder.walk import Buffer, Offsets
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.schema import COLUMNS, arrow_schema
from rockhopper.protocol.calendar_times import CALENDAR_MS_MAX, CALENDAR_MS_MIN
from rockhopper.protocol.properties import PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_UNIQUE_KEY
from rockhopper.protocol.sys_flags import SYS_FLAG_BORN_HOST_V6, SYS_FLAG_STORE_HOST_V6

BATCH_ROWS_MAX = 10_000

Crc = Literal["off", "flag", "fail"]
Failure = Callable[[int, str], None]

_INT32_COLUMNS = frozenset({"queueId", "flag", "sysFlag", "reconsumeTimes", "bodyCrc"})
_INT64_COLUMNS = frozenset({"queueOffset", "physOffset", "preparedTransactionOffset"})
_TIME_COLUMNS = frozenset({"bornTimestamp", "storeTimestamp"})
_PROPERTY_COLUMNS = {"tags": PROPERTY_TAGS, "keys": PROPERTY_KEYS, "msgId": PROPERTY_UNIQUE_KEY}
_WRONG_CRC = "its CRC is not the one that was stored with it"


def decode(
    buffer: Buffer,
    offsets: Offsets,
    columns: Sequence[str] = COLUMNS,
    *,
    broker_name: str = "",
    decompress: bool = True,
    crc: Crc = "off",
) -> Iterator[pa.RecordBatch]:
    """Decode the records at *offsets* of *buffer*, in that order.

    ``walk`` finds *offsets*. *crc* compares bodies with their stored CRC: ``flag`` reports the
    result in the column crcOk, ``fail`` raises.

    Raises:
        PipelineError: a record is invalid, a body does not decompress or has a wrong CRC (the error
            names the place), or a package is missing.
    """
    decoder = Decoder(columns, broker_name=broker_name, decompress=decompress, crc=crc)
    if not len(offsets):
        return
    records = read_records(np.frombuffer(buffer, np.uint8), np.asarray(offsets, np.int64))
    unsound = np.flatnonzero(~records.sound)
    if len(unsound):
        raise PipelineError(
            f"the sizes in the record at byte {records.offsets[unsound[0]]} do not add up, so the "
            "bytes are damaged or no records: get them again, or leave that place out"
        )
    yield from decoder.batches(records)


class Decoder:
    """Decodes records with one set of columns and rules."""

    def __init__(
        self,
        columns: Sequence[str],
        *,
        broker_name: str = "",
        decompress: bool = True,
        crc: Crc = "off",
        failed: Failure | None = None,
    ) -> None:
        """Without *failed*, a damaged body or inner batch raises PipelineError.

        With *failed*, such messages are left out, and *failed* is called with the commit log offset
        and the reason of each.
        """
        self.schema = arrow_schema(columns)
        self._columns = tuple(columns)
        self._broker_name = broker_name or None
        self._decompress = decompress and "body" in columns
        self._crc = crc
        self._failed = failed or _raise

    def batches(self, records: Records) -> Iterator[pa.RecordBatch]:
        """Yield the batches of *records*, all of which must be sound."""
        start = 0
        count = len(records)
        while start < count:
            stop = self._batch_end(records, start)
            part = records if stop - start == count else pick(records, slice(start, stop))
            start = stop
            yield from self._decode(part)

    def _batch_end(self, records: Records, start: int) -> int:
        stop = min(start + BATCH_ROWS_MAX, len(records))
        limit = int(records.offsets[start]) + BATCH_SIZE_BYTES_MAX
        if records.ends[stop - 1] > limit:
            stop = int(np.searchsorted(records.ends[start:stop], limit, side="right")) + start
        return max(stop, start + 1)

    def _decode(self, records: Records) -> Iterator[pa.RecordBatch]:
        records, crc_ok = self._check_crcs(records)
        unwrapped = Unwrapped(records)
        records = unwrapped.records
        if crc_ok is not None and unwrapped.row_of is not None:
            crc_ok = crc_ok[unwrapped.row_of]
        if unwrapped.failures:
            keep = _all_but(len(records), unwrapped.failures)
            records = self._leave_out(records, unwrapped.failures)
            crc_ok = None if crc_ok is None else crc_ok[keep]
        # Unwrapping can turn a few records into many.
        for start in range(0, len(records), BATCH_ROWS_MAX):
            chosen = slice(start, start + BATCH_ROWS_MAX)
            part = records if len(records) <= BATCH_ROWS_MAX else pick(records, chosen)
            yield from self._build(part, None if crc_ok is None else crc_ok[chosen])

    def _check_crcs(self, records: Records) -> tuple[Records, npt.NDArray[np.bool_] | None]:
        """Return the records to decode, and which have a valid CRC; None if it is not checked."""
        if self._crc == "off":
            return records, None
        damaged = damaged_bodies(records)
        if self._crc == "fail" and damaged.any():
            rows = np.flatnonzero(damaged).tolist()
            records = self._leave_out(records, dict.fromkeys(rows, _WRONG_CRC))
            damaged = np.zeros(len(records), np.bool_)
        return records, ~damaged

    def _leave_out(self, records: Records, failures: dict[int, str]) -> Records:
        for row, reason in failures.items():
            self._failed(int(records.heads["physOffset"][row]), reason)
        return pick(records, _all_but(len(records), failures))

    def _build(
        self, records: Records, crc_ok: npt.NDArray[np.bool_] | None
    ) -> Iterator[pa.RecordBatch]:
        while len(records):
            bodies = Bodies(records, self._decompress)
            failures = {row: why for row, why in bodies.failures.items() if row < bodies.count}
            if failures:
                keep = _all_but(len(records), failures)
                records = self._leave_out(records, failures)
                crc_ok = None if crc_ok is None else crc_ok[keep]
                continue
            rest = slice(bodies.count, None)
            part = records if bodies.count == len(records) else pick(records, slice(bodies.count))
            yield self._batch(part, bodies, None if crc_ok is None else crc_ok[: bodies.count])
            if bodies.count == len(records):
                return
            records = pick(records, rest)
            crc_ok = None if crc_ok is None else crc_ok[rest]

    def _batch(
        self, records: Records, bodies: Bodies, crc_ok: npt.NDArray[np.bool_] | None
    ) -> pa.RecordBatch:
        row = _Columns(records, bodies, crc_ok, self._broker_name)
        return pa.RecordBatch.from_arrays(
            [row.column(field.name, field.type) for field in self.schema], schema=self.schema
        )


class _Columns:
    """The columns of one batch; computes shared intermediate results once."""

    def __init__(
        self,
        records: Records,
        bodies: Bodies,
        crc_ok: npt.NDArray[np.bool_] | None,
        broker_name: str | None,
    ) -> None:
        self._records = records
        self._bodies = bodies
        self._crc_ok = crc_ok
        self._broker_name = broker_name
        self._split: Properties | None = None
        self._ids: Any = None

    def column(self, name: str, kind: Any) -> Any:
        """Return the column *name* as an array of the Arrow type *kind*."""
        heads = self._records.heads
        if name in _INT32_COLUMNS:
            return pa.array(heads[name].astype(np.int32))
        if name in _INT64_COLUMNS:
            return pa.array(heads[name].astype(np.int64))
        if name in _TIME_COLUMNS:
            return _times(heads[name].astype(np.int64), kind)
        if name in _PROPERTY_COLUMNS:
            return self._property(name)
        return _MAKERS[name](self, kind)

    def _property(self, name: str) -> Any:
        values = self._properties().values_of(_PROPERTY_COLUMNS[name])
        if name == "msgId" and values.null_count:
            ids = self._offset_ids()
            return ids if values.null_count == len(values) else pc.coalesce(values, ids)
        return values

    def _properties(self) -> Properties:
        if self._split is None:
            records = self._records
            self._split = Properties(records.data, records.properties_start, records.ends)
        return self._split

    def _raw_properties(self, _kind: Any) -> Any:
        records = self._records
        return gather(records.data, records.properties_start, records.ends, pa.binary())

    def _offset_ids(self, _kind: Any = None) -> Any:
        if self._ids is None:
            self._ids = offset_message_ids(self._records)
        return self._ids

    def _topic(self, _kind: Any) -> Any:
        return topics(self._records)

    def _broker(self, _kind: Any) -> Any:
        return constant(self._broker_name, len(self._records))

    def _body(self, _kind: Any) -> Any:
        return self._bodies.as_array(self._records)

    def _map(self, kind: Any) -> Any:
        return self._properties().as_map(kind)

    def _born_host(self, _kind: Any) -> Any:
        starts = born_host_start(self._records)
        return host_texts(self._records, starts, SYS_FLAG_BORN_HOST_V6)

    def _store_host(self, _kind: Any) -> Any:
        starts = store_host_start(self._records)
        return host_texts(self._records, starts, SYS_FLAG_STORE_HOST_V6)

    def _crc(self, kind: Any) -> Any:
        if self._crc_ok is None:
            return pa.nulls(len(self._records), kind)
        return pa.array(self._crc_ok, mask=self._records.body_end == self._records.body_start)

    def _nothing(self, kind: Any) -> Any:
        return pa.nulls(len(self._records), kind)


_MAKERS: dict[str, Callable[[_Columns, Any], Any]] = {
    "topic": _Columns._topic,
    "brokerName": _Columns._broker,
    "body": _Columns._body,
    "properties": _Columns._map,
    "rawProperties": _Columns._raw_properties,
    "offsetMsgId": _Columns._offset_ids,
    "bornHost": _Columns._born_host,
    "storeHost": _Columns._store_host,
    "crcOk": _Columns._crc,
    "corrupt": _Columns._nothing,
}


def topics(records: Records) -> Any:
    """Return the topic of each record; bytes that are not UTF-8 become U+FFFD."""
    raw = gather(records.data, records.topic_start, records.topic_end, pa.binary())
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([row.decode("utf-8", "replace") for row in raw.to_pylist()], pa.string())


def _times(ms: npt.NDArray[np.int64], kind: Any) -> Any:
    if ms.max() > CALENDAR_MS_MAX or ms.min() < CALENDAR_MS_MIN:
        ms = np.clip(ms, CALENDAR_MS_MIN, CALENDAR_MS_MAX)
    return pa.array(ms * 1000).view(kind)


def _all_but(count: int, rows: dict[int, str]) -> npt.NDArray[np.bool_]:
    keep = np.ones(count, np.bool_)
    keep[list(rows)] = False
    return keep


def _raise(offset: int, reason: str) -> None:
    raise PipelineError(
        f"the message at commit log offset {offset} is damaged: {reason}; read without it "
        "(corruptRecords=skip), as it was stored (decompress=false), or without checking "
        "(verifyCrc=off)"
    )
