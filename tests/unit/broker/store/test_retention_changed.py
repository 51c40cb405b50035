"""How long the log is kept when that changes."""

from rockhopper.broker.store.retention import LOWERING_MS_MIN, ReservedTime


class World:
    def __init__(self) -> None:
        self.wanted_ms, self.now_ms = 72, 1000
        self.asked: list[int] = []
        self.has_taken_care = True
        self.reserved = ReservedTime(lambda: self.wanted_ms, lambda: self.now_ms)
        self.reserved.has_taken_care.append(self.answer)

    def answer(self, time_ms: int) -> bool:
        self.asked.append(time_ms)
        return self.has_taken_care


def test_more_counts_at_once() -> None:
    world = World()
    world.wanted_ms = 96
    assert world.reserved() == 96
    assert world.asked == []


def test_less_counts_when_everybody_has_taken_care_of_what_is_older() -> None:
    world = World()
    world.wanted_ms, world.has_taken_care = 48, False
    assert world.reserved() == 72
    world.now_ms += LOWERING_MS_MIN
    assert world.reserved() == 72
    world.has_taken_care = True
    assert (world.reserved(), world.asked) == (48, [1000, 1000])


def test_whoever_lowers_it_again_waits_again() -> None:
    world = World()
    world.wanted_ms = 48
    world.reserved()
    world.wanted_ms = 24
    world.now_ms += LOWERING_MS_MIN
    assert world.reserved() == 72
    world.now_ms += LOWERING_MS_MIN
    assert (world.reserved(), world.asked) == (24, [1000 + LOWERING_MS_MIN])
