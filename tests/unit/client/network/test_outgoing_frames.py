"""OutgoingFrames: one write per iteration of the loop, and senders that wait for a slow peer."""

import asyncio
from typing import Any, cast

import pytest

from rockhopper.client.network.in_flight_requests import InFlightRequests
from rockhopper.client.network.outgoing_frames import OutgoingFrames
from rockhopper.protocol.command import Command


class Written:
    """Outgoing frames over a transport that only collects the writes."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.has_ended = False
        self.pending = InFlightRequests("broker:1")
        self.outgoing = OutgoingFrames(self.pending)
        self.outgoing.open(cast(Any, self))

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def is_closing(self) -> bool:
        return self.has_ended

    def send(self, *frames: bytes) -> None:
        for frame in frames:
            self.outgoing.write(frame)


@pytest.fixture
async def written() -> Written:
    return Written()


async def end_iteration() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def expect_answer(written: Written) -> None:
    future: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
    written.pending[1] = (future, 1e9, 1, 3.0)


async def test_frames_of_one_iteration_leave_together_at_its_end(written: Written) -> None:
    written.send(b"a", b"b", b"c")
    assert written.writes == []
    await end_iteration()
    assert written.writes == [b"abc"]


async def test_a_frame_leaves_at_once_after_one_that_left_alone(written: Written) -> None:
    written.send(b"a")
    await end_iteration()
    written.send(b"b")
    assert written.writes == [b"a", b"b"]


async def test_frames_of_handled_data_leave_together_when_it_is_handled(written: Written) -> None:
    written.outgoing.is_held = True
    written.send(b"a", b"b")
    assert written.writes == []
    written.outgoing.release()
    assert written.writes == [b"ab"]
    written.send(b"c", b"d")
    await end_iteration()
    assert written.writes == [b"ab", b"cd"]


@pytest.mark.parametrize("reason", ["in flight", "not alone"])
async def test_a_frame_waits_while_more_may_come(written: Written, reason: str) -> None:
    written.send(*(b"a", b"b") if reason == "not alone" else (b"a",))
    await end_iteration()
    if reason == "in flight":
        expect_answer(written)
    written.send(b"c")
    assert len(written.writes) == 1
    await end_iteration()
    assert written.writes[1:] == [b"c"]


async def test_much_data_leaves_before_the_end_of_the_iteration(written: Written) -> None:
    written.send(*[bytes(100_000)] * 3)
    assert [len(data) for data in written.writes] == [300_000]
    await end_iteration()
    assert len(written.writes) == 1


async def test_a_late_write_extends_the_requests_in_it(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now_s)
    expect_answer(written)
    written.send(b"a")
    now_s += 7.0
    written.outgoing.flush()
    assert written.pending[1][1] == 1e9 + 7.0


async def test_data_for_a_closing_connection_is_dropped(written: Written) -> None:
    written.has_ended = True
    written.send(b"a", b"b")
    await end_iteration()
    assert written.writes == []


async def test_a_sender_waits_for_the_peer_and_for_those_before_it(written: Written) -> None:
    written.outgoing.pause()
    assert not written.outgoing.is_writable
    first = asyncio.create_task(written.outgoing.wait_writable(300_000))
    second = asyncio.create_task(written.outgoing.wait_writable(10))
    await end_iteration()
    assert not first.done()

    written.outgoing.resume()
    written.outgoing.pause()  # the data of the first one fills the socket
    await end_iteration()
    assert (first.done(), second.done()) == (True, False)
    written.outgoing.resume()
    await second
    assert written.outgoing.is_writable


async def test_senders_go_on_one_after_the_other_while_the_peer_accepts_the_data(
    written: Written,
) -> None:
    written.outgoing.pause()
    waiting = [asyncio.create_task(written.outgoing.wait_writable(300_000)) for _ in range(3)]
    await end_iteration()
    written.outgoing.resume()
    await asyncio.sleep(0)
    assert [each.done() for each in waiting] == [True, False, False]
    await asyncio.gather(*waiting)
    assert written.outgoing.is_writable


async def test_all_senders_go_on_at_the_end(written: Written) -> None:
    written.outgoing.pause()
    waiting = [asyncio.create_task(written.outgoing.wait_writable(1)) for _ in range(3)]
    await end_iteration()
    written.outgoing.release_writers()
    await asyncio.gather(*waiting)
    assert written.outgoing.is_writable
