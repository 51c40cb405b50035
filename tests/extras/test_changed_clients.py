"""Groups that move from clients that pull to clients that pop, and back: what waits comes along."""

import grpc.aio  # type: ignore[import-untyped, unused-ignore]

from rockhopper.broker.app import Broker
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from tests.extras.test_grpc import ask
from tests.integration.test_group_consumption import heartbeat, pull, send
from tests.support.grpc_client import receiving
from tests.support.popping import PopConsumer
from tests.support.raw_peer import RawPeer
from tests.support.wire import WireClient


async def test_what_a_push_client_of_4_failed_comes_by_grpc() -> None:
    async with Broker.temporary({"grpcPort": "0"}) as broker:
        async with WireClient(broker.address) as client:
            await client.ask(Code.HEART_BEAT, body=heartbeat("c4", "billing", "orders"))
            await send(client, "orders", b"failed")
            (message,) = await pull(client, "billing", "orders")
            own = {"group": "billing", "originTopic": "orders", "delayLevel": "1"}
            back = own | {"offset": str(message.commit_log_offset)}
            answer = await client.ask(Code.CONSUMER_SEND_MSG_BACK, back)
            assert answer.code == ResponseCode.SUCCESS
            broker.tables.offsets.commit("orders", "billing", 0, 1)
            assert await pull(client, "billing", "%RETRY%billing")
            left = {"clientID": "c4", "consumerGroup": "billing"}
            await client.ask(Code.UNREGISTER_CLIENT, left)
        async with grpc.aio.insecure_channel(broker.grpc_address) as channel:
            _, received, _ = await ask(channel, "ReceiveMessage", receiving("orders", "billing"))
        assert received.message.body == b"failed"
        assert received.message.topic.name == "orders"
        assert received.message.system_properties.delivery_attempt == 2


async def test_what_a_pop_failed_comes_to_a_push_client_of_4(broker: Broker) -> None:
    async with RawPeer(broker.address) as peer, WireClient(broker.address) as client:
        await send(client, "orders", b"failed")
        popping = PopConsumer(peer, "billing", "orders")
        assert await popping.pop(invisibleTime=1)
        await client.ask(Code.HEART_BEAT, body=heartbeat("c4", "billing", "orders"))
        (message,) = await pull(client, "billing", "%RETRY%billing")
        assert message.body == b"failed"
        assert message.properties["RETRY_TOPIC"] == "orders"
