"""Connections: those of one server, counted in and out."""

import asyncio

from structlog.testing import capture_logs

from rockhopper.broker.server.listening.caller import DIRECT, Caller
from rockhopper.broker.server.listening.connections import OpenConnections


class Counted:
    """A connection that closes when it is told to."""

    def __init__(self, of: "OpenConnections[Counted]", caller: Caller = DIRECT) -> None:
        self.of, self.caller = of, caller
        self.aborted: list[str] = []

    def abort(self, reason: str) -> None:
        self.aborted.append(reason)


def connections(most: int = 2) -> OpenConnections[Counted]:
    return OpenConnections("test", most)


def test_too_many_are_refused_and_said_once() -> None:
    made = connections()
    first, second, third = (Counted(made) for _ in range(3))
    with capture_logs() as lines:
        assert [made.admit(each) for each in (first, second, third, third)] == [
            True,
            True,
            False,
            False,
        ]
    assert made.connections == {first, second}
    assert made.refused_count == 2
    (line,) = lines
    assert (line["server"], line["open"]) == ("test", 2)
    made.forget(first)
    assert made.admit(third)


def test_those_on_the_way_in_take_room() -> None:
    made = connections()
    made.admit(Counted(made))
    assert made.has_room(0)
    assert not made.has_room(1)


def test_those_that_speak_tls_are_counted() -> None:
    made = connections()
    made.admit(Counted(made))
    made.admit(Counted(made, Caller(None, is_tls=True)))
    assert made.tls_count == 1


async def test_it_waits_for_those_that_close() -> None:
    made = connections()
    last = Counted(made)
    made.admit(last)
    waiting = asyncio.ensure_future(made.all_gone(3600))
    await asyncio.sleep(0)
    assert not waiting.done()
    made.forget(last)
    await waiting
    assert last.aborted == []


async def test_those_that_do_not_close_are_aborted() -> None:
    made = connections()
    last = Counted(made)
    made.admit(last)
    await made.all_gone(0)
    assert last.aborted == ["the server is stopping"]
    await connections().all_gone(3600)
