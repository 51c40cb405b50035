"""A link to a name server: opened when it is needed, told at once when the other side goes."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from rockhopper.broker.name_server import link as module
from rockhopper.broker.name_server.link import NameServiceLink, RefusedError
from rockhopper.protocol.command import Command
from tests.support.fake_server import FakeServer
from tests.support.turns import until


class Linked:
    def __init__(self, address: str) -> None:
        self.losses = 0
        self.requests: list[Command] = []
        self.link = NameServiceLink(address, self)

    def link_lost(self) -> None:
        self.losses += 1

    def request_received(self, command: Command) -> None:
        self.requests.append(command)


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with FakeServer() as made:
        made.on(1, lambda request: Command(0, body=request.body[::-1]))
        made.on(2, lambda request: Command(17, remark="no such topic"))
        made.on(3, lambda request: None)
        yield made


@pytest.fixture
async def linked(server: FakeServer) -> AsyncIterator[Linked]:
    made = Linked(server.address)
    yield made
    made.link.close()


async def test_it_connects_with_the_first_request_and_keeps_the_connection(
    server: FakeServer, linked: Linked
) -> None:
    assert not linked.link.is_connected
    assert (await linked.link.call(1, {}, b"abc")).body == b"cba"
    assert linked.link.is_connected
    assert (await linked.link.call(1, {}, b"de")).body == b"ed"
    assert len(server.connections) == 1
    assert await linked.link.connect() == ("127.0.0.1", "127.0.0.1")


async def test_many_calls_at_once_get_their_own_answers(server: FakeServer, linked: Linked) -> None:
    bodies = [b"%d!" % number for number in range(20)]
    answers = await asyncio.gather(*(linked.link.call(1, {}, body) for body in bodies))
    assert [answer.body for answer in answers] == [body[::-1] for body in bodies]
    assert len(server.connections) == 1


async def test_another_code_is_a_refusal_for_a_call_and_an_answer_for_a_question(
    linked: Linked,
) -> None:
    with pytest.raises(RefusedError, match="refused with code 17: no such topic") as error:
        await linked.link.call(2, {})
    assert error.value.code == 17
    assert (await linked.link.ask(2, {})).code == 17


async def test_its_owner_and_callers_learn_when_the_other_side_goes(
    server: FakeServer, linked: Linked
) -> None:
    call = asyncio.ensure_future(linked.link.call(3, {}))
    await server.wait_for(3)
    server.drop_connections()
    with pytest.raises(ConnectionResetError):
        await call
    assert linked.losses == 1
    assert not linked.link.is_connected
    assert (await linked.link.call(1, {}, b"x")).body == b"x"


async def test_its_own_farewell_is_no_loss(server: FakeServer, linked: Linked) -> None:
    await linked.link.connect()
    linked.link.close()
    await until(lambda: not server.connections)
    assert linked.losses == 0


async def test_what_wants_no_answer_is_sent_only_where_a_connection_stands(
    server: FakeServer, linked: Linked
) -> None:
    linked.link.tell(9, {"a": "1"})
    assert not linked.link.is_connected
    await linked.link.connect()
    linked.link.tell(9, {"a": "2"})
    (told,) = await server.wait_for(9)
    assert (told.ext, bool(told.flag & 2)) == ({"a": "2"}, True)


async def test_requests_of_the_other_side_are_handed_on(server: FakeServer, linked: Linked) -> None:
    await linked.link.call(1, {}, b"")
    server.connections[0].transport.write(_frame(Command(70010, ext={"topic": "t"})))
    await until(lambda: bool(linked.requests))
    assert linked.requests[0].ext == {"topic": "t"}


@pytest.mark.parametrize(
    "garbage", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\x08\0\0\0\x04xxxx"]
)
async def test_who_is_no_name_service_is_hung_up_on(
    server: FakeServer, linked: Linked, garbage: bytes
) -> None:
    await linked.link.call(1, {}, b"")
    call = asyncio.ensure_future(linked.link.call(3, {}))
    await server.wait_for(3)
    server.connections[0].transport.write(garbage)
    with pytest.raises(ConnectionResetError):
        await call


async def test_nobody_there_is_an_os_error() -> None:
    with pytest.raises(OSError, match="onnect"):
        await NameServiceLink("127.0.0.1:1").connect()


async def test_a_name_that_leads_elsewhere_is_followed_though_the_old_address_answers(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = int(server.address.rpartition(":")[2])
    leads_to = ["127.0.0.1"]

    async def look_up(*_: object, **__: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in leads_to]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
    linked = Linked(f"localhost:{port}")
    await linked.link.call(1, {}, b"a")
    leads_to[:] = ["127.0.0.2"]
    await linked.link.call(1, {}, b"b")
    assert linked.losses == 0  # it is looked up now and then only
    monkeypatch.setattr(module, "NAME_CHECK_INTERVAL_S", 0.0)
    with pytest.raises(OSError, match=r"127\.0\.0\.2"):
        await linked.link.call(1, {}, b"c")
    assert linked.losses == 1
    leads_to[:] = ["127.0.0.1"]
    await linked.link.call(1, {}, b"d")
    await linked.link.call(1, {}, b"e")
    assert linked.losses == 1
    linked.link.close()


def _frame(command: Command) -> bytes:
    from rockhopper.protocol.command import encode_command

    return encode_command(command)
