"""Replicates batches of sinks: the parts of each batch that is about to be published.

A batch becomes visible as a whole. A master that crashes while it publishes one leaves some of its
messages in the log. The next master then finds the parts and the intent here, as after a kill, and
stores the rest. Parts that are not about to be published stay on the master: if it is lost, their
job stages them again.

    a batch has parts a and b; the follower stores both, then the intent
    the master crashes after half of the messages of a are in the log
    the follower leads: it reads the intent, and stores the rest of a, then b
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from rockhopper.broker.features.sinks.journal import Intent, SinkJournal
from rockhopper.broker.features.sinks.staged_parts import sink_key
from rockhopper.broker.kernel.state_records import (
    PIECE_SIZE_BYTES,
    Entry,
    Kind,
    StateRecordError,
    decode_part,
    encode_part,
)
from rockhopper.broker.store.files import disk
from rockhopper.protocol import fastjson

_SUFFIX = ".part"


def pieces_of_parts(paths: list[Path]) -> Iterator[Entry]:
    """Yield the bytes of staged parts, one entry for each record of the topic. Raises OSError."""
    for path in paths:
        position = 0
        with path.open("rb") as file:
            while data := file.read(PIECE_SIZE_BYTES):
                yield Kind.PART, encode_part(path.name, position, data)
                position += len(data)


class SinkCopies:
    """A follower's parts and intents, in the directory that a broker reads. Blocks on the disk."""

    def __init__(self, directory: Path) -> None:
        """*directory* is ``<store>/rockhopper/sinks``."""
        self._directory = directory
        self._journal = SinkJournal(directory)

    def take_part(self, payload: bytes) -> None:
        """Write a piece of a part. Raises StateRecordError, OSError."""
        name, position, data = decode_part(payload)
        if Path(name).name != name or not name.endswith(_SUFFIX):
            raise StateRecordError(f"{name!r} is no name of a part")
        disk.make_directories_durably(self._directory)
        path = self._directory / name
        with path.open("r+b" if path.exists() else "w+b") as file:
            file.seek(position)
            file.truncate()
            file.write(data)

    def take_intent(self, payload: bytes) -> None:
        """Store the intent to publish a batch. Raises StateRecordError, OSError."""
        try:
            intent = msgspec.convert(fastjson.loads(payload), Intent)
        except msgspec.ValidationError as error:
            raise StateRecordError(f"its intent makes no sense: {error}") from None
        parts = [self._directory / name for name in intent.parts]
        disk.sync_paths([path for path in parts if path.exists()])
        self._journal.save_intent(intent)

    def take_published(self, payload: bytes) -> None:
        """Record published batches and remove their files. Raises OSError."""
        published = self._journal.load_published()
        published |= {
            name: (last, count) for name, (last, count) in fastjson.loads(payload).items()
        }
        self._save(published)
        for sink_id, (last, _) in fastjson.loads(payload).items():
            # These also include parts of a prepared batch, which has no intent.
            found = self._directory.glob(f"{sink_key(sink_id)}-*{_SUFFIX}")
            disk.remove_files(path for path in found if int(path.name.split("-")[1]) <= last)

    def _save(self, published: dict[str, tuple[int, int]]) -> None:
        disk.make_directories_durably(self._directory)
        self._journal.save_published(published)
        intent = self._journal.load_intent()
        if intent is not None and intent.batch_id <= published.get(intent.sink_id, (-1, 0))[0]:
            self._journal.finish([self._directory / name for name in intent.parts])
