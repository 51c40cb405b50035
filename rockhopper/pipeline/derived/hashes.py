"""Compute Java's ``String.hashCode`` for many pieces of one buffer at once.

31 is odd and so has an inverse modulo 2³². Let S(i) be the sum of c(j)·31⁻ʲ over all j before i.
Then the hash of the bytes [a, b) is 31ᵇ⁻¹·(S(b) − S(a)). One running sum serves all pieces,
whatever their sizes. This holds for ASCII; other pieces are hashed one by one (protocol.java_hash).

Example: for "ab" at [0, 2) it is 31·(97 + 98·31⁻¹) = 97·31 + 98 = 3105, as in Java.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from rockhopper.protocol.java_hash import java_string_hash

Hashes = npt.NDArray[np.uint32]
Positions = npt.NDArray[np.int64]

_INVERSE_OF_31 = pow(31, -1, 2**32)
_SEGMENT_BYTES = 1 << 20
_SIGN = np.uint32(0x80000000)


def _powers(base: int) -> Hashes:
    factors = np.full(_SEGMENT_BYTES + 1, base, np.uint32)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint32)


_POWERS = _powers(31)
_INVERSES = _powers(_INVERSE_OF_31)


def hash_spans(data: npt.NDArray[np.uint8], starts: Positions, ends: Positions) -> Hashes:
    """Return the hash of each piece [start, end) of *data*; pieces are UTF-8 and ascend."""
    hashes = np.zeros(len(starts), np.uint32)
    done = 0
    while done < len(starts):
        base = int(starts[done])
        behind = int(np.searchsorted(ends, base + _SEGMENT_BYTES, side="right"))
        if behind <= done:
            # The piece is longer than one segment.
            text = data[base : int(ends[done])].tobytes().decode("utf-8", "replace")
            hashes[done] = java_string_hash(text) & 0xFFFFFFFF
            done += 1
            continue
        chosen = slice(done, behind)
        hashes[chosen] = _hash_segment(
            data[base : int(ends[behind - 1])], starts[chosen] - base, ends[chosen] - base
        )
        done = behind
    return hashes


def _hash_segment(data: Any, starts: Positions, ends: Positions) -> Hashes:
    sums = np.zeros(len(data) + 1, np.uint32)
    np.cumsum(data * _INVERSES[: len(data)], dtype=np.uint32, out=sums[1:])
    hashes: Hashes = (sums[ends] - sums[starts]) * _POWERS[np.maximum(ends - 1, 0)]
    if len(data) and data.max() >= 0x80:
        wide = np.zeros(len(data) + 1, np.int64)
        np.cumsum(data >= 0x80, out=wide[1:])
        for row in np.flatnonzero(wide[ends] > wide[starts]).tolist():
            text = data[starts[row] : ends[row]].tobytes().decode("utf-8", "replace")
            hashes[row] = java_string_hash(text) & 0xFFFFFFFF
    return hashes


def combine_hashes(seeds: Hashes, hashes: Hashes, sizes: Positions) -> Hashes:
    """Return the hash of two concatenated strings, from both hashes and the size of the second."""
    within = np.minimum(sizes, _SEGMENT_BYTES)
    joined: Hashes = seeds * _POWERS[within] + hashes
    return joined


def as_index_hash(hashes: Hashes) -> npt.NDArray[np.int32]:
    """Return hashes as index files store them: Java's ``Math.abs``, but 0 for the minimum."""
    magnitude = np.where(hashes >= _SIGN, np.uint32(0) - hashes, hashes)
    magnitude[magnitude == _SIGN] = 0
    return magnitude.astype(np.int32)
