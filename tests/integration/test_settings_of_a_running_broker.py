"""UPDATE_BROKER_CONFIG (25) on a running broker: what Apache's changes live changes here, too."""

from rockhopper.broker import Broker
from rockhopper.protocol.codes import RequestCode, ResponseCode
from tests.support.direct import ask, pull_fields, send, send_fields
from tests.support.wire import WireClient


async def update(broker: Broker, text: str) -> int:
    return (await ask(broker.address, RequestCode.UPDATE_BROKER_CONFIG, None, text.encode())).code


async def test_the_largest_body_changes_on_every_way_in() -> None:
    async with Broker.temporary() as broker, WireClient(broker.address) as client:
        fields = dict(zip("abcdefghi", send_fields("orders").values(), strict=True))
        assert (await send(broker.address, "orders", bytes(1001))).code == ResponseCode.SUCCESS

        async def codes(size: int) -> set[int]:
            """Of a send the general way and of one the short way."""
            answers = [
                await client.ask(RequestCode.SEND_MESSAGE, send_fields("orders"), bytes(size)),
                await client.ask(RequestCode.SEND_MESSAGE_V2, fields, bytes(size)),
            ]
            return {answer.code for answer in answers}

        assert await codes(1001) == {ResponseCode.SUCCESS}
        assert await update(broker, "maxMessageSize=1000\n") == ResponseCode.SUCCESS
        assert await codes(1001) == {ResponseCode.MESSAGE_ILLEGAL}
        assert await codes(1000) == {ResponseCode.SUCCESS}
        assert await update(broker, "maxMessageSize=0\n") == ResponseCode.SYSTEM_ERROR
        broker.purge()
        assert (await send(broker.address, "orders", bytes(1001))).code == ResponseCode.SUCCESS


async def test_polling_changes_for_the_pulls_that_come() -> None:
    async with Broker.temporary() as broker:
        await send(broker.address, "orders", b"hello")
        changes = "longPollingEnable=false\nshortPollingTimeMills=1\n"
        assert await update(broker, changes) == ResponseCode.SUCCESS
        fields = pull_fields("orders", 1, suspend_ms=3_600_000)
        answer = await ask(broker.address, RequestCode.PULL_MESSAGE, fields)
        assert answer.code == ResponseCode.PULL_NOT_FOUND
