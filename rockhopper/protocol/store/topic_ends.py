"""The store's notes about deleted and purged topics, for the broker and for other readers.

A file of records (journal_records.py) of one kind, 1. Each record contains, as compact JSON, the
topics of one deletion and the commit log offset before which their records are ignored. The last
record about a topic applies. Builds before 0.2.0 wrote all of them into one JSON object, in a file
of the same name with ``.json``.
"""

import json
from collections.abc import Iterable, Mapping

from rockhopper.protocol.store.journal_records import Record, decode_records, encode_record

ENDS = 1


def encode_ends(ends: Mapping[str, int]) -> bytes:
    """Return one record."""
    return encode_record(ENDS, json.dumps(ends, separators=(",", ":")).encode())


def ends_of(records: Iterable[Record]) -> dict[str, int]:
    """Return topic -> commit log offset, from the records of a file."""
    found: dict[str, int] = {}
    for kind, payload in records:
        if kind == ENDS:
            found |= json.loads(payload)
    return found


def decode_ends(data: bytes) -> dict[str, int]:
    """Return the same from the bytes of a file; damaged records are skipped."""
    return ends_of(decode_records(data).records)


def decode_former_ends(data: bytes) -> dict[str, int]:
    """Return the same from a file of builds before 0.2.0.

    Raises:
        ValueError: it is damaged.
    """
    try:
        return {str(topic): int(end) for topic, end in json.loads(data).items()}
    except (AttributeError, TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None
