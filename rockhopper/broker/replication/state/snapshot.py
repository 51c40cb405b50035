"""Snapshots: the complete replicated state as a sequence of entries, and their split into pieces.

A snapshot is consistent: nothing changes while it is made. Records of later changes follow it.
"""

import zlib
from collections.abc import Iterator

from rockhopper.broker.kernel.persistence import Tables
from rockhopper.broker.kernel.state_records import (
    PIECE_SIZE_BYTES,
    Entry,
    StateKind,
    StateRecordError,
    decode_entries,
    decode_piece,
    encode_document,
    encode_entries,
    encode_piece,
)
from rockhopper.protocol import fastjson

_COMPRESSION = 1


def pieces_of(tables: Tables) -> list[Entry]:
    """Return a snapshot of an open broker, with one entry for each record of the topic."""
    data = zlib.compress(encode_entries(_entries_of(tables)), _COMPRESSION)
    size_bytes = min(PIECE_SIZE_BYTES, tables.config.store.commit_log_file_size_bytes // 4)
    starts = range(0, len(data), size_bytes)
    return [
        (StateKind.SNAPSHOT, encode_piece(at, len(starts), data[start : start + size_bytes]))
        for at, start in enumerate(starts)
    ]


def _entries_of(tables: Tables) -> Iterator[Entry]:
    for name, (table, state) in tables.replicated.items():
        document = fastjson.dumps(state.document(table)).encode()
        yield StateKind.DOCUMENT, encode_document(name, document)
    for state in tables.states:
        yield from state.snapshot()


class Pieces:
    """Collects the pieces of a snapshot as they arrive."""

    def __init__(self) -> None:
        self._data: list[bytes] = []

    def __bool__(self) -> bool:
        return bool(self._data)

    def append(self, payload: bytes) -> list[Entry] | None:
        """Add the next piece; return all entries after the last one.

        Raises:
            StateRecordError: the content of the pieces is invalid.
        """
        number, count, data = decode_piece(payload)
        if number == 0:
            self._data.clear()
        elif number != len(self._data):
            return None
        self._data.append(data)
        if len(self._data) < count:
            return None
        try:
            whole = zlib.decompress(b"".join(self._data))
        except zlib.error as error:
            raise StateRecordError(f"its snapshot cannot be unpacked: {error}") from None
        finally:
            self._data.clear()
        return list(decode_entries(whole))
