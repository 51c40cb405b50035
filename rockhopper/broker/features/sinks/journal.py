"""The publisher's durable state: the batch that is being published, and each sink's last batch.

``<store>/rockhopper/sinks/intent.json`` exists from the decision to publish a batch until the whole
batch is in the log and on disk. ``published.json`` holds [last batch id, its message count] of each
sink. Both are checked tables (broker/kernel/tables/checked_table.py), whose entries are

    {"sinkId": …, "batchId": …, "messageCount": …, "parts": [file name, …], "fromOffset": …}
    {"<sink id>": [41, 1000], …}

All messages of the batch are at or after the commit log offset ``fromOffset``. Each file has a
checksum and a second copy, ``<name>.bak``, which replaces a damaged file. If both are damaged, the
broker does not start: it could store a batch twice, or not at all.

Builds before 0.2.0 wrote the entries alone; such files are read.
"""

import contextlib
from pathlib import Path
from typing import Any

import msgspec

from rockhopper.broker.kernel.tables.checked_table import CheckedTable
from rockhopper.broker.kernel.tables.json_table import JsonObject
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.disk import backup_path
from rockhopper.broker.store.files.errors import CorruptFileError


class Intent(msgspec.Struct, rename="camel", frozen=True):
    """A batch that will be published, even after a crash."""

    sink_id: str
    batch_id: int
    message_count: int
    parts: list[str]
    from_offset: int


class _SinkTable(CheckedTable):
    """A table without which the broker does not start."""

    takes_bare_entries = True
    kind: Any = None

    def load(self) -> bool:
        """Read the file or its copy, and repair the other; return False if both are missing.

        Raises:
            CorruptFileError: both are damaged.
            OSError: they cannot be read or written.
        """
        if not self.load_or_refuse():
            if self.path.exists() or backup_path(self.path).exists():
                raise CorruptFileError(self.path, _advice("it is empty"))
            return False
        if not self.is_saved:
            self.save()
        return True

    def load_or_refuse(self) -> bool:
        """Read the file or its copy, without a repair. Raises CorruptFileError, OSError."""
        try:
            return super(CheckedTable, self).load()
        except CorruptFileError as error:
            raise CorruptFileError(self.path, _advice(error.reason)) from None

    def from_json(self, document: JsonObject) -> None:
        """Take the entries, or a document of builds before 0.2.0. Raises ValueError."""
        super().from_json(document)
        try:
            msgspec.convert(self.entries, self.kind)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from None


class _PublishedTable(_SinkTable):
    kind = dict[str, tuple[int, int]]

    def _refuses_altered(self, saved: bytes) -> bool:
        # With an older copy from a backup, batches would be published again.
        copy = _PublishedTable(self.path)
        copy._take(saved)
        return any(
            last > self.entries.get(sink_id, (-1,))[0]
            for sink_id, (last, _) in copy.entries.items()
        )


class _IntentTable(_SinkTable):
    kind = Intent


def _advice(reason: str) -> str:
    return (
        f"it cannot be read ({reason}); to start without it, move it and its .bak away, and "
        "compare the last batch of each sink with its job's"
    )


class SinkJournal:
    """The two files. Every method blocks on the disk."""

    def __init__(self, directory: Path) -> None:
        self._intent = directory / "intent.json"
        self._published = directory / "published.json"

    def load_intent(self) -> Intent | None:
        """The batch that an earlier process did not finish. Raises CorruptFileError."""
        table = _IntentTable(self._intent)
        return msgspec.convert(table.entries, Intent) if table.load() else None

    def load_published(self) -> dict[str, tuple[int, int]]:
        """Sink id -> last batch id and its number of messages. Raises CorruptFileError."""
        table = _PublishedTable(self._published)
        table.load()
        return {sink_id: (last, count) for sink_id, (last, count) in table.entries.items()}

    def save_intent(self, intent: Intent) -> None:
        """Store the intent: the batch will be published. Raises OSError: it will not."""
        table = _IntentTable(self._intent)
        table.entries = msgspec.to_builtins(intent)
        try:
            table.save()
        except OSError:
            with contextlib.suppress(OSError):
                self.withdraw_intent()
            raise

    def withdraw_intent(self) -> None:
        """Remove the intent: the batch will not be published. Raises OSError."""
        disk.remove_files([self._intent, backup_path(self._intent)])

    def save_published(self, published: dict[str, tuple[int, int]]) -> None:
        """Remember the last batches. Raises OSError."""
        table = _PublishedTable(self._published)
        table.entries = dict(published)
        table.save()

    def finish(self, parts: list[Path]) -> None:
        """Forget the batch and delete its parts, in this order. Raises OSError."""
        self.withdraw_intent()
        disk.remove_files(parts)

    def set_aside(self, name: str) -> None:
        """Keep the intent under another name. Raises OSError."""
        disk.remove_files([backup_path(self._intent)])
        self._intent.replace(self._intent.with_name(name))
