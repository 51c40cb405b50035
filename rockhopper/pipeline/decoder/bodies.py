"""Message bodies: check their CRC, and decompress them."""

from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rockhopper.pipeline.decoder.codecs import decompress
from rockhopper.pipeline.decoder.records import Records
from rockhopper.pipeline.decoder.strings import gather
from rockhopper.protocol.errors import CompressionError
from rockhopper.protocol.store.message_codec.record import BODY_CRC_MASK
from rockhopper.protocol.store.message_codec.record_check import OWN_CRC_NAME, is_own_crc_right
from rockhopper.protocol.sys_flags import SYS_FLAG_COMPRESSED

BATCH_SIZE_BYTES_MAX = 32 << 20
"""The target size of a batch; a JVM loads a whole batch at once."""


def body_crcs(records: Records) -> npt.NDArray[np.int64]:
    """The CRC of each body, masked as in the record head."""
    data = records.data.data
    mask = BODY_CRC_MASK
    bounds = zip(records.body_start.tolist(), records.body_end.tolist(), strict=True)
    return np.array([crc32(data[start:end]) & mask for start, end in bounds], dtype=np.int64)


def damaged_bodies(records: Records) -> npt.NDArray[np.bool_]:
    """Return a mask of the records whose body differs from the stored CRC; empty bodies pass."""
    differs = body_crcs(records) != records.heads["bodyCrc"]
    found: npt.NDArray[np.bool_] = differs & (records.body_end > records.body_start)
    return found


def damaged_records(records: Records) -> list[int]:
    """Return the rows of records whose own CRC, at the end of the record, is wrong."""
    data = records.data.data
    if not len(records) or OWN_CRC_NAME not in bytes(data[records.offsets[0] : records.ends[-1]]):
        return []
    bounds = zip(records.offsets.tolist(), records.ends.tolist(), strict=True)
    return [
        row for row, (at, end) in enumerate(bounds) if not is_own_crc_right(bytes(data[at:end]))
    ]


class Bodies:
    """The decoded bodies of records, cut off where a batch would become too large."""

    def __init__(self, records: Records, is_wanted: bool) -> None:
        """*is_wanted* decompresses the bodies; ``count`` records fit in one batch."""
        self.failures: dict[int, str] = {}
        """Row -> reason, for records whose body does not decompress."""
        self.count = len(records)
        self._plain: dict[int, bytes] = {}
        if is_wanted:
            compressed = np.flatnonzero(records.heads["sysFlag"] & SYS_FLAG_COMPRESSED)
            if len(compressed):
                self._decompress(records, compressed.tolist())

    def _decompress(self, records: Records, rows: list[int]) -> None:
        total = 0
        for row in rows:
            body = records.data[records.body_start[row] : records.body_end[row]].tobytes()
            sys_flag = int(records.heads["sysFlag"][row])
            try:
                plain = decompress(body, sys_flag)
            except CompressionError as error:
                self.failures[row] = str(error)
                continue
            total += len(plain)
            if total > BATCH_SIZE_BYTES_MAX and row:
                self.count = row
                return
            self._plain[row] = plain

    def as_array(self, records: Records) -> Any:
        """Return the first ``count`` bodies; a body that does not decompress stays as stored."""
        count = self.count
        stored = gather(
            records.data, records.body_start[:count], records.body_end[:count], pa.binary()
        )
        rows = [row for row in self._plain if row < count]
        if not rows:
            return stored
        places = np.arange(count)
        places[rows] = count + np.arange(len(rows))
        plain = pa.array([self._plain[row] for row in rows], pa.binary())
        return pa.concat_arrays([stored, plain]).take(pa.array(places))
