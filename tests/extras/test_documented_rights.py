"""docs/security.md: whoever has the rights that it names does what it says, with every client."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import grpc.aio  # type: ignore[import-untyped, unused-ignore]
import pytest

from rockhopper import App, ReceivedMessage, sync
from rockhopper.broker.app import Broker
from rockhopper.client import Admin, Consumer, Credentials, Producer, PullConsumer
from rockhopper.client.errors import ClientError
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.grpc_v2.codes import Code
from rockhopper.protocol.grpc_v2.messages import METHODS, SERVICE
from rockhopper.protocol.signing import sign, sign_fields
from tests.support.command_line import CommandLine
from tests.support.console import Browser
from tests.support.documented_rights import documented_commands, documented_rights
from tests.support.grpc_client import receiving, request, sending
from tests.support.hang import HANG_S
from tests.support.popping import pop_fields
from tests.support.wire import WireClient

ROOT = Credentials("root", "the secret of root")
BILLING = Credentials("billing", "the secret of billing")
BODY = b"an order"
DATE = "20261129T120000Z"
SETTINGS = {
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "initAuthenticationUser": f'{{"username": "root", "password": "{ROOT.secret}"}}',
    "brokerIP1": "127.0.0.1",
    "grpcPort": "0",
    "httpPort": "0",
}


class Asked(NamedTuple):
    """A broker, and as whom to ask it."""

    broker: Broker
    user: Credentials

    async def as_root(self) -> None:
        """Send a message that a consumer is to get."""
        async with Producer(self.broker.nameserver, credentials=ROOT) as producer:
            await producer.send("orders", BODY)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker.temporary(SETTINGS) as made:
        yield made


@pytest.fixture
async def shell(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """As root, as the page begins."""
    monkeypatch.setenv("ROCKHOPPER_CREDENTIALS_FILE", written(tmp_path / "root", ROOT))
    return CommandLine(broker.nameserver)


def written(path: Path, user: Credentials) -> str:
    path.touch(0o600)
    path.write_text(f"accessKey: {user.access_key}\nsecretKey: {user.secret}\n")
    return str(path)


async def send(asked: Asked) -> None:
    async with Producer(asked.broker.nameserver, credentials=asked.user) as producer:
        await producer.send("orders", BODY)


async def send_without_await(asked: Asked) -> None:
    def run() -> None:
        with sync.Producer(asked.broker.nameserver, credentials=asked.user) as producer:
            producer.send("orders", BODY)

    await asyncio.to_thread(run)


async def send_by_an_app(asked: Asked) -> None:
    async with App(asked.broker.nameserver, credentials=asked.user) as app:
        await app.producer.send("orders", BODY)


async def send_by_grpc(asked: Asked) -> None:
    async with grpc.aio.insecure_channel(asked.broker.grpc_address) as channel:
        (reply,) = await call(channel, asked.user, "SendMessage", sending("orders", BODY))
        assert reply.status.code == Code.OK, reply


async def create_by_sending(asked: Asked) -> None:
    await send(asked)
    assert asked.broker.tables.topics.get("orders") is not None


async def send_with_traces(asked: Asked) -> None:
    nameserver = asked.broker.nameserver
    async with Producer(nameserver, credentials=asked.user, trace=True) as producer:
        await producer.send("orders", BODY)
    assert asked.broker.store.reading.queue_range("RMQ_SYS_TRACE_TOPIC", 0)


async def consume(asked: Asked) -> None:
    nameserver = asked.broker.nameserver
    async with Consumer("billing", "orders", nameserver=nameserver, credentials=asked.user) as made:
        async for message in made:
            assert message.body == BODY
            break


async def consume_without_await(asked: Asked) -> None:
    def run() -> None:
        nameserver = asked.broker.nameserver
        with sync.Consumer(
            "billing", "orders", nameserver=nameserver, credentials=asked.user
        ) as consumer:
            for message in consumer:
                assert message.body == BODY
                break

    await asyncio.to_thread(run)


async def consume_by_pulls(asked: Asked) -> None:
    nameserver = asked.broker.nameserver
    async with PullConsumer(
        "orders", group="billing", nameserver=nameserver, credentials=asked.user
    ) as consumer:
        await consumer.assign(await consumer.queues())
        for queue in consumer.assigned:
            await consumer.seek(queue, "earliest")
        while not (messages := await consumer.pull()):
            continue
        assert messages[0].body == BODY


async def consume_by_an_app(asked: Asked) -> None:
    got: asyncio.Queue[bytes] = asyncio.Queue()
    app = App(asked.broker.nameserver, credentials=asked.user)

    @app.subscriber("orders", group="billing")
    async def bill(message: ReceivedMessage) -> None:
        got.put_nowait(message.body)

    async with app:
        assert await got.get() == BODY


async def consume_by_pop(asked: Asked) -> None:
    fields = pop_fields(topic="orders", consumerGroup="billing")
    async with WireClient(asked.broker.address) as client:
        signed = sign_fields(asked.user, fields, b"", 0)
        answer = await client.ask(RequestCode.POP_MESSAGE, signed)
    assert answer.code == ResponseCode.SUCCESS, answer
    assert BODY in answer.body


async def consume_by_grpc(asked: Asked) -> None:
    async with grpc.aio.insecure_channel(asked.broker.grpc_address) as channel:
        (route,) = await call(
            channel, asked.user, "QueryRoute", request("QueryRoute", topic="orders")
        )
        assert route.status.code == Code.OK, route
        received = await call(channel, asked.user, "ReceiveMessage", receiving("orders", "billing"))
        assert [each.message.body for each in received if each.HasField("message")] == [BODY]


async def call(channel: grpc.aio.Channel, user: Credentials, rpc: str, asked: Any) -> list[Any]:
    method = METHODS[rpc]
    kind = channel.unary_stream if method.streams_replies else channel.unary_unary
    signature = sign(user.secret, DATE.encode()).hex()
    made = kind(
        f"/{SERVICE}/{rpc}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=method.reply.FromString,
    )(
        asked,
        metadata=(
            ("x-mq-client-id", "c1"),
            ("x-mq-language", "JAVA"),
            ("x-mq-date-time", DATE),
            (
                "authorization",
                f"MQv2-HMAC-SHA1 Credential={user.access_key}, SignedHeaders=x-mq-date-time, "
                f"Signature={signature}",
            ),
        ),
        timeout=HANG_S,
    )
    if method.streams_replies:
        return [reply async for reply in made]
    return [await made]


async def pull_by_command(asked: Asked) -> None:
    shell = CommandLine(asked.broker.nameserver)
    done = await shell.run("pull", "orders")
    assert BODY.decode() in done.out, done


async def list_topics(asked: Asked) -> None:
    done = await CommandLine(asked.broker.nameserver).run("topic", "list")
    assert (done.code, "orders" in done.out) == (0, True), done


async def show_lag(asked: Asked) -> None:
    asked.broker.tables.offsets.commit("orders", "billing", 0, 0)
    done = await CommandLine(asked.broker.nameserver).run("group", "lag", "billing")
    assert (done.code, "orders" in done.out) == (0, True), done


async def scrape(asked: Asked) -> None:
    browser = Browser(asked.broker.http_address, (asked.user.access_key, asked.user.secret))
    assert (await browser.ask("GET", "/metrics")).status == 200


CONSUMING = (
    consume,
    consume_without_await,
    consume_by_pulls,
    consume_by_an_app,
    consume_by_pop,
    consume_by_grpc,
)
CLIENTS: dict[str, tuple[Callable[[Asked], Awaitable[None]], ...]] = {
    "a producer": (send, send_without_await, send_by_an_app, send_by_grpc),
    "a producer that creates its topics by sending": (create_by_sending,),
    "a producer that writes traces": (send_with_traces,),
    "a consumer: ours, RocketMQ's and those of gRPC, by pull or by pop": CONSUMING,
    "`rockhopper pull`": (pull_by_command,),
    "`rockhopper topic list`": (list_topics,),
    "`rockhopper group lag billing`": (show_lag,),
    "Prometheus": (scrape,),
}


def test_every_documented_row_is_tested() -> None:
    """Spark's in tests/pipeline/test_secured_in_spark.py; Java's client in interop/test_users."""
    rights = documented_rights()
    assert all(rights.values())
    assert [who for who in rights if not who.startswith("Spark, ")] == list(CLIENTS)


@pytest.mark.parametrize(
    ("who", "does"),
    [pytest.param(who, does, id=does.__name__) for who, all_ in CLIENTS.items() for does in all_],
)
async def test_who_has_these_rights_and_no_others_does_what_the_page_says(
    broker: Broker,
    who: str,
    does: Callable[[Asked], Awaitable[None]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = Asked(broker, BILLING)
    if does is not create_by_sending:
        await asked.as_root()
    monkeypatch.setenv("ROCKHOPPER_CREDENTIALS_FILE", written(tmp_path / "billing", BILLING))
    async with Admin(broker.nameserver, credentials=ROOT) as admin:
        await admin.accounts.add_user("billing", BILLING.secret)
        for resource, actions in documented_rights()[who]:
            await admin.accounts.add_rule("billing", resource, actions, is_allowed=True)
    async with asyncio.timeout(HANG_S):
        await does(asked)


async def test_the_commands_give_the_rights_that_they_show(
    broker: Broker, shell: CommandLine, tmp_path: Path
) -> None:
    """One after the other; whoever is made by them sends and reads once his rules stand."""
    secret = tmp_path / "secret"
    secret.write_text(BILLING.secret)
    commands = documented_commands()
    assert ["user", "add", "billing"] in commands
    asked = Asked(broker, BILLING)
    await asked.as_root()
    for kind, verb, *rest in commands:
        # The page's network is not the one of tests; a secret is asked for at a terminal.
        rest = ["127.0.0.0/8" if each == "10.0.0.0/8" else each for each in rest]
        rest = ["127.0.0.1" if each == "10.1.2.3" else each for each in rest]
        if (kind, verb) == ("user", "passwd"):
            for does in (send, consume):
                async with asyncio.timeout(HANG_S):
                    await does(asked)
            secret.write_text("a new secret of billing")
            rest[rest.index("new-secret")] = str(secret)
        if (kind, verb) == ("user", "add"):
            rest += ["--secret-file", str(secret)]
        if (kind, verb) == ("user", "remove"):
            rest.append("--yes")
        done = await shell.run(kind, verb, *rest)
        assert done.code == 0, (kind, verb, rest, done)
        if (kind, verb) == ("acl", "test"):
            assert ": allowed: " in done.out, done
    assert "billing" not in broker.tables.users.users
    with pytest.raises(ClientError):
        await send(asked)


async def test_what_was_recorded_is_served_again_until_the_secret_is_changed(
    broker: Broker,
) -> None:
    async with Admin(broker.nameserver, credentials=ROOT) as admin:
        await admin.accounts.add_user("billing", BILLING.secret)
        await admin.accounts.add_rule("billing", "Topic:orders", ["Pub", "Sub"], is_allowed=True)
        await Asked(broker, BILLING).as_root()
        sent = {"a": "billing", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0"}
        sent |= {"g": "0", "h": "0", "i": ""}
        recorded = sign_fields(BILLING, sent, BODY, 0)
        asked = sign_fields(BILLING, {"topic": "orders", "queueId": "0"}, b"", 0)

        async def replay(code: RequestCode, ext: dict[str, str], body: bytes = b"") -> int:
            async with WireClient(broker.address) as attacker:
                return (await attacker.ask(code, ext, body)).code

        before = broker.store.reading.queue_range("orders", 0)[1]
        for _ in range(2):
            code = await replay(RequestCode.SEND_MESSAGE_V2, recorded, BODY)
            assert code == ResponseCode.SUCCESS
        assert broker.store.reading.queue_range("orders", 0)[1] == before + 2
        # The signature is not of the request code.
        for each in (RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET):
            assert await replay(each, asked) == ResponseCode.SUCCESS
        await admin.accounts.change_secret("billing", "a new secret of billing")
        assert (
            await replay(RequestCode.SEND_MESSAGE_V2, recorded, BODY) == ResponseCode.NO_PERMISSION
        )
        assert broker.store.reading.queue_range("orders", 0)[1] == before + 2
