"""A store that leaves its set: what it then stores alone is not part of the set's history.

Its epoch table is emptied, so that no part of its log counts as a part of another's. A mark stays
until the store leads a set or is seeded. With this mark, a replica that returns to its set neither
follows nor is elected, and its log is not truncated.
"""

from pathlib import Path

import structlog

from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files.errors import StoreError

log = structlog.get_logger("broker.ha")


def see_alone(config: BrokerConfig) -> None:
    """Check that a broker without haEngine may serve its store; raises as ``serve_alone``."""
    own = StoreLayout.from_config(config.store).own
    serve_alone(own / "ha", may_leave=config.replication.leave_set)


def serve_alone(directory: Path, *, may_leave: bool) -> None:
    """Check that a store may be served alone; a replica's state is in *directory*.

    Raises:
        StoreError: the store belongs to a set that it has not left, and *may_leave* is not set.
        OSError: the files cannot be read or written.
    """
    if not (directory / "replica.json").exists():
        return
    from rockhopper.broker.replication.election.replica_disk import ReplicaDisk

    replica_disk = ReplicaDisk(directory)
    if replica_disk.left is None and not may_leave:
        raise StoreError(
            f"the store in {directory.parent.parent} belongs to a replica set, and haEngine is "
            "not set: set it again; or, to serve the store on its own from now on, start once "
            "with --leave-set: its set will not accept messages that it takes alone"
        )
    if replica_disk.left is None:
        replica_disk.note_left(replica_disk.replicated_offset)
        log.warning("this store leaves its replica set: its log begins a history of its own")
    if replica_disk.epochs:
        replica_disk.note_epochs(())
