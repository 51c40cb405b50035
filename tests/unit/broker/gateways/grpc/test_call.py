"""One RPC of a client."""

from typing import Any

import pytest

from rockhopper.broker.gateways.grpc.call import Call
from rockhopper.broker.gateways.grpc.statuses import GrpcStatusError
from rockhopper.broker.store.files.errors import NotReplicatedError
from rockhopper.broker.store.lease_gate import LeaseGate
from rockhopper.protocol.grpc_v2.codes import Code
from rockhopper.protocol.grpc_v2.framing import MessageSplitter
from tests.support.grpc_client import GrpcBroker, GrpcClient
from tests.support.held_clock import HeldClock


@pytest.fixture
async def rpc(served: GrpcBroker) -> Any:
    return served.gateway.server.service.find("/apache.rocketmq.v2.MessagingService/QueryRoute")


class Delivered:
    def __init__(self) -> None:
        self.unsent: list[int] = []

    def lost(self, unsent: int) -> None:
        self.unsent.append(unsent)


def call_with(client: GrpcClient, rpc: Any, **fields: str) -> Call:
    named = {name.replace("_", "-"): value for name, value in fields.items()}
    return Call(client.connection, 1, rpc, named, MessageSplitter("identity", 100))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("8S", 8.0), ("2500m", 2.5), ("1H", 3600.0), ("3000000u", 3.0), ("9999999n", 0.01)],
)
async def test_a_deadline_is_read_in_every_unit(
    client: GrpcClient, rpc: Any, text: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = HeldClock(monkeypatch)
    call = call_with(client, rpc, grpc_timeout=text)
    assert call.remaining_s() == pytest.approx(seconds, rel=1e-6)
    clock.advance(0.5)
    assert call.remaining_s() == pytest.approx(seconds - 0.5, rel=1e-6)


@pytest.mark.parametrize("text", ["", "S", "8", "8 S", "123456789S", "-1S"])
async def test_what_is_no_deadline_is_none(client: GrpcClient, rpc: Any, text: str) -> None:
    assert call_with(client, rpc, grpc_timeout=text).remaining_s() is None


@pytest.mark.parametrize("text", ["", "  ", "x" * 1025])
async def test_a_client_has_an_id(client: GrpcClient, rpc: Any, text: str) -> None:
    with pytest.raises(GrpcStatusError) as failure:
        _ = call_with(client, rpc, x_mq_client_id=text).client_id
    assert failure.value.code is Code.CLIENT_ID_REQUIRED


async def test_who_waits_learns_once_that_the_call_is_over(client: GrpcClient, rpc: Any) -> None:
    call = call_with(client, rpc)
    told: list[object] = []
    waiting = call.waiting()
    waiting.on_close.append(told.append)
    assert call.waiting() is waiting
    call.over()
    call.over()
    assert told == [waiting]
    assert waiting.closed


async def test_a_promise_is_held_until_the_gate_opens_or_is_refused(
    client: GrpcClient, rpc: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bytes] = []
    monkeypatch.setattr(
        type(client.connection), "answer", lambda _connection, _stream, data: written.append(data)
    )
    is_open = False
    gate = LeaseGate(lambda: is_open, 3000)
    promised, refused = (call_with(client, rpc._replace(gate=gate)) for _ in range(2))
    promised.reply(rpc.method.reply())
    assert not written
    is_open = True
    gate.look()
    assert len(written) == 1
    is_open = False
    refused.reply(rpc.method.reply())
    gate.refuse(NotReplicatedError("another one leads"))
    assert b"another one leads" in written[1]
    gate.close()


async def test_nothing_is_said_once_a_call_is_over(client: GrpcClient, rpc: Any) -> None:
    call = call_with(client, rpc)
    delivery = Delivered()
    call.delivery = delivery
    call.over(unsent=3)
    assert delivery.unsent == [3]
    call.reply(rpc.method.reply())
    call.write(rpc.method.reply())
    call.end_call()
    call.refuse(ValueError("late"))
