"""Bodies: whether they are the ones that were stored, and what they were compressed from."""

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
"""What a batch aims to stay below; a JVM takes a whole batch at once."""


def body_crcs(records: Records) -> npt.NDArray[np.int64]:
    """The CRC of each body as it is, by the rule by which it is stored."""
    data = records.data.data
    mask = BODY_CRC_MASK
    bounds = zip(records.body_start.tolist(), records.body_end.tolist(), strict=True)
    return np.array([crc32(data[start:end]) & mask for start, end in bounds], dtype=np.int64)


def damaged_bodies(records: Records) -> npt.NDArray[np.bool_]:
    """Of which records the body is not the one that was stored; nothing is said of no body."""
    differs = body_crcs(records) != records.heads["bodyCrc"]
    found: npt.NDArray[np.bool_] = differs & (records.body_end > records.body_start)
    return found


def damaged_records(records: Records) -> list[int]:
    """Rows of records that end with a CRC of their own, and it is another."""
    data = records.data.data
    if not len(records) or OWN_CRC_NAME not in bytes(data[records.offsets[0] : records.ends[-1]]):
        return []
    bounds = zip(records.offsets.tolist(), records.ends.tolist(), strict=True)
    return [
        row for row, (at, end) in enumerate(bounds) if not is_own_crc_right(bytes(data[at:end]))
    ]


class Bodies:
    """The bodies of records as they are handed out, cut off where a batch would become too big."""

    def __init__(self, records: Records, is_wanted: bool) -> None:
        """*is_wanted* decompresses; ``count`` says how many records fit into one batch."""
        self.failures: dict[int, str] = {}
        """Records whose body does not decompress, and why not."""
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
        """The first ``count`` bodies; one that does not decompress is as it was stored."""
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
