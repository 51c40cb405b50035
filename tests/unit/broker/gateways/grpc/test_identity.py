"""Who a call is from, and what becomes of those who cannot say."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rockhopper.broker.users.access import Action
from rockhopper.broker.users.accounts import Pattern, Rule, User
from rockhopper.broker.users.guard import Guard
from rockhopper.protocol.grpc_v2.codes import Code
from rockhopper.protocol.signing import sign
from tests.support.features import needs
from tests.support.grpc_client import (
    GrpcBroker,
    GrpcClient,
    receiving,
    request,
    sending,
    settings_of_consumer,
)
from tests.support.peers import Clock

DATE = "20261126T190000Z"
SECRETS = {"alice": "the secret of alice", "bob": "the secret of bob"}


@pytest.fixture
def guard() -> Guard:
    made = Guard(remote_admin=False, authenticates=True)
    made.use({name: User(name, secret) for name, secret in SECRETS.items()}, {})
    return made


@pytest.fixture
async def served(tmp_path: Path, clock: Clock, guard: Guard) -> AsyncIterator[GrpcBroker]:
    made = GrpcBroker(tmp_path, clock, {}, guard)
    made.open_gateway()
    made.create_topic("t")
    yield made
    await made.close()


def signed(user: str, secret: str | None = None, *, upper: bool = False, scope: str = "") -> Any:
    """Header fields as the clients write them: some add a region, some write upper case."""
    signature = sign(SECRETS.get(user, "") if secret is None else secret, DATE.encode()).hex()
    text = (
        f"MQv2-HMAC-SHA1 Credential={user}{scope}, SignedHeaders=x-mq-date-time, "
        f"Signature={signature.upper() if upper else signature}"
    )
    return {"authorization": text, "x_mq_date_time": DATE}


@pytest.mark.parametrize("scope", ["", "//Rocketmq", "/cn/Rocketmq"])
@pytest.mark.parametrize("upper", [False, True])
async def test_a_signature_says_who_it_is(client: GrpcClient, scope: str, upper: bool) -> None:
    fields = signed("alice", upper=upper, scope=scope)
    for _ in range(2):
        reply = await client.ask("SendMessage", sending("t"), **fields)
        assert reply.status.code == Code.OK
    assert client.connection.identity.user == "alice"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"authorization": "Basic abc"},
        signed("alice", "another secret"),
        signed("mallory", "the secret of nobody"),
        signed("alice") | {"x_mq_date_time": "20261126T190001Z"},
        signed("alice") | {"x_mq_authorization_ak": "alice", "x_mq_date_time": "x"},
    ],
)
async def test_who_proves_nothing_is_refused(
    served: GrpcBroker, client: GrpcClient, fields: dict[str, str]
) -> None:
    reply = await client.ask("SendMessage", sending("t"), **fields)
    assert reply.status.code == Code.UNAUTHORIZED
    assert served.store.log.written_offset == 0


async def test_what_one_proved_is_not_anothers(client: GrpcClient) -> None:
    await client.ask("SendMessage", sending("t"), **signed("alice"))
    reply = await client.ask("SendMessage", sending("t"))
    assert reply.status.code == Code.UNAUTHORIZED
    reply = await client.ask("SendMessage", sending("t"), **signed("bob"))
    assert reply.status.code == Code.OK


async def test_a_stream_without_a_signature_fails(client: GrpcClient) -> None:
    stream_id, telemetry = client.begin("Telemetry")
    client.send(stream_id, settings_of_consumer("g", "t"))
    (told,) = await telemetry.until(1)
    assert told.status.code == Code.UNAUTHORIZED
    reply = await client.ask("Heartbeat", request("Heartbeat", group="g", client_type=3))
    assert reply.status.code == Code.UNAUTHORIZED


async def test_a_client_id_belongs_to_its_user(client: GrpcClient) -> None:
    stream_id, telemetry = client.begin("Telemetry", **signed("alice"))
    client.send(stream_id, settings_of_consumer("g", "t"))
    await telemetry.until(1)
    beat = request("Heartbeat", group="g", client_type=3)
    assert (await client.ask("Heartbeat", beat, **signed("alice"))).status.code == Code.OK
    stolen = await client.ask("Heartbeat", beat, **signed("bob"))
    assert stolen.status.code == Code.UNAUTHORIZED


async def test_a_user_who_is_changed_is_let_go(served: GrpcBroker, client: GrpcClient) -> None:
    stream_id, telemetry = client.begin("Telemetry", **signed("alice"))
    client.send(stream_id, settings_of_consumer("g", "t"))
    await telemetry.until(1)
    other = GrpcClient(served.gateway)
    await other.ask("SendMessage", sending("t"), **signed("bob"))
    served.gateway.end_user("alice")
    assert client.pipe.is_closed
    assert not other.pipe.is_closed
    assert len(served.gateway.sessions) == 0


@pytest.mark.parametrize("users", [{}, {"alice": User("alice", "another secret")}])
async def test_a_replay_is_refused_once_its_user_has_changed(
    served: GrpcBroker, client: GrpcClient, guard: Guard, users: dict[str, User]
) -> None:
    recorded = signed("alice")
    assert (await client.ask("SendMessage", sending("t"), **recorded)).status.code == Code.OK
    guard.use(users, {})
    other = GrpcClient(served.gateway)
    reply = await other.ask("SendMessage", sending("t"), **recorded)
    assert reply.status.code == Code.UNAUTHORIZED


@pytest.mark.parametrize("rpc", [pytest.param("ReceiveMessage", marks=needs("pop")), "PullMessage"])
async def test_a_call_that_waits_gets_nothing_once_its_right_is_taken_away(
    tmp_path: Path, clock: Clock, rpc: str
) -> None:
    rules = {
        "alice": [
            Rule(Pattern.parse(resource), frozenset({Action.SUB}), (), is_allowed=True)
            for resource in ("Topic:t", "Group:g")
        ]
    }
    guard = Guard(remote_admin=False, authenticates=True, authorizes=True)
    guard.use({"alice": User("alice", SECRETS["alice"])}, rules)
    served = GrpcBroker(tmp_path, clock, {}, guard)
    served.open_gateway()
    served.create_topic("t", queues=1)
    client = GrpcClient(served.gateway)
    made = receiving("t")
    if rpc == "PullMessage":
        made = request(rpc, group="g", long_polling_timeout_ms=20_000)
        made.message_queue.topic.name = "t"
    waiting = client.ask_for(rpc, made, **signed("alice"))
    assert not waiting.is_ended
    del rules["alice"][0]
    guard.rules_changed()
    served.put("t", b"late")
    await waiting.ended()
    assert [each.status.code for each in waiting.messages] == [Code.UNAUTHORIZED]
    await served.close()
