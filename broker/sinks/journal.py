"""What a publisher must remember: the batch that is being published, and the last one of each sink.

``<store>/rockhopper/sinks/intent.json`` exists from the moment at which a batch is sure to be
published until all of it is in the log and on disk:

    {"sinkId": …, "batchId": …, "messageCount": …, "parts": [file name, …], "fromOffset": …}

``fromOffset`` is the commit log offset from which on its messages are to be found.
``<store>/rockhopper/sinks/published.json`` holds, for each sink, [last batch id, its messages]:

    {"<sink id>": [41, 1000], …}

Both are replaced atomically, with fsync.
"""

from pathlib import Path
from typing import Any

import msgspec

from broker.store import disk
from broker.store.errors import CorruptFileError


class Intent(msgspec.Struct, rename="camel", frozen=True):
    """A batch that is sure to be published."""

    sink_id: str
    batch_id: int
    message_count: int
    parts: list[str]
    from_offset: int


class SinkJournal:
    """The two files.  Every method blocks on the disk."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._intent = directory / "intent.json"
        self._published = directory / "published.json"

    def load_intent(self) -> Intent | None:
        """The batch that an earlier process did not finish.  Raises CorruptFileError."""
        intent: Intent | None = _read(self._intent, Intent)
        return intent

    def load_published(self) -> dict[str, tuple[int, int]]:
        """Sink id -> last batch id and its number of messages.  Raises CorruptFileError."""
        published: dict[str, tuple[int, int]] | None
        published = _read(self._published, dict[str, tuple[int, int]])
        return published or {}

    def save_intent(self, intent: Intent) -> None:
        """From now on the batch will be published, whatever happens.  Raises OSError: it is not."""
        disk.make_directories(self._directory)
        disk.write_atomically(self._intent, msgspec.json.encode(intent))

    def withdraw_intent(self) -> None:
        """The batch will not be published.  Raises OSError."""
        disk.remove_files([self._intent])

    def save_published(self, published: dict[str, tuple[int, int]]) -> None:
        """Remember the last batches.  Raises OSError."""
        disk.make_directories(self._directory)
        disk.write_atomically(self._published, msgspec.json.encode(published))

    def finish(self, parts: list[Path]) -> None:
        """Forget the batch and delete its parts, in this order.  Raises OSError."""
        disk.remove_files([self._intent])
        disk.remove_files(parts)

    def set_aside(self, name: str) -> None:
        """Keep the intent under another name.  Raises OSError."""
        self._intent.replace(self._intent.with_name(name))


def _read(path: Path, kind: Any) -> Any:
    data = path.read_bytes() if path.exists() else b""
    if not data:
        return None
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptFileError(
            path,
            f"it cannot be read ({error}); move it away to start without it, and compare the last "
            "batch of each sink with what its job says",
        ) from None
