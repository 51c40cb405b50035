"""A table of ours under ``<store>/rockhopper`` that nothing else could restore.

    {"crc32": …, "dataVersion": …, "entries": {name: value, …}}

The checksum is of the entries as compact JSON with sorted keys. What a later release has beside
these three is written again as it is. The file and its ``.bak`` hold the
same: a damaged one gives way to the other. When both are damaged the broker starts without, since
its messages do not depend on this, and what is lost is said in the log.
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
    """Name -> a value of JSON."""

    lost = "what it held is forgotten"
    """What it means that neither copy can be read."""
    takes_bare_entries = False
    """Whether builds before 0.2.0 wrote the file, the entries alone."""

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
        """The content of the file."""
        entries = self.entries.copy()
        return {
            "crc32": _checksum(entries),
            "dataVersion": self.version.to_json(),
            "entries": entries,
            **self._unknown,
        }

    def from_json(self, document: JsonObject) -> None:
        """Take what was kept. Raises ValueError."""
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
        """Keep a value, and save it soon."""
        self.entries[name] = value
        self._changed(name)

    def forget(self, name: str) -> None:
        """Keep nothing under a name, and save that soon."""
        if self.entries.pop(name, None) is not None:
            self._changed(name)

    def entry(self, name: str) -> Any:
        """What is kept under a name."""
        return self.entries.get(name)

    def take_entry(self, name: str, value: Any) -> None:
        """Keep it, or nothing for None."""
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
        self.on_entry(name)


def _checksum(entries: JsonObject) -> int:
    return zlib.crc32(json.dumps(entries, sort_keys=True, separators=(",", ":")).encode())
