"""What unfinished requests of all connections together may hold."""

import pytest

from rockhopper.broker.server.listening import unfinished
from rockhopper.broker.server.listening.unfinished import STEP_BYTES, Unfinished


class Holder:
    def __init__(self, held_bytes: int, *, is_known: bool = False) -> None:
        self.held_bytes = held_bytes
        self.is_known = is_known
        self.is_closed = False

    def drop_held(self, reason: str) -> None:
        assert reason
        self.held_bytes, self.is_closed = 0, True


def test_unknown_peers_that_hold_most_are_closed_beyond_their_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unfinished, "UNKNOWN_BYTES_MAX_ALL", 1_000_000)
    large, small, known = Holder(900_000), Holder(200_000), Holder(2_000_000, is_known=True)
    budget = Unfinished(has_users=True)
    budget.count(STEP_BYTES - 1, [small, large, known])
    assert not large.is_closed
    budget.count(1, [small, large, known])
    assert [large.is_closed, small.is_closed, known.is_closed] == [True, False, False]


def test_all_peers_have_a_budget_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unfinished, "BYTES_MAX_ALL", 1_000_000)
    large, small = Holder(900_000), Holder(200_000)
    Unfinished(has_users=False).count(STEP_BYTES, [large, small])
    assert [large.is_closed, small.is_closed] == [True, False]
