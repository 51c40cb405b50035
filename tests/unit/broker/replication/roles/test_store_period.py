"""What is open between the opening and the closing of a replica's store, and in which order."""

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rockhopper.broker.replication.roles import store_period
from rockhopper.broker.replication.roles.role_changes import RoleChanges
from rockhopper.broker.replication.roles.store_period import OpenAs, StorePeriod


class Steps:
    """The steps of everything around a period, in order; one of them can be made to fail."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.failing = ""

    def take(self, step: str) -> None:
        self.taken.append(step)
        if step == self.failing:
            raise OSError(step)

    def step(self, name: str) -> Callable[..., None]:
        """Return a function that takes a step."""
        return lambda *_: self.take(name)

    def async_step(self, name: str) -> Callable[..., Any]:
        async def run(*_: object) -> None:
            self.take(name)

        return run


class Ports:
    """Client ports that only record what they are asked to do."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self.load_names = steps.step("load names")
        self.build_parts = steps.async_step("build parts")

    async def open_names(self, undo: contextlib.AsyncExitStack) -> None:
        self._steps.take("open names")
        undo.callback(self._steps.take, "close names")

    async def refuse(self, undo: contextlib.AsyncExitStack) -> None:
        self._steps.take("refuse")
        undo.callback(self._steps.take, "stop refusing")

    async def serve(self, undo: contextlib.AsyncExitStack, begin: Callable[[], None]) -> None:
        undo.callback(self._steps.take, "close parts")
        self._steps.take("open parts")
        begin()
        self._steps.take("admit clients")


class Rig:
    """One period over a store that only records its steps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps = steps = Steps()
        self.behind = 0
        self.states = 0

        async def close(*, opens_again: bool) -> None:
            steps.take(f"close store, {opens_again=}")

        def catch_up() -> bool:
            self.behind -= 1
            return self.behind >= 0

        parts: Any = SimpleNamespace(
            load_tables=steps.step("load tables"),
            open_store=lambda *arguments: steps.take(f"open store {arguments}"),
            tables=SimpleNamespace(
                start=steps.step("start tables"),
                close=steps.async_step("close tables"),
                locks=SimpleNamespace(held={}),
            ),
            store=SimpleNamespace(
                start=steps.async_step("start store"),
                close=close,
                follow_to=lambda offset: steps.take(f"follow to {offset}"),
                catch_up=catch_up,
                reading=SimpleNamespace(queue_range=lambda *_: (0, self.states)),
            ),
            kernel=SimpleNamespace(locks=SimpleNamespace(lead=steps.step("take locks over"))),
            config=SimpleNamespace(replication=SimpleNamespace(state_interval_ms=1)),
        )
        applier = SimpleNamespace(
            open=steps.step("open applier"),
            apply_to=lambda offset: steps.take(f"apply to {offset}"),
            finish=steps.async_step("finish applier"),
            close=steps.async_step("close applier"),
        )
        writer = SimpleNamespace(start=steps.step("start writer"), drop=steps.step("drop writer"))
        monkeypatch.setattr(store_period, "StateApplier", lambda *_: applier)
        monkeypatch.setattr(store_period, "StateWriter", lambda *_, **__: writer)
        replica_store: Any = SimpleNamespace(
            opened=steps.step("log is here"), closing=steps.step("log is away")
        )
        self.roles = RoleChanges(cast(Any, None))
        ports = cast(Any, Ports(steps))
        self.period = StorePeriod(parts, ports, replica_store, self.roles)

    async def open(self) -> "Rig":
        await self.period.open(OpenAs(b"host", 7), 90)
        return self

    def taken(self) -> list[str]:
        """Return the steps since the last call."""
        taken, self.steps.taken = self.steps.taken, []
        return taken


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(monkeypatch)


async def test_a_period_opens_everything_of_a_follower_and_closes_it_in_reverse(rig: Rig) -> None:
    await rig.open()
    assert rig.taken() == [
        "load tables",
        "load names",
        "open store (b'host', 7, 90)",
        "start store",
        "open applier",
        "start tables",
        "open names",
        "refuse",
        "log is here",
    ]
    await rig.period.close()
    assert rig.taken() == [
        "close applier",
        "log is away",
        "stop refusing",
        "close names",
        "close tables",
        "close store, opens_again=True",
    ]


@pytest.mark.parametrize(
    ("failing", "closed"),
    [
        ("load tables", []),
        ("start store", ["close store, opens_again=True"]),
        ("open applier", ["close tables", "close store, opens_again=True"]),
        ("open names", ["close applier", "close tables", "close store, opens_again=True"]),
    ],
)
async def test_a_period_that_fails_to_open_closes_what_it_opened(
    rig: Rig, failing: str, closed: list[str]
) -> None:
    rig.steps.failing = failing
    with pytest.raises(OSError, match=failing):
        await rig.open()
    rig.taken()
    await rig.period.close()
    assert [each for each in rig.taken() if each != "log is away"] == closed


async def test_a_follower_shows_the_log_before_it_applies_the_state(rig: Rig) -> None:
    await rig.open()
    rig.taken()
    rig.period.follow_to(50)
    assert rig.taken() == ["follow to 50", "apply to 50"]


async def test_a_master_finishes_the_log_takes_locks_over_and_writes_before_clients_come(
    rig: Rig,
) -> None:
    await rig.open()
    rig.taken()
    rig.behind, rig.states = 3, 1
    await rig.period.finish_following(90)
    assert rig.behind < 0
    assert rig.taken() == ["follow to 90", "finish applier"]
    await rig.period.serve(cast(Any, None))
    assert rig.period.is_serving
    assert rig.period.writer is not None
    assert rig.taken() == [
        "build parts",
        "take locks over",
        "open parts",
        "start writer",
        "admit clients",
    ]
    await rig.period.close()
    assert not rig.period.is_serving
    assert rig.period.writer is None
    assert rig.taken()[:3] == ["drop writer", "log is away", "close parts"]


async def test_the_first_master_of_a_set_has_no_locks_to_take_over(rig: Rig) -> None:
    await rig.open()
    await rig.period.finish_following(90)
    await rig.period.serve(cast(Any, None))
    assert "take locks over" not in rig.taken()


async def test_a_replica_that_stops_opens_its_store_no_more(rig: Rig) -> None:
    await rig.open()
    await rig.roles.close()
    await rig.period.close()
    assert rig.taken()[-1] == "close store, opens_again=False"
    await rig.period.close()
    assert rig.taken() == ["log is away"]
