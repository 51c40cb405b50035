"""What a store notes of topics that were deleted or purged, for the broker and for other readers.

A file of records (note_records.py) of one kind, 1, each with the topics of one deletion and the
commit log offset in front of which their records do not count, as compact JSON; the last word on a
topic counts. Builds before 0.2.0 wrote all of them into one JSON object, in a file named alike with
``.json``.
"""

import json
from collections.abc import Iterable, Mapping

from rockhopper.protocol.store.note_records import Record, decode_records, encode_record

ENDS = 1


def encode_ends(ends: Mapping[str, int]) -> bytes:
    """One record."""
    return encode_record(ENDS, json.dumps(ends, separators=(",", ":")).encode())


def ends_of(records: Iterable[Record]) -> dict[str, int]:
    """Topic -> commit log offset, of the records of a file."""
    found: dict[str, int] = {}
    for kind, payload in records:
        if kind == ENDS:
            found |= json.loads(payload)
    return found


def decode_ends(data: bytes) -> dict[str, int]:
    """The same of the bytes of a file; what is damaged is left out."""
    return ends_of(decode_records(data).records)


def decode_former_ends(data: bytes) -> dict[str, int]:
    """The same of a file of builds before 0.2.0.

    Raises:
        ValueError: it is damaged.
    """
    try:
        return {str(topic): int(end) for topic, end in json.loads(data).items()}
    except (AttributeError, TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None
