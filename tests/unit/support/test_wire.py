"""The peer that tests ask through: it ends when it is told, and says that the broker has gone."""

import asyncio

import pytest

from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.command import Command
from tests.support.listening import listening
from tests.support.wire import WireClient


async def test_a_request_is_cancelled_although_its_answer_has_just_come() -> None:
    client = WireClient("127.0.0.1:1")
    sent = asyncio.get_running_loop().create_future()
    client.send = lambda *_: sent  # type: ignore[method-assign]
    asking = asyncio.create_task(client.ask(RequestCode.PULL_MESSAGE))
    await asyncio.sleep(0)
    sent.set_result(Command(code=0, opaque=1))
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_what_is_sent_to_a_closed_connection_is_refused_as_by_a_socket() -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with (
        listening(serve) as port,
        WireClient(f"127.0.0.1:{port}") as client,
    ):
        await client.close()
        with pytest.raises(ConnectionError, match="hung up"):
            client.send(RequestCode.PULL_MESSAGE)
