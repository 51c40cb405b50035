"""What has changed in a table of the broker since its file was written.

``<store>/rockhopper/tables/<name of the file>/<20-digit number>.records`` are files of records
(note_records.py) of two kinds, in order::

    1   SHA-1 of the file that the following changes are of, in hex
    2   {"name": …, "value": …, "version": …}     an entry as it is now; null: there is none

Changes count for the file that a record in front of them names, or for a file whose backup is that
one. A file that somebody else has written since counts alone.
"""

import hashlib
import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from rockhopper.protocol.store.note_records import Record, encode_record

DIRECTORY = "tables"
SUFFIX = ".records"
FILE, CHANGE = 1, 2


class TableChange(NamedTuple):
    """One entry of a table."""

    name: str
    value: Any
    """None: it is gone."""
    version: Any
    """The table's dataVersion with it."""


def fingerprint(content: bytes) -> str:
    """What stands for the bytes of a file."""
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()


def encode_file(sha: str) -> bytes:
    """The record in front of the changes of a file."""
    return encode_record(FILE, sha.encode())


def encode_change(change: TableChange) -> bytes:
    """The record of one change."""
    return encode_record(CHANGE, json.dumps(change._asdict(), separators=(",", ":")).encode())


def changes_of(records: Iterable[Record], shas: Iterable[str]) -> list[TableChange]:
    """The changes of a file that has one of these fingerprints. Raises ValueError."""
    known = set(shas)
    is_ours = False
    found: list[TableChange] = []
    for kind, payload in records:
        if kind == FILE:
            is_ours = payload.decode() in known
        elif kind == CHANGE and is_ours:
            change = json.loads(payload)
            found.append(TableChange(change["name"], change["value"], change["version"]))
    return found
