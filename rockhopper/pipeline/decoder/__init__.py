"""Decode commit log records into Arrow batches, vectorised; no knowledge of Spark or files.

    found = walk(buffer, 0, len(buffer))
    for batch in decode(buffer, found.offsets, COLUMNS, broker_name="broker-a"):
        ...

A pull response holds the same records as a commit log file.
"""

from rockhopper.pipeline.decoder.decode import BATCH_ROWS_MAX, Decoder, decode
from rockhopper.pipeline.decoder.holding import candidates, holding
from rockhopper.pipeline.decoder.records import Records, pick, read_records
from rockhopper.pipeline.decoder.walk import (
    Buffer,
    Offsets,
    Stop,
    Walk,
    are_in_row,
    is_record,
    resync,
    walk,
)

__all__ = [
    "BATCH_ROWS_MAX",
    "Buffer",
    "Decoder",
    "Offsets",
    "Records",
    "Stop",
    "Walk",
    "are_in_row",
    "candidates",
    "decode",
    "holding",
    "is_record",
    "pick",
    "read_records",
    "resync",
    "walk",
]
