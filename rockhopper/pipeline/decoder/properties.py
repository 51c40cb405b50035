r"""Parse the property strings of many messages at once, into maps or single properties.

The rules are those of protocol.properties.decode_properties. A pair ends at \x02 or at the end of
the string. Its name ends at the first \x01. Pairs without a name or a value are dropped. If a name
occurs twice, the last pair counts. Bytes that are not UTF-8 become U+FFFD.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rockhopper.pipeline.decoder.records import Bytes
from rockhopper.pipeline.decoder.strings import buffers_of, gather

_PAIR_END = 2
_NAME_END = 1
# Masks for the lowest n bytes of a little-endian word.
_LOW_BYTES = np.array([(1 << 8 * n) - 1 for n in range(9)], dtype=np.uint64)
_ODD = np.uint64(0x9E3779B97F4A7C15)
_PADDING_BYTES = 8
_COMPARED_PAIRS_MAX = 24

Positions = npt.NDArray[np.int64]


class Properties:
    """The pairs of all rows, in one sequence."""

    def __init__(self, data: Bytes, starts: Positions, ends: Positions) -> None:
        """Split the string of each message, at [start, end) of *data*.

        The byte before each string belongs to no string: in a record it is part of the size field.
        """
        raw = gather(data, starts - 1, ends, pa.binary())
        edges, pairs = buffers_of(raw)
        # Every pair now lies between two pair ends, even a last pair without an end mark.
        pairs[edges[:-1]] = _PAIR_END
        if pairs.max(initial=0) >= 0x80:
            edges, pairs = _as_utf8(raw, edges, pairs)
        self._data = pairs
        self._edges = edges
        self._find_pairs()

    def _find_pairs(self) -> None:
        data = self._data
        separators = np.flatnonzero((data - np.uint8(1)) < 2)
        kinds = np.append(data[separators], np.uint8(_PAIR_END))
        separators = np.append(separators, len(data))
        first_ones = np.flatnonzero((kinds[1:] == _NAME_END) & (kinds[:-1] == _PAIR_END)) + 1
        followers = first_ones + 1
        if not (kinds[followers] == _PAIR_END).all():  # a value contains \x01
            pair_ends = np.flatnonzero(kinds == _PAIR_END)
            followers = pair_ends[np.searchsorted(pair_ends, first_ones)]
        starts = separators[first_ones - 1] + 1
        name_ends = separators[first_ones]
        ends = separators[followers]
        named = (name_ends > starts) & (name_ends + 1 < ends)
        if not named.all():
            starts, name_ends, ends = starts[named], name_ends[named], ends[named]
        self._starts: Positions = starts
        self._name_ends: Positions = name_ends
        self._ends: Positions = ends
        self._count_rows()
        self._code_names()
        self._drop_repeated_names()

    def _count_rows(self) -> None:
        self._row_edges = np.searchsorted(self._starts, self._edges).astype(np.int32)

    def _code_names(self) -> None:
        """Compute the first eight bytes and the size of each name; they identify a short name."""
        padded = np.zeros(len(self._data) + 2 * _PADDING_BYTES, np.uint8)
        padded[_PADDING_BYTES : _PADDING_BYTES + len(self._data)] = self._data
        self._words: npt.NDArray[np.uint64] = np.ndarray(
            shape=(len(padded) - 7,), dtype="<u8", buffer=padded, strides=(1,)
        )
        self._name_sizes = self._name_ends - self._starts
        self._name_heads = self._words[self._starts + _PADDING_BYTES]
        self._name_heads &= _LOW_BYTES[np.minimum(self._name_sizes, 8)]

    def _drop_repeated_names(self) -> None:
        counts = np.diff(self._row_edges)
        longest = int(counts.max(initial=0))
        if longest < 2:
            return
        codes = self._name_heads * _ODD + self._name_sizes.astype(np.uint64)
        long = self._name_sizes > 8
        if long.any():
            tails = self._words[self._name_ends[long]]
            codes[long] += tails * (_ODD << np.uint64(1) | np.uint64(1))
        rows = np.repeat(np.arange(len(counts)), counts)
        suspects: set[int] = set()
        if longest <= _COMPARED_PAIRS_MAX:
            for distance in range(1, longest):
                same = codes[distance:] == codes[:-distance]
                if same.any():
                    same &= rows[distance:] == rows[:-distance]
                    suspects.update(rows[:-distance][same].tolist())
        else:
            order = np.lexsort((codes, rows))
            same = codes[order][1:] == codes[order][:-1]
            same &= rows[order][1:] == rows[order][:-1]
            suspects.update(rows[order][:-1][same].tolist())
        if suspects:
            self._drop_repeats_in(suspects)

    def _drop_repeats_in(self, rows: set[int]) -> None:
        keep = np.ones(len(self._starts), np.bool_)
        for row in rows:
            last: dict[bytes, int] = {}
            for pair in range(self._row_edges[row], self._row_edges[row + 1]):
                name = self._data[self._starts[pair] : self._name_ends[pair]].tobytes()
                if name in last:
                    keep[last[name]] = False
                last[name] = pair
        self._starts = self._starts[keep]
        self._name_ends = self._name_ends[keep]
        self._ends = self._ends[keep]
        self._name_sizes = self._name_sizes[keep]
        self._name_heads = self._name_heads[keep]
        self._count_rows()

    def as_map(self, kind: Any) -> Any:
        """Return one map for each row, of the Arrow map type *kind*."""
        names = gather(self._data, self._starts, self._name_ends, pa.string())
        values = gather(self._data, self._name_ends + 1, self._ends, pa.string())
        pairs = pa.StructArray.from_arrays(
            [names, values], fields=[kind.key_field, kind.item_field]
        )
        rows = len(self._row_edges) - 1
        edges = pa.py_buffer(np.ascontiguousarray(self._row_edges))
        return pa.Array.from_buffers(kind, rows, [None, edges], children=[pairs])

    def values_of(self, name: str) -> Any:
        """Return the value of the property *name* for each row, or null.

        *name* has at most eight ASCII characters.
        """
        head = np.uint64(int.from_bytes(name.encode(), "little"))
        hits = np.flatnonzero((self._name_heads == head) & (self._name_sizes == len(name)))
        found = gather(self._data, self._name_ends[hits] + 1, self._ends[hits], pa.string())
        rows = len(self._row_edges) - 1
        if len(hits) == rows:
            return found
        if not len(hits):
            return pa.nulls(rows, pa.string())
        places = np.zeros(rows, np.int32)
        missing = np.ones(rows, np.bool_)
        hit_rows = np.searchsorted(self._row_edges, hits, side="right") - 1
        places[hit_rows] = np.arange(len(hits))
        missing[hit_rows] = False
        return found.take(pa.array(places, mask=missing))


def _as_utf8(raw: Any, edges: Any, data: Bytes) -> tuple[Any, Bytes]:
    try:
        raw.cast(pa.string())
    except pa.ArrowInvalid:
        repaired = [row.decode("utf-8", "replace").encode() for row in raw.to_pylist()]
        return buffers_of(pa.array(repaired, pa.binary()))
    return edges, data
