"""Which topics were deleted, and where the commit log ended then.

The records of a deleted topic stay in the log until they expire.  Recovery rebuilds queues from the
log; without this note it would bring a deleted topic back, or mix the old messages of a topic that
was made anew with its new ones.  Kept in ``<store>/rockhopper/deleted-topics.json``:

    {"topic": commit log offset at its deletion, ...}

``purged-topics.json`` beside it says the same of topics that were emptied.  Their queues stay as
they are, and begin behind those records.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import structlog

from broker.store import disk

log = structlog.get_logger("broker.store")


class DeletedTopics:
    """Topic -> the commit log offset in front of which its records do not count."""

    def __init__(self, path: Path) -> None:
        """Read the note; one that cannot be read is reported and counts as empty."""
        self._path = path
        self._ends: dict[str, int] = {}
        try:
            document = json.loads(path.read_bytes())
            self._ends = {str(topic): int(end) for topic, end in document.items()}
        except FileNotFoundError:
            pass
        except (ValueError, AttributeError, TypeError, RecursionError) as error:
            log.error(
                "deleted topics may come back after a crash: their list is damaged",
                path=str(path),
                reason=str(error),
            )

    def add(self, topic: str, end: int) -> None:
        """Note a deletion durably, before anything of the topic is deleted.  Blocks."""
        self.add_all((topic,), end)

    def add_all(self, topics: Iterable[str], end: int) -> None:
        """The same for several topics."""
        self._ends.update(dict.fromkeys(topics, end))
        self._save()

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """(topic, commit log offset) of each note."""
        return iter(list(self._ends.items()))

    def forget_before(self, commit_log_min: int) -> None:
        """Drop the notes that the log no longer reaches back to."""
        kept = {topic: end for topic, end in self._ends.items() if end > commit_log_min}
        if kept != self._ends:
            self._ends = kept
            self._save()

    def _save(self) -> None:
        disk.make_directories_durably(self._path.parent)
        # Without indentation: its encoder is compiled, and each deletion writes all notes.
        disk.write_atomically(self._path, json.dumps(self._ends).encode())

    def hides(self, topic: str, commit_log_offset: int) -> bool:
        """Whether a record belongs to a topic that was deleted after it was written."""
        return bool(self._ends) and commit_log_offset < self._ends.get(topic, 0)
