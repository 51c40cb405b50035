"""Turns for sends of one sharding key."""

import asyncio

import pytest

from rockhopper.client.errors import (
    BrokerUnreachableError,
    EarlierSendFailedError,
    MessageRejectedError,
)
from rockhopper.client.sending.key_lanes import KeyLanes, Turn
from tests.support.stepped_loop import SETTLING_TURNS
from tests.support.turns import until

ALICE = ("orders", "alice")
BOB = ("orders", "bob")


class Sends:
    """Sends that take turns and end when told so."""

    def __init__(self) -> None:
        self.lanes = KeyLanes()
        self.order: list[str] = []
        self._endings: dict[str, asyncio.Future[None]] = {}

    async def send(self, name: str, lane: tuple[str, str] = ALICE) -> None:
        async with self.lanes.line_up(lane) as turn:
            await turn.wait()
            self.order.append(name)
            self._endings[name] = asyncio.get_running_loop().create_future()
            await self._endings[name]

    def begin(self, name: str, **options: object) -> asyncio.Task[None]:
        return asyncio.create_task(self.send(name, **options))  # type: ignore[arg-type]

    async def end(self, name: str, error: Exception | None = None) -> None:
        if error is None:
            self._endings[name].set_result(None)
        else:
            self._endings[name].set_exception(error)
        await settle()


async def settle() -> None:
    for _ in range(SETTLING_TURNS):
        await asyncio.sleep(0)


async def test_one_at_a_time_in_the_order_of_the_calls() -> None:
    sends = Sends()
    tasks = [sends.begin(name) for name in ("1", "2", "3")]
    await settle()
    for name in ("1", "2", "3"):
        assert sends.order[-1] == name
        await sends.end(name)
    await asyncio.gather(*tasks)
    assert sends.order == ["1", "2", "3"]
    assert len(sends.lanes) == 0


async def test_keys_do_not_wait_for_each_other() -> None:
    sends = Sends()
    tasks = [sends.begin("a1"), sends.begin("a2"), sends.begin("b1", lane=BOB)]
    await settle()
    assert sends.order == ["a1", "b1"]
    for name in ("a1", "a2", "b1"):
        await sends.end(name)
    await asyncio.gather(*tasks)


async def test_those_behind_a_failed_send_fail_with_it_and_later_ones_go_on() -> None:
    sends = Sends()
    tasks = [sends.begin(name) for name in ("1", "2", "3")]
    await settle()
    await sends.end("1", BrokerUnreachableError("gone"))
    with pytest.raises(BrokerUnreachableError):
        await tasks[0]
    for task in tasks[1:]:
        with pytest.raises(EarlierSendFailedError, match=r"must not overtake it \(gone\)"):
            await task
    later = sends.begin("4")
    await settle()
    await sends.end("4")
    await later
    assert sends.order == ["1", "4"]
    assert len(sends.lanes) == 0


async def test_a_cancelled_send_gives_its_turn_to_the_next() -> None:
    sends = Sends()
    tasks = [sends.begin(name) for name in ("1", "2", "3", "4")]
    await settle()
    tasks[1].cancel()  # waits
    tasks[0].cancel()  # holds the turn
    await settle()
    assert sends.order == ["1", "3"]
    await sends.end("3")
    await sends.end("4")
    await asyncio.gather(*tasks, return_exceptions=True)
    assert sends.order == ["1", "3", "4"]
    assert len(sends.lanes) == 0


async def test_a_send_cancelled_just_as_its_turn_comes_passes_it_on() -> None:
    sends = Sends()
    tasks = [sends.begin(name) for name in ("1", "2", "3")]
    await settle()
    sends._endings["1"].set_result(None)
    await until(tasks[0].done)
    tasks[1].cancel()
    await settle()
    assert sends.order == ["1", "3"]
    await sends.end("3")
    assert len(sends.lanes) == 0


async def test_a_refusal_that_a_cancelled_send_never_sees_is_no_loose_end() -> None:
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    sends = Sends()
    tasks = [sends.begin(name) for name in ("1", "2")]
    await settle()
    sends._endings["1"].set_exception(BrokerUnreachableError("gone"))
    await until(tasks[0].done)
    tasks[1].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    del tasks
    assert isinstance(results[1], asyncio.CancelledError | EarlierSendFailedError)
    assert len(sends.lanes) == 0
    assert problems == []


async def test_a_place_counts_from_the_call_and_not_from_its_wait() -> None:
    lanes = KeyLanes()
    order: list[str] = []
    first, second = lanes.line_up(ALICE), lanes.line_up(ALICE)

    async def wait_in(name: str, turn: Turn) -> None:
        async with turn:
            await turn.wait()
            order.append(name)

    later = asyncio.ensure_future(wait_in("second", second))
    await settle()
    assert order == []
    await wait_in("first", first)
    await later
    assert order == ["first", "second"]
    assert len(lanes) == 0


async def test_who_leaves_before_its_turn_holds_up_nobody() -> None:
    lanes = KeyLanes()
    turns = [lanes.line_up(ALICE) for _ in range(3)]
    turns[1].leave()
    turns[0].leave()
    turns[0].leave()
    await turns[2].wait()
    assert len(lanes) == 1
    turns[2].leave()
    assert len(lanes) == 0


async def test_a_message_that_breaks_a_rule_refuses_nobody() -> None:
    sends = Sends()
    first, second = sends.begin("1"), sends.begin("2")
    await settle()
    await sends.end("1", MessageRejectedError("too large"))
    assert sends.order == ["1", "2"]
    await sends.end("2")
    await second
    with pytest.raises(MessageRejectedError):
        await first
