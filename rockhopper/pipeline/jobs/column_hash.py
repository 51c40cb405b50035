"""A hash of all columns of a message besides the body, summed like the hash of bodies.

In each row, each column has a hash of its value, its name and the queue offset. The hash of a row
is their sum, modulo 2^64, and that of a queue is the sum over its rows (pipeline.jobs.body_hash).
An audit uses these hashes to compare the log with an archive, column by column.

Not included are ``topic`` and ``brokerName``, which group the sums, ``body``, and ``value``.
"""

from typing import Any, TypeAlias
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rockhopper.pipeline.jobs.body_hash import WEIGHT, Numbers, body_edges, mix
from rockhopper.pipeline.schema import COLUMNS, arrow_schema

HASHED_COLUMNS = tuple(name for name in COLUMNS if name not in ("topic", "brokerName", "body"))

_SCHEMA = arrow_schema(HASHED_COLUMNS)
_FEW_VALUES = ("tags", "bornHost", "storeHost")
_SEEDS = {name: np.uint64(crc32(name.encode()) << 31 | 1) for name in HASHED_COLUMNS}
_WORD_BYTES = 8
_LOW_BYTES = np.array([(1 << 8 * n) - 1 for n in range(_WORD_BYTES + 1)], np.uint64)
_NULL = np.uint64(0x6E756C6C << 24)

ColumnSums: TypeAlias = tuple[int, ...]
"""The sums of some rows, in the order of HASHED_COLUMNS."""

NO_SUMS: ColumnSums = (0,) * len(HASHED_COLUMNS)


def column_hashes(batch: pa.RecordBatch) -> dict[str, Numbers]:
    """Return the hash of each row, by column.

    Raises:
        KeyError: a column is missing.
        pa.ArrowException: a column has another type.
    """
    places = (batch.column("queueOffset").to_numpy().astype(np.uint64) + np.uint64(1)) * WEIGHT
    found = {}
    for name in HASHED_COLUMNS:
        values = batch.column(name)
        kind = _SCHEMA.field(name).type
        if values.type != kind:
            values = values.cast(kind)
        numbers = _numbers(name, values)
        if values.null_count:
            numbers = np.where(values.is_null().to_numpy(zero_copy_only=False), _NULL, numbers)
        found[name] = mix(numbers * _SEEDS[name] ^ places)
    return found


def sum_columns(hashes: dict[str, Numbers], rows: Any = slice(None)) -> ColumnSums:
    """Sum the hashes from ``column_hashes`` over *rows*."""
    return tuple(int(hashes[name][rows].sum(dtype=np.uint64)) for name in HASHED_COLUMNS)


def add_sums(one: ColumnSums, other: ColumnSums) -> ColumnSums:
    """Add the sums of two parts."""
    return tuple((a + b) % (1 << 64) for a, b in zip(one, other, strict=True))


def compute_total(sums: ColumnSums) -> int:
    """Return the value that manifests of format 3 hold for these columns."""
    return sum(sums) % (1 << 64)


def _numbers(name: str, values: Any) -> Numbers:
    """Return a number for each value; the number for null is arbitrary."""
    kind = values.type
    if pa.types.is_map(kind):
        return _map_numbers(values)
    if not pa.types.is_string(kind):
        whole = values.cast(pa.int64()) if kind != pa.timestamp("us", "UTC") else values
        plain = whole.view(pa.int64()).fill_null(0).to_numpy()
        numbers: Numbers = plain.astype(np.uint64)
        return numbers
    if name in _FEW_VALUES:
        coded = values.dictionary_encode()
        table = np.append(_text_numbers(coded.dictionary), np.uint64(0))
        picked: Numbers = table[coded.indices.fill_null(len(table) - 1).to_numpy()]
        return picked
    return _text_numbers(values)


def _text_numbers(values: Any) -> Numbers:
    if not len(values):
        return np.zeros(0, np.uint64)
    edges = body_edges(values)
    return _span_numbers(_pad(values.buffers()[2]), edges)


def _map_numbers(values: Any) -> Numbers:
    """Return a number for each row from its names, its values, and their sizes."""
    if not len(values):
        return np.zeros(0, np.uint64)
    rows = values.offsets.to_numpy()
    keys, items = values.keys, values.items
    key_edges, item_edges = body_edges(keys), body_edges(items)
    sizes = np.stack((np.diff(key_edges), np.diff(item_edges)), axis=1).astype("<i4")
    found = _span_numbers(_pad(keys.buffers()[2]), key_edges[rows])
    found ^= mix(_span_numbers(_pad(items.buffers()[2]), item_edges[rows]))
    numbers: Numbers = found + _span_numbers(_pad(sizes.tobytes()), rows * _WORD_BYTES)
    return numbers


def _pad(buffer: Any) -> npt.NDArray[np.uint8]:
    data = np.frombuffer(buffer, np.uint8) if buffer is not None else np.empty(0, np.uint8)
    return np.append(data, np.zeros(_WORD_BYTES, np.uint8))


def _span_numbers(data: npt.NDArray[np.uint8], edges: npt.NDArray[Any]) -> Numbers:
    """Return a number for each span between *edges*; read eight bytes of all spans at a time."""
    words: Numbers = np.ndarray(
        shape=(len(data) - _WORD_BYTES + 1,), dtype="<u8", buffer=data, strides=(1,)
    )
    at, left = edges[:-1].astype(np.int64), np.diff(edges).astype(np.int64)
    found = left.astype(np.uint64)
    rows = np.arange(len(left))
    while (goes_on := left > 0).any():
        if not goes_on.all():
            rows, at, left = rows[goes_on], at[goes_on], left[goes_on]
        part = found[rows] ^ (words[at] & _LOW_BYTES[np.minimum(left, _WORD_BYTES)])
        part *= WEIGHT
        found[rows] = part ^ (part >> np.uint64(29))
        at, left = at + _WORD_BYTES, left - _WORD_BYTES
    return found
