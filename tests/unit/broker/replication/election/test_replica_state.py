"""What a replica is before it knows anything."""

import pytest

from rockhopper.broker.replication.election.replica_set import Replica
from rockhopper.broker.replication.election.replica_state import ReplicaState


def test_an_empty_replica_has_promised_nothing_and_lost_nothing() -> None:
    replica_state = ReplicaState(Replica(1, "s1"), "i1")
    assert (replica_state.voted_epoch, replica_state.epochs, replica_state.log_end) == (0, (), 0)
    assert replica_state.is_clean
    assert not replica_state.is_fenced


@pytest.mark.parametrize("field", ["is_fenced", "is_failing"])
def test_a_replica_that_something_is_wrong_with_may_not_lead(field: str) -> None:
    replica_state = ReplicaState(Replica(1, "a"), "i")
    assert replica_state.may_lead
    setattr(replica_state, field, True)
    assert not replica_state.may_lead
