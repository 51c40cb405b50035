"""The changes of a table of the broker since its file was written.

``<store>/rockhopper/tables/<name of the file>/<20-digit number>.records`` are files of records
(journal_records.py) of two kinds, in order::

    1   SHA-1 of the file that the following changes belong to, in hex
    2   {"name": …, "value": …, "version": …}     an entry's new state; null: deleted

Changes apply to the file named by the preceding record of kind 1, or to a file whose backup is that
one. If another program has written the file since, it applies without changes.
"""

import hashlib
import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from rockhopper.protocol.store.journal_records import Record, encode_record

DIRECTORY = "tables"
SUFFIX = ".records"
FILE, CHANGE = 1, 2


class TableChange(NamedTuple):
    """A change of one entry of a table."""

    name: str
    value: Any
    """None: the entry was deleted."""
    version: Any
    """The table's dataVersion after the change."""


def fingerprint(content: bytes) -> str:
    """Return the hash that identifies the content of a file."""
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()


def encode_file(sha: str) -> bytes:
    """Return the record before the changes of a file."""
    return encode_record(FILE, sha.encode())


def encode_change(change: TableChange) -> bytes:
    """Return the record of one change."""
    return encode_record(CHANGE, json.dumps(change._asdict(), separators=(",", ":")).encode())


def changes_of(records: Iterable[Record], shas: Iterable[str]) -> list[TableChange]:
    """Return the changes that belong to a file with one of these hashes. Raises ValueError."""
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
