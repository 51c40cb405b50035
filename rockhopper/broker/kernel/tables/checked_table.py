"""A table under ``<store>/rockhopper`` that cannot be restored from anything else.

    {"crc32": …, "dataVersion": …, "entries": {name: value, …}}

The checksum covers the entries as compact JSON with sorted keys. Other fields, from a later
release, are preserved. The file and its ``.bak`` are equal: if one is damaged, the other is used.
If both are damaged, the broker starts without them, because its messages do not depend on this
table, and logs the loss.
"""

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from rockhopper.broker.kernel.tables.json_table import JsonObject, JsonTable
from rockhopper.broker.server.loop.clock import wall_clock_ms
from rockhopper.broker.store.files.errors import CorruptFileError

log = structlog.get_logger("broker.tables")


class CheckedTable(JsonTable):
    """Name -> a JSON value."""

    lost = "its content is lost"
    """The consequence if neither copy can be read."""
    takes_bare_entries = False
    """Whether builds before 0.2.0 wrote the file with only the entries."""

    def __init__(self, path: Path, *, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        super().__init__(path, now_ms=now_ms)
        self.entries: dict[str, Any] = {}
        self._unknown: JsonObject = {}

    def load(self) -> bool:
        """Read the file or its copy; without either the table is empty. Raises OSError."""
        try:
            return super().load()
        except CorruptFileError as error:
            self.entries = {}
            log.error(self.lost, file=str(self.path), reason=str(error))
            return False

    def to_json(self) -> JsonObject:
        """Return the content of the file."""
        entries = self.entries.copy()
        return {
            "crc32": _checksum(entries),
            "dataVersion": self.version.to_json(),
            "entries": entries,
            **self._unknown,
        }

    def from_json(self, document: JsonObject) -> None:
        """Load a stored document. Raises ValueError."""
        if self.takes_bare_entries and "entries" not in document and "crc32" not in document:
            self.entries = document
            return
        entries = document.get("entries")
        if not isinstance(entries, dict):
            raise ValueError("it has no entries")
        if document.get("crc32") != _checksum(entries):
            raise ValueError("its checksum is wrong")
        self.entries = entries
        known = ("crc32", "dataVersion", "entries")
        self._unknown = {name: value for name, value in document.items() if name not in known}

    def set(self, name: str, value: Any) -> None:
        """Store a value, and save soon."""
        self.entries[name] = value
        self._changed(name)

    def forget(self, name: str) -> None:
        """Delete the value of a name, and save soon."""
        if self.entries.pop(name, None) is not None:
            self._changed(name)

    def entry(self, name: str) -> Any:
        """Return the value of a name, or None."""
        return self.entries.get(name)

    def take_entry(self, name: str, value: Any) -> None:
        """Store a value; None deletes it."""
        if value is None:
            self.forget(name)
        else:
            self.set(name, value)

    def _replay(self, name: str, value: Any) -> None:
        if value is None:
            self.entries.pop(name, None)
        else:
            self.entries[name] = value

    def _changed(self, name: str) -> None:
        self.version.advance(self._now_ms())
        self.mark_changed(name)
        self.save_soon()
        self.note_entry(name)


def _checksum(entries: JsonObject) -> int:
    return zlib.crc32(json.dumps(entries, sort_keys=True, separators=(",", ":")).encode())
