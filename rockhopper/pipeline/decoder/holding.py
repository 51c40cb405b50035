"""Skip records before decoding: select those whose bytes contain the search text."""

import numpy as np
import numpy.typing as npt

from rockhopper.pipeline.decoder.records import Records, pick
from rockhopper.pipeline.decoder.walk import Offsets
from rockhopper.protocol.sys_flags import SYS_FLAG_COMPRESSED

Mask = npt.NDArray[np.bool_]


def holding(data: bytes, starts: Offsets, ends: Offsets, needle: bytes) -> Mask:
    """Return which of the ascending pieces [start, end) of *data* contain *needle*, as a mask."""
    found = np.zeros(len(starts), np.bool_)
    at = data.find(needle)
    while at >= 0:
        row = int(np.searchsorted(starts, at, side="right")) - 1
        if at + len(needle) <= ends[row]:
            found[row] = True
            at = data.find(needle, int(ends[row]))
        else:
            at = data.find(needle, at + 1)
    return found


def candidates(records: Records, needles: tuple[bytes, ...]) -> Records | None:
    """Return the records that contain all *needles*, or are compressed; None if there are none."""
    if not needles:
        return records
    compressed: Mask = (records.heads["sysFlag"] & SYS_FLAG_COMPRESSED) != 0
    chosen = np.ones(len(records), np.bool_)
    start, end = int(records.offsets[0]), int(records.ends[-1])
    data = records.data[start:end].tobytes()
    starts, ends = records.offsets - start, records.ends - start
    for needle in sorted(needles, key=len, reverse=True):
        chosen &= holding(data, starts, ends, needle)
        if not chosen.any():
            break
    chosen |= compressed
    return pick(records, np.flatnonzero(chosen)) if chosen.any() else None
