"""A hash of many messages' bodies that does not depend on the order in which they are read.

Each message has a hash of its body's CRC-32 and size and of its queue offset; a queue's is the sum
of its messages', modulo 2^64.  So parts of a queue can be hashed anywhere and added up.  It finds
what is damaged, lost, doubled or swapped; it does not resist somebody who means to deceive it.
"""

from __future__ import annotations

import itertools
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

_WEIGHT = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def body_hashes(bodies: Any, queue_offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """The hash of each message; *bodies* are an Arrow array of type binary, null counts as empty.

    A sum of them, by numpy with dtype uint64, wraps as it should.
    """
    if not len(bodies):
        return np.zeros(0, np.uint64)
    ends = np.frombuffer(bodies.buffers()[1], np.int32)[bodies.offset :][: len(bodies) + 1]
    data = memoryview(bodies.buffers()[2] or b"")
    edges = ends.tolist()
    crcs = [crc32(data[start:end]) for start, end in itertools.pairwise(edges)]
    sizes = np.diff(ends).astype(np.uint64)
    mixed = np.array(crcs, np.uint64) | (sizes << np.uint64(32))
    mixed ^= (queue_offsets.astype(np.uint64) + np.uint64(1)) * _WEIGHT
    # The finaliser of splitmix64.
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX_1
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX_2
    result: npt.NDArray[np.uint64] = mixed ^ (mixed >> np.uint64(31))
    return result
