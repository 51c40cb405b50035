"""The state of transactions: what a follower has of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.state_rig import Pair


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    yield pair
    pair.close()


def test_counts_of_checks_come_a_moment_later(pair: Pair) -> None:
    async def change() -> None:
        pair.master.tables.features["transactions"].counts.record_count(7, 2)  # type: ignore[attr-defined]

    pair.master.run(change())
    pair.gather()
    pair.take()
    counts = pair.follower.tables.features["transactions"].counts  # type: ignore[attr-defined]
    assert counts.get(7) == 2
