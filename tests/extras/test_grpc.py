"""The port of RocketMQ 5 clients, in a whole broker: grpcio as the client, over sockets."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio  # type: ignore[import-untyped, unused-ignore]
import pytest

from rockhopper.broker.app import Broker
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.protocol.grpc_v2.codes import Code
from rockhopper.protocol.grpc_v2.messages import METHODS, SERVICE
from tests.support.daemon import Daemon
from tests.support.direct import pull, send
from tests.support.grpc_client import receiving, request, sending
from tests.support.hang import HANG_S

METADATA = (("x-mq-client-id", "c1"), ("x-mq-language", "JAVA"))


async def ask(channel: grpc.aio.Channel, rpc: str, asked: Any) -> Any:
    """The reply, or the replies of a stream."""
    method = METHODS[rpc]
    kind = channel.unary_stream if method.streams_replies else channel.unary_unary
    call = kind(
        f"/{SERVICE}/{rpc}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=method.reply.FromString,
    )(asked, metadata=METADATA, timeout=HANG_S)
    if method.streams_replies:
        return [reply async for reply in call]
    return await call


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker.temporary({"grpcPort": "0"}) as made:
        made.tables.topics.put(TopicConfig("t", read_queue_nums=1, write_queue_nums=1))
        yield made


async def test_clients_of_both_protocols_meet(broker: Broker) -> None:
    async with grpc.aio.insecure_channel(broker.grpc_address) as channel:
        route = await ask(channel, "QueryRoute", request("QueryRoute", topic="t"))
        (address,) = route.message_queues[0].broker.endpoints.addresses
        assert f"{address.host}:{address.port}" == broker.grpc_address
        await ask(channel, "SendMessage", sending("t", b"from 5"))
        await send(broker.address, "t", b"from 4")
        _, *messages, _ = await ask(channel, "ReceiveMessage", receiving("t"))
        assert [each.message.body for each in messages] == [b"from 5", b"from 4"]
    assert [each.body for each in await pull(broker.address, "t")] == [b"from 5", b"from 4"]
    assert {
        (kind.protocol, kind.request, kind.response)
        for kind, _ in broker.kernel.request_times.rows()
    } >= {
        ("grpc", "send_message", "ok"),
        ("grpc", "query_route", "ok"),
        ("grpc", "receive_message", "ok"),
        ("remoting", "send_message", "success"),
    }


async def test_tls_is_there_without_any_setting(broker: Broker) -> None:
    certificate = broker.config.store.root / "config" / "tls" / "certificate.pem"
    trusted = grpc.ssl_channel_credentials(certificate.read_bytes())
    async with grpc.aio.secure_channel(broker.grpc_address, trusted) as channel:
        reply = await ask(channel, "QueryRoute", request("QueryRoute", topic="gone"))
        assert reply.status.code == Code.TOPIC_NOT_FOUND
        assert broker.servers.grpc is not None
        assert broker.servers.grpc.server.tls_count == 1


async def test_the_daemon_says_where_it_listens(tmp_path: Path) -> None:
    async with Daemon(tmp_path, "--set", "grpcPort=0") as daemon:
        (serving,) = [line for line in daemon.lines if line["event"] == "serving"]
        async with grpc.aio.insecure_channel(serving["grpc"]) as channel:
            reply = await ask(channel, "QueryRoute", request("QueryRoute", topic="gone"))
            assert reply.status.code == Code.TOPIC_NOT_FOUND
        assert await daemon.stop() == 0


async def test_each_of_several_brokers_has_its_own_port(tmp_path: Path) -> None:
    options = ("--brokers", "2", "--set", "grpcPort=0", "--set", "autoCreateTopic=on-lookup")
    async with Daemon(tmp_path, *options) as daemon:
        addresses = {
            line["node"]: line["grpc"]
            for line in daemon.lines
            if line.get("grpc") and "node" in line
        }
        assert len(set(addresses.values())) == 2
