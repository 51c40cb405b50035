"""What an operator may do with a replica of a set."""

import pytest

from rockhopper.broker.replication.election.operating import forget
from rockhopper.broker.replication.election.replica_set import (
    Announcement,
    Replica,
    SetState,
    SetView,
)

A, B = Replica(1, "s1"), Replica(2, "s2")
STATE = SetState(1, A, frozenset({A}), 1)


def test_a_replica_that_is_gone_may_be_scrapped() -> None:
    forget(SetView(STATE, 5, None), 2)


@pytest.mark.parametrize(
    ("view", "replica_id", "why"),
    [
        (None, 2, "not reported this set"),
        (SetView(None, 0, None), 2, "not reported this set"),
        (SetView(STATE, 5, None), 1, "is in sync"),
        (SetView(STATE, 5, None, {2: Announcement(B, "i")}), 2, "is running: stop it first"),
    ],
)
def test_others_may_not(view: SetView | None, replica_id: int, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        forget(view, replica_id)
