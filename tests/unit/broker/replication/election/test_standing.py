"""What a replica is before it knows anything."""

import pytest

from rockhopper.broker.replication.election.replica_set import Replica
from rockhopper.broker.replication.election.standing import Standing


def test_an_empty_replica_has_promised_nothing_and_lost_nothing() -> None:
    standing = Standing(Replica(1, "s1"), "i1")
    assert (standing.voted_epoch, standing.epochs, standing.log_end) == (0, (), 0)
    assert standing.is_clean
    assert not standing.is_fenced


@pytest.mark.parametrize("field", ["is_fenced", "is_failing"])
def test_a_replica_that_something_is_wrong_with_may_not_lead(field: str) -> None:
    standing = Standing(Replica(1, "a"), "i")
    assert standing.may_lead
    setattr(standing, field, True)
    assert not standing.may_lead
