"""A store that leaves its set: what it takes alone is of a history that the set does not have.

Its log stands in no epoch from then on, so that nothing of it is taken for a part of another's, and
a mark stays until it leads a set or is seeded: back in its set such a replica neither follows nor
is elected, and nothing is cut.
"""

from pathlib import Path

import structlog

from rockhopper.broker.replication.election.keeping import Keeping
from rockhopper.broker.store.files.errors import StoreError

log = structlog.get_logger("broker.ha")


def serve_alone(directory: Path, *, may_leave: bool) -> None:
    """See that a store may be served alone; a replica's has its files in *directory*.

    Raises:
        StoreError: it is of a set that it has not left, and *may_leave* is not set.
        OSError: the files cannot be read or written.
    """
    if not (directory / "replica.json").exists():
        return
    keeping = Keeping(directory)
    if keeping.left is None and not may_leave:
        raise StoreError(
            f"the store in {directory.parent.parent} is one of a replica set, and haEngine is not "
            "set: set it again; or, to serve it alone from now on, start once with --leave-set: "
            "its set will not take back what it is sent alone"
        )
    if keeping.left is None:
        keeping.note_left(keeping.confirmed_offset)
        log.warning("this store leaves its replica set: its log begins a history of its own")
    if keeping.epochs:
        keeping.note_epochs(())
