"""What the popping consumer of the faults counts as acknowledged."""

from types import SimpleNamespace

import pytest

from tests.chaos import topics
from tests.chaos.ledger import Kind, Ledger
from tests.chaos.popping import pop_once


@pytest.mark.parametrize("is_clock_set", [False, True])
async def test_an_acknowledgement_counts_unless_the_clock_was_set(is_clock_set: bool) -> None:
    ledger = Ledger(now_s=lambda: 0.5)
    fact = ledger.expect(topics.PARCELS, Kind.POPPED)

    async def pop(**_: object) -> list[SimpleNamespace]:
        if is_clock_set:
            ledger.clock_set_s = ledger.now_s()
        return [SimpleNamespace(body=fact.body)]

    async def ack(_: object) -> SimpleNamespace:
        return SimpleNamespace(code=0)

    consumer = SimpleNamespace(pop=pop, ack=ack)
    await pop_once(consumer, ledger, is_left=False)  # type: ignore[arg-type]
    assert (fact.settled_s is None) == is_clock_set
