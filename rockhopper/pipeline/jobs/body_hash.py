"""An order-independent hash of the bodies of many messages.

The hash of a message depends on the CRC-32 and size of its body and on its queue offset. The hash
of a queue is the sum of its messages' hashes, modulo 2^64. So parts of a queue can be hashed
separately and added. The hash detects damaged, lost, duplicated or swapped messages; it does not
resist deliberate manipulation.

The CRC is that of RocketMQ, with 31 bits. So a reader that trusts a record need not read its body.
"""

from itertools import pairwise
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rockhopper.protocol.store.message_codec.record import BODY_CRC_MASK
from rockhopper.protocol.sys_flags import SYS_FLAG_COMPRESSED

CRC_BITS = BODY_CRC_MASK.bit_length()
"""Older archives have hashes of CRCs with 32 bits."""

WEIGHT = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)

Numbers = npt.NDArray[np.uint64]


def body_edges(bodies: Any) -> npt.NDArray[np.int32]:
    """Return the start of each of *bodies*, a binary Arrow array, in its data, and the end."""
    return np.frombuffer(bodies.buffers()[1], np.int32)[bodies.offset :][: len(bodies) + 1]


def body_crcs(bodies: Any) -> Numbers:
    """Return the CRC of each body, with 32 bits; null counts as empty."""
    if not len(bodies):
        return np.zeros(0, np.uint64)
    data = memoryview(bodies.buffers()[2] or b"")
    edges = body_edges(bodies).tolist()
    return np.array([crc32(data[start:end]) for start, end in pairwise(edges)], np.uint64)


def stored_crcs(batch: pa.RecordBatch) -> Numbers:
    """Return the CRCs of the bodies of a decoded *batch*, from the records.

    For compressed bodies the CRC is computed, because the record has that of the compressed form.
    """
    crcs: Numbers = batch.column("bodyCrc").to_numpy().astype(np.uint64)
    bodies = batch.column("body")
    crcs[np.diff(body_edges(bodies)) == 0] = 0
    compressed = np.flatnonzero(batch.column("sysFlag").to_numpy() & SYS_FLAG_COMPRESSED)
    if len(compressed):
        crcs[compressed] = body_crcs(bodies.take(pa.array(compressed)))
    return crcs & np.uint64(BODY_CRC_MASK)


def body_hashes(
    crcs: Numbers,
    sizes: npt.NDArray[np.int32],
    queue_offsets: npt.NDArray[np.int64],
    crc_bits: int = CRC_BITS,
) -> Numbers:
    """Return the hash of each message from the CRC and size of its body.

    A numpy sum with dtype uint64 wraps as intended.
    """
    numbers = (crcs & np.uint64((1 << crc_bits) - 1)) | (sizes.astype(np.uint64) << np.uint64(32))
    return mix(numbers ^ (queue_offsets.astype(np.uint64) + np.uint64(1)) * WEIGHT)


def mix(numbers: Numbers) -> Numbers:
    """Apply the finaliser of splitmix64: every input bit changes about half of the output bits."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * _MIX_1
    numbers = (numbers ^ (numbers >> np.uint64(27))) * _MIX_2
    result: Numbers = numbers ^ (numbers >> np.uint64(31))
    return result
