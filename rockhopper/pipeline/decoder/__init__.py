"""Records of the commit log to Arrow batches, vectorised; knows neither Spark nor files.

    found = walk(buffer, 0, len(buffer))
    for batch in decode(buffer, found.offsets, COLUMNS, broker_name="broker-a"):
        ...

The body of an answer to a pull holds the same records as a file of the log does.
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
