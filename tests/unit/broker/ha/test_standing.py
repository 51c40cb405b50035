"""What a replica is before it knows anything."""

from rockhopper.broker.ha.replica_set import Replica
from rockhopper.broker.ha.standing import Standing


def test_an_empty_replica_has_promised_nothing_and_lost_nothing() -> None:
    standing = Standing(Replica(1, "s1"), "i1")
    assert (standing.promise, standing.epochs, standing.log_end) == (0, (), 0)
    assert standing.is_clean
    assert not standing.is_fenced
