"""The position up to which a follower has applied its masters' state; durable, for its next start.

``<store>/rockhopper/ha/applied.json``: one line of JSON and one with its CRC-32, as the inventory.

    queueOffset  the first record of rmq_sys_rockhopper_state that is not applied
    logOffset    the log offset of the record before that one
    writer       the writer of that record: if another record is there, this file does not count
    passes       [level, first queue offset, offset behind the last, log offset of the copies]
                 of the last pass of each delay level that has one

It is written after the tables that it describes, and removed when this replica starts to lead.
"""

from typing import Any, NamedTuple

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import checked_line, disk

_PARTS = ("ha", "applied.json")


class Applied(NamedTuple):
    """A position in the topic, with the delay passes up to it."""

    queue_offset: int
    log_offset: int
    writer: int
    passes: list[tuple[int, int, int, int]]


def load(layout: StoreLayout) -> Applied | None:
    """Return the stored position; None if it is missing or damaged."""
    path = layout.own.joinpath(*_PARTS)
    return checked_line.load(
        path, _from_json, "the replication position of this replica is not known"
    )


def _from_json(document: Any) -> Applied:
    return Applied(
        int(document["queueOffset"]),
        int(document["logOffset"]),
        int(document["writer"]),
        [(int(a), int(b), int(c), int(d)) for a, b, c, d in document["passes"]],
    )


def save(layout: StoreLayout, applied: Applied) -> None:
    """Store the position durably; blocks. Raises OSError."""
    path = layout.own.joinpath(*_PARTS)
    disk.make_directories_durably(path.parent)
    document = {
        "queueOffset": applied.queue_offset,
        "logOffset": applied.log_offset,
        "writer": applied.writer,
        "passes": applied.passes,
    }
    disk.write_atomically(path, checked_line.encode(document))


def remove(layout: StoreLayout) -> None:
    """Remove the position durably; blocks. Raises OSError."""
    path = layout.own.joinpath(*_PARTS)
    if path.exists():
        path.unlink()
        disk.sync_directory(path.parent)
