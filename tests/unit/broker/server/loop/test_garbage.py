"""A collection that takes long is the last one to look at what it has looked at."""

import contextlib
import gc
from collections.abc import Iterator

import pytest

from rockhopper.broker.server.loop.garbage import (
    PAUSE_MAX_S,
    THRESHOLDS,
    ShortCollections,
    pause_collections,
)

OBJECTS_MAX = 6_000


class Watched(ShortCollections):
    """Under a clock of its own: a collection takes ``took_s``."""

    def __init__(self) -> None:
        self.took_s = 0.0
        self._now_s = 0.0
        super().__init__(self._tell)

    def _tell(self) -> float:
        self._now_s += self.took_s
        return self._now_s


@pytest.fixture
def watched() -> Iterator[Watched]:
    """Watch collections of this process, which begin when a test asks for them."""
    gc.disable()
    started = Watched()
    started.start()
    yield started
    started.stop()
    gc.enable()


@pytest.mark.parametrize("is_enabled", [True, False])
def test_a_pause_ends_as_it_began_whatever_fails(is_enabled: bool) -> None:
    if not is_enabled:
        gc.disable()
    try:
        with contextlib.suppress(ValueError), pause_collections():
            assert not gc.isenabled()
            raise ValueError("failed")
        assert gc.isenabled() is is_enabled
    finally:
        gc.enable()


def is_frozen(thing: object) -> bool:
    return not any(other is thing for other in gc.get_objects())


def test_what_there_is_at_the_start_is_not_looked_at() -> None:
    gc.disable()
    before: list[object] = [[]]
    watching = Watched()
    watching.start()
    assert is_frozen(before)
    watching.stop()
    watching.stop()
    assert gc.get_threshold() != THRESHOLDS
    gc.enable()


def test_a_long_collection_freezes_what_it_found(watched: Watched) -> None:
    kept: list[object] = [[]]
    gc.collect()
    assert not is_frozen(kept)
    watched.took_s = 2 * PAUSE_MAX_S
    gc.collect(1)
    assert not is_frozen(kept)
    gc.collect()
    assert is_frozen(kept)


def test_what_grows_is_looked_at_in_small_pieces(watched: Watched) -> None:
    watched.took_s = 2 * PAUSE_MAX_S
    looked_at = []

    def note(phase: str, _info: object) -> None:
        if phase == "start":
            looked_at.append(len(gc.get_objects()))

    gc.callbacks.append(note)
    gc.enable()
    kept: list[object] = []
    for _ in range(200_000):
        kept.append([])
    gc.disable()
    gc.callbacks.remove(note)
    assert len(looked_at) > 100
    assert max(looked_at) < OBJECTS_MAX


def test_what_is_frozen_goes_with_its_last_reference(watched: Watched) -> None:
    class Noted:
        gone = 0

        def __del__(self) -> None:
            Noted.gone += 1

    kept = [Noted()]
    watched.took_s = 2 * PAUSE_MAX_S
    gc.collect()
    assert is_frozen(kept)
    kept.clear()
    assert Noted.gone == 1
