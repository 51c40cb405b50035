"""The state of sinks: five tables, the files below ``<store>/rockhopper/sinks``, and their copies.

A batch becomes visible whole, on a replica set too. Before its first message is in the log, a
master writes the staged parts of the batch and its intent for the followers:

    kind  payload
     14   PUBLISHED: {sink id: [last batch id, its messages]} as JSON; that batch is complete
     15   PART: size:2 file name, position:8, bytes of a part of a batch that will be published
     16   INTENT: the entries of intent.json (journal.py)

Example: a master dies when the log holds 300 of 1,000 messages of batch 7. The next master has the
parts and the intent, finds the 300 in its log, and appends the other 700 before it serves clients,
as a single broker does after a kill. Parts that are not published stay on their master; if it is
lost, the job stages them again.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from rockhopper.broker.feature import State
from rockhopper.broker.features.sinks.journal import Intent, SinkJournal
from rockhopper.broker.features.sinks.notes import (
    SinkContents,
    SinkDecisions,
    SinkHomes,
    SinkOwners,
    SinkPrepared,
)
from rockhopper.broker.features.sinks.staged_parts import sink_key
from rockhopper.broker.kernel.state_channels import Channel
from rockhopper.broker.kernel.state_records import (
    PIECE_SIZE_BYTES,
    Entry,
    StateRecordError,
    decode_numbers,
    decode_text,
    encode_numbers,
    encode_text,
)
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import disk
from rockhopper.broker.users.access import ResourceKind
from rockhopper.protocol import fastjson

SINK = ResourceKind("Sink")
"""A publisher of batches with exactly-once semantics, by its id."""
PUBLISHED, PART, INTENT = 14, 15, 16
_SUFFIX = ".part"


class SinksState(State):
    """The files are in *directory*. Whatever writes one blocks for the disk."""

    kinds = (PUBLISHED, PART, INTENT)
    resource_kinds = (SINK,)

    def __init__(self, layout: StoreLayout, clock: BrokerClock) -> None:
        directory = self.directory = layout.own / "sinks"
        now_ms = clock.wall_ms
        self.journal = SinkJournal(directory)
        self.owners = SinkOwners(layout.own / "sinks" / "owners.json", now_ms=now_ms)
        self.homes = SinkHomes(layout.own / "sinks" / "homes.json", now_ms=now_ms)
        self.prepared = SinkPrepared(layout.own / "sinks" / "prepared.json", now_ms=now_ms)
        self.decisions = SinkDecisions(layout.own / "sinks" / "decisions.json", now_ms=now_ms)
        self.contents = SinkContents(layout.own / "sinks" / "contents.json", now_ms=now_ms)
        tables = (self.owners, self.homes, self.prepared, self.decisions, self.contents)
        self.tables = dict.fromkeys(tables, Channel.CONFIRMED)
        self.published: dict[str, tuple[int, int]] = {}
        """Sink id → its last batch and the number of its messages, as this broker has published."""

    def load_published(self) -> None:
        """Read ``published``. Raises CorruptFileError, OSError."""
        self.published = self.journal.load_published()

    def snapshot(self) -> Iterator[Entry]:
        """Return the batches that this broker has published."""
        yield PUBLISHED, encode_published(self.published)

    def apply(self, kind: int, payload: bytes, log_offset: int) -> None:
        """Apply a master's change. Raises StateRecordError, OSError."""
        steps = {
            PUBLISHED: self._apply_published,
            PART: self._apply_part,
            INTENT: self._apply_intent,
        }
        steps[kind](payload)

    def _apply_part(self, payload: bytes) -> None:
        name, position, data = _decode_part(payload)
        if Path(name).name != name or not name.endswith(_SUFFIX):
            raise StateRecordError(f"{name!r} is not a valid name of a part")
        disk.make_directories_durably(self.directory)
        path = self.directory / name
        with path.open("r+b" if path.exists() else "w+b") as file:
            file.seek(position)
            file.truncate()
            file.write(data)

    def _apply_intent(self, payload: bytes) -> None:
        try:
            intent = msgspec.convert(fastjson.loads(payload), Intent)
        except msgspec.ValidationError as error:
            raise StateRecordError(f"its intent is invalid: {error}") from None
        parts = [self.directory / name for name in intent.parts]
        disk.sync_paths([path for path in parts if path.exists()])
        self.journal.save_intent(intent)

    def _apply_published(self, payload: bytes) -> None:
        changes = {name: (last, count) for name, (last, count) in fastjson.loads(payload).items()}
        self._save(self.journal.load_published() | changes)
        for sink_id, (last, _) in changes.items():
            # No intent names the parts of a batch that was only prepared.
            found = self.directory.glob(f"{sink_key(sink_id)}-*{_SUFFIX}")
            disk.remove_files(path for path in found if int(path.name.split("-")[1]) <= last)

    def _save(self, published: dict[str, tuple[int, int]]) -> None:
        disk.make_directories_durably(self.directory)
        self.journal.save_published(published)
        intent = self.journal.load_intent()
        if intent is not None and intent.batch_id <= published.get(intent.sink_id, (-1, 0))[0]:
            self.journal.finish([self.directory / name for name in intent.parts])


def encode_published(published: dict[str, tuple[int, int]]) -> bytes:
    """Return the payload of PUBLISHED."""
    return fastjson.dumps(published).encode()


def encode_intent(intent: Intent) -> bytes:
    """Return the payload of INTENT."""
    return fastjson.dumps(msgspec.to_builtins(intent)).encode()


def encode_parts(paths: list[Path]) -> Iterator[bytes]:
    """Return payloads of PART that hold the files *paths*. Raises OSError."""
    for path in paths:
        position = 0
        with path.open("rb") as file:
            while data := file.read(PIECE_SIZE_BYTES):
                yield encode_text(path.name) + encode_numbers(position) + data
                position += len(data)


def _decode_part(payload: bytes) -> tuple[str, int, bytes]:
    name, at = decode_text(payload, 0)
    (position,) = decode_numbers(payload[at:], 1)
    return name, position, payload[at + 8 :]
