"""An operator's operations on a replica of a set, checked against the engine's view."""

from rockhopper.broker.replication.election.replica_set import SetView


def forget(view: SetView | None, replica_id: int) -> None:
    """Check that nothing waits for a replica, so that it may be scrapped.

    Raises:
        ValueError: it may not; the message gives the reason.
    """
    if not view or not view.state:
        raise ValueError("the engine has not reported this set yet")
    if any(replica.id == replica_id for replica in view.state.in_sync):
        raise ValueError(
            f"replica {replica_id} is in sync, and minInSyncReplicas={view.state.min_in_sync} "
            "keeps it there: acknowledged messages may exist only on it. Start another replica; "
            "when that is in sync, this one leaves by itself"
        )
    if replica_id in view.members:
        raise ValueError(f"replica {replica_id} is running: stop it first")
