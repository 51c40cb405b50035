"""Clients of a replica from role to role; how connections are passed on, test_handover.py tests."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.replication.roles import passing_on
from rockhopper.broker.replication.roles.passing_on import PassingOn
from rockhopper.broker.server.listening.outgoing import PLAIN
from rockhopper.broker.server.remoting.server import Server
from rockhopper.tasks import start_task
from tests.support.handlers import Ignoring

NEVER_MS = 3_600_000


class Master:
    def master_address(self) -> str:
        return "127.0.0.1:9"


HANDLER = Ignoring()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server("broker", HANDLER, connections_max=10)
    yield made
    await made.close()


async def answers(*_: object) -> None: ...


async def refuses(*_: object) -> None:
    raise ConnectionRefusedError("connection refused")


@pytest.fixture(autouse=True)
def the_other_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passing_on, "serves", answers)


def new() -> PassingOn:
    return PassingOn(PLAIN, None, NEVER_MS)


async def test_only_who_was_recalled_comes_home(server: Server) -> None:
    passing = new()
    assert not passing.come_home(server)
    passing.recall(server)
    assert passing.come_home(server)
    assert not passing.come_home(server)


async def test_who_was_recalled_for_a_role_that_did_not_come_about_is_sent_away(
    server: Server,
) -> None:
    passing = new()
    passing.recall(server)
    passing.send_away()
    assert not passing.come_home(server)


async def test_nobody_is_passed_on_to_a_master_that_does_not_answer(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passing_on, "serves", refuses)
    passing = new()
    with capture_logs() as lines:
        await passing.pass_on(passing.hold(server), Master(), frozenset())
    assert [(line["event"], line["to"], line["reason"]) for line in lines] == [
        ("clients cannot be forwarded to the new master", "127.0.0.1:9", "connection refused")
    ]
    other = Server("broker", HANDLER, connections_max=10)
    passing.begin_to_refuse(other, frozenset())
    assert other.handler is HANDLER


async def test_draining_ends_when_the_master_does_not_answer_but_not_before_it_is_asked(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passing_on, "serves", refuses)
    passing = new()
    await passing.pass_on(passing.hold(server), Master(), frozenset())
    await passing.drain(NEVER_MS)
    held = passing.hold(server)
    assert not passing.has_ended
    draining = start_task(passing.drain(NEVER_MS))
    await asyncio.sleep(0)
    assert not draining.done()
    await passing.pass_on(held, Master(), frozenset())
    await draining


async def test_recalled_clients_are_drained_again(server: Server) -> None:
    passing = new()
    await passing.pass_on(passing.hold(server), Master(), frozenset())
    passing.recall(server)
    assert not passing.has_ended


async def test_a_server_refuses_by_itself_once_nobody_is_passed_on_any_more(
    server: Server,
) -> None:
    passing = new()
    await passing.pass_on(passing.hold(server), Master(), frozenset())
    assert passing.has_ended
    other = Server("broker", HANDLER, connections_max=10)
    passing.begin_to_refuse(other, frozenset())
    assert other.handler is not HANDLER
    passing.stop()
    assert other.handler is HANDLER
    assert passing.has_ended


async def test_draining_ends_with_the_last_client_and_with_its_time(server: Server) -> None:
    passing = new()
    await passing.drain(0)
    assert not passing.has_ended, "its time is over"
    await passing.pass_on(passing.hold(server), Master(), frozenset())
    await passing.drain(NEVER_MS)
    assert passing.has_ended


async def test_draining_can_be_hurried_also_before_it_begins() -> None:
    passing = new()
    draining = start_task(passing.drain(NEVER_MS))
    await asyncio.sleep(0)
    passing.hurry()
    await draining
    await passing.drain(NEVER_MS)
    assert not passing.has_ended
