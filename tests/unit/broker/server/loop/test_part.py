"""Parts begin in the order of building and end in the reverse one; none keeps others from it."""

import pytest

from rockhopper.broker.server.loop.part import Part, Parts

HOOKS = ("open", "start", "expire", "purge", "stop", "close")


class Noted(Part):
    """Writes down what it is asked; raises when asked for what it cannot do."""

    def __init__(self, name: str, asked: list[str], broken: str = "") -> None:
        self._name, self._asked, self._broken = name, asked, broken

    def _note(self, hook: str) -> None:
        self._asked.append(f"{hook} {self._name}")
        if hook == self._broken:
            raise OSError(f"{self._name} cannot {hook}")

    async def open(self) -> None:
        self._note("open")

    def start(self) -> None:
        self._note("start")

    def expire(self) -> None:
        self._note("expire")

    def purge(self) -> None:
        self._note("purge")

    def stop(self) -> None:
        self._note("stop")

    async def close(self) -> None:
        self._note("close")

    async def abandon(self) -> None:
        self._note("abandon")


class Plain(Part):
    """Has no life of its own."""


def _registered(*parts: Part) -> Parts:
    registered = Parts()
    for part in parts:
        assert registered.register(part) is part
    return registered


async def _live(parts: Parts) -> None:
    await parts.open()
    parts.start()
    parts.expire()
    parts.purge()
    parts.stop()
    await parts.close()


async def test_parts_begin_in_order_and_end_in_reverse() -> None:
    asked: list[str] = []
    await _live(_registered(Noted("a", asked), Plain(), Noted("b", asked)))
    begin, end = HOOKS[:4], HOOKS[4:]
    assert asked == [f"{hook} {name}" for hook in begin for name in "ab"] + [
        f"{hook} {name}" for hook in end for name in "ba"
    ]


async def test_one_of_the_last_starts_behind_all_others_and_stops_before_them() -> None:
    asked: list[str] = []
    parts = _registered(Noted("a", asked))
    parts.register_last(Noted("y", asked))
    parts.register_last(Noted("z", asked))
    parts.register(Noted("b", asked))
    parts.start()
    parts.stop()
    assert asked == [f"start {name}" for name in "abyz"] + [f"stop {name}" for name in "zyba"]


async def test_those_behind_a_part_that_cannot_open_are_not_opened_and_none_saves() -> None:
    asked: list[str] = []
    parts = _registered(Noted("a", asked), Noted("b", asked, "open"), Noted("c", asked))
    with pytest.raises(OSError, match="b cannot open"):
        await parts.open()
    await parts.close()
    assert asked == ["open a", "open b", "abandon c", "abandon b", "abandon a"]


async def test_parts_that_were_opened_and_never_began_save_nothing() -> None:
    asked: list[str] = []
    parts = _registered(Noted("a", asked))
    await parts.open()
    await parts.close()
    assert asked == ["open a", "abandon a"]


def test_a_part_that_cannot_stop_keeps_no_other_from_it() -> None:
    asked: list[str] = []
    parts = _registered(Noted("a", asked), Noted("b", asked, "stop"), Noted("c", asked))
    with pytest.raises(OSError, match="b cannot stop"):
        parts.stop()
    assert asked == ["stop c", "stop b", "stop a"]


async def test_a_part_that_cannot_close_keeps_no_other_from_it() -> None:
    asked: list[str] = []
    parts = _registered(Noted("a", asked), Noted("b", asked, "close"), Noted("c", asked))
    parts.start()
    asked.clear()
    with pytest.raises(OSError, match="b cannot close"):
        await parts.close()
    assert asked == ["close c", "close b", "close a"]
