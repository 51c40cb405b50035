"""ResultCache: one look-up for all who ask within some seconds."""

import asyncio

import pytest

from rockhopper.broker.gateways.console.cache import KEPT_MAX, KEPT_S, ResultCache


class Found:
    """Counts how often it is looked for."""

    def __init__(self) -> None:
        self.count = 0

    async def find(self) -> int:
        await asyncio.sleep(0)
        self.count += 1
        return self.count


async def test_who_asks_meanwhile_and_soon_after_gets_the_same() -> None:
    now_s = [0.0]
    kept, found = ResultCache(lambda: now_s[0]), Found()
    assert await asyncio.gather(*(kept.get("a", found.find) for _ in range(3))) == [1, 1, 1]
    assert await kept.get("a", found.find) == 1
    assert await kept.get("b", found.find) == 2
    now_s[0] = KEPT_S
    assert await kept.get("a", found.find) == 3


async def test_a_failure_is_not_kept() -> None:
    kept, found = ResultCache(), Found()

    async def fail() -> int:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await kept.get("a", fail)
    assert await kept.get("a", found.find) == 1


async def test_only_so_many_are_kept() -> None:
    kept, found = ResultCache(lambda: 0.0), Found()
    for number in range(KEPT_MAX + 1):
        await kept.get(number, found.find)
    await kept.get(KEPT_MAX, found.find)
    assert found.count == KEPT_MAX + 1
    await kept.get(0, found.find)
    assert found.count == KEPT_MAX + 2
