"""The position of a table: how far it is archived, and where this is stored.

Each run's commit stores its manifest (archiving/manifest.py, without files) in the summary of its
snapshot, as ``rockhopper.position``. So a rollback resets the position together with the rows. The
current position is that of the nearest ancestor of the table's snapshot that has one; snapshots of
compactions and other writers may lie in between.

``expire_snapshots`` may remove that ancestor. So the same commit also writes the position into the
table's properties, with a *witness*: one message of the run. Properties do not roll back, so they
count only if the table contains the witness.

A long position is stored as ``zlib:`` and base64, because the metadata of a table holds the
positions of all snapshots.
"""

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.manifest import Manifest

PROPERTY = "rockhopper.position"
WITNESS = "rockhopper.witness"

_PLAIN_MAX = 2000
_PACKED = "zlib:"


@dataclass(frozen=True)
class Snapshot:
    """The relevant part of a snapshot."""

    id: int
    parent: int | None
    position: str | None = None


@dataclass(frozen=True)
class Witness:
    """A message that a run added."""

    topic: str
    broker: str
    queue_id: int
    offset: int

    def to_json(self) -> str:
        """Return the text of the table property."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Witness":
        """Parse the text of the table property. Raises ValueError, TypeError."""
        return cls(**json.loads(text))


@dataclass(frozen=True)
class AncestorSearch:
    """The result of a walk over ancestors."""

    position: str | None = None
    is_cut: bool = False
    """Whether the walk ended at an ancestor that was removed."""


def find_newest(snapshots: Mapping[int, Snapshot], head: int | None) -> AncestorSearch:
    """Return the position of the nearest ancestor of *head* that has one, *head* included."""
    while head is not None:
        found = snapshots.get(head)
        if found is None:
            return AncestorSearch(is_cut=True)
        if found.position is not None:
            return AncestorSearch(found.position)
        head = found.parent
    return AncestorSearch()


def is_ancestor(snapshots: Mapping[int, Snapshot], wanted: int, head: int | None) -> bool:
    """Return whether *wanted* is *head* or one of its ancestors."""
    while head is not None and head != wanted:
        found = snapshots.get(head)
        head = None if found is None else found.parent
    return head == wanted


def encode(manifest: Manifest) -> str:
    """Encode the position as text."""
    document = json.loads(replace(manifest, files=(), queues=()).to_json())
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    if len(text) <= _PLAIN_MAX:
        return text
    return _PACKED + base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def decode(text: str, table: str) -> Manifest:
    """Decode the position of *table*. Raises PipelineError."""
    where = f"the {PROPERTY} of {table}"
    data = text.encode()
    if text.startswith(_PACKED):
        try:
            data = zlib.decompress(base64.b64decode(text.removeprefix(_PACKED), validate=True))
        except (binascii.Error, zlib.error) as error:
            raise PipelineError(
                f"{where} is damaged ({error}): roll the table back to an earlier snapshot"
            ) from error
    return Manifest.from_json(data, where)
