"""What a publisher must remember: the batch that is being published, and the last one of each sink.

``<store>/rockhopper/sinks/intent.json`` exists from the moment at which a batch is sure to be
published until all of it is in the log and on disk; ``published.json`` holds, for each sink, [last
batch id, its messages]. Both are checked tables (broker/kernel/tables/checked_table.py), whose
entries are

    {"sinkId": …, "batchId": …, "messageCount": …, "parts": [file name, …], "fromOffset": …}
    {"<sink id>": [41, 1000], …}

``fromOffset`` is the commit log offset from which on its messages are to be found. Each file has a
checksum and a second copy, ``<name>.bak``; one that is damaged gives way to the other, and when
both are the broker does not start, since a batch would be stored twice, or not at all.

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
    """A batch that is sure to be published."""

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
        """Read the file or its copy, and mend the other; False when there is neither.

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
        """The same, without mending. Raises CorruptFileError, OSError."""
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
        # An older copy, out of somebody's backup, would have batches published again.
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
        f"it cannot be read ({reason}); move it and its .bak away to start without it, and compare "
        "the last batch of each sink with what its job says"
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
        """From now on the batch will be published, whatever happens. Raises OSError: it is not."""
        table = _IntentTable(self._intent)
        table.entries = msgspec.to_builtins(intent)
        try:
            table.save()
        except OSError:
            with contextlib.suppress(OSError):
                self.withdraw_intent()
            raise

    def withdraw_intent(self) -> None:
        """The batch will not be published. Raises OSError."""
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
