"""SQL92 filters over real sockets: in the request, from heartbeats, while waiting, on retries."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator

import pytest

from rockhopper.broker.app import TEMPORARY_SETTINGS, Broker
from rockhopper.broker.kernel.pull import pull_filters
from rockhopper.broker.settings.config_file import apply_live, build_config
from rockhopper.client import Message, Producer, PullConsumer, Sql
from rockhopper.client.errors import RequestRefusedError
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.errors import SqlSyntaxError
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.direct import pull_fields
from tests.support.hang import HANG_S
from tests.support.wire import WireClient

TOPIC, GROUP = "orders", "cheap"
PRICES = ["3", "7", "x", "12", "5"]


@pytest.fixture(autouse=True)
def _filters_have_all_the_time_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pull whose filter has used up its time ends early; a busy machine would decide where."""
    monkeypatch.setattr("rockhopper.broker.store.reading.property_stage.BUDGET_S", HANG_S)


async def send(client: WireClient, price: str, topic: str = TOPIC, more: str = "") -> None:
    ext = {"a": "senders", "b": topic, "c": "TBW102", "d": "1", "e": "0", "f": "0"}
    ext |= {"g": "1700000000000", "h": "0", "i": f"price\x01{price}\x02{more}"}
    answer = await client.ask(Code.SEND_MESSAGE_V2, ext, price.encode())
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def send_all(client: WireClient) -> None:
    for price in PRICES:
        await send(client, price)


def heartbeat(expression: str, kind: str = "SQL92", version: int = 1) -> bytes:
    subscriptions = [
        {"topic": TOPIC, "subString": expression, "expressionType": kind, "subVersion": version},
        {"topic": f"%RETRY%{GROUP}", "subString": "*", "subVersion": version},
    ]
    group = {"groupName": GROUP, "subscriptionDataSet": subscriptions}
    return json.dumps({"clientID": "c", "consumerDataSet": [group]}).encode()


async def beat(client: WireClient, expression: str, kind: str = "SQL92", version: int = 1) -> None:
    answer = await client.ask(Code.HEART_BEAT, {}, heartbeat(expression, kind, version))
    assert answer.code == ResponseCode.SUCCESS, answer.remark


def named(expression: str, offset: int = 0, suspend_ms: int = 0) -> dict[str, str]:
    """A pull that names its filter."""
    sql = {"subscription": expression, "expressionType": "SQL92"}
    return pull_fields(TOPIC, offset, suspend_ms=suspend_ms) | sql


def from_heartbeat(version: int = 1, kind: str = "SQL92", topic: str = TOPIC) -> dict[str, str]:
    """A pull as push consumers send it: its filter is the heartbeat's."""
    ext = pull_fields(topic, 0) | {"sysFlag": "0", "consumerGroup": GROUP, "expressionType": kind}
    del ext["subscription"]
    return ext | {"subVersion": str(version)}


def bodies(answer: Command) -> list[bytes]:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return [message.body for message in decode_messages(answer.body)]


def next_offset(answer: Command) -> int:
    assert answer.ext is not None
    return int(answer.ext["nextBeginOffset"])


async def test_a_pull_gets_what_its_expression_matches(client: WireClient) -> None:
    await send_all(client)
    answer = await client.ask(Code.PULL_MESSAGE, named("price > 4 AND price <> 12"))
    assert bodies(answer) == [b"7", b"5"]
    assert next_offset(answer) == 5


async def test_a_pull_that_matches_nothing_learns_how_far_it_is(client: WireClient) -> None:
    await send_all(client)
    answer = await client.ask(Code.PULL_MESSAGE, named("price > 100", suspend_ms=15_000))
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert next_offset(answer) == 5


async def test_an_expression_that_does_not_compile_is_refused_with_the_place(
    client: WireClient,
) -> None:
    await send_all(client)
    answer = await client.ask(Code.PULL_MESSAGE, named("price > AND"))
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert "found 'AND' (character 9)" in (answer.remark or "")


async def test_a_push_consumer_is_filtered_by_its_heartbeat(client: WireClient) -> None:
    await send_all(client)
    await beat(client, "price BETWEEN 5 AND 10")
    assert bodies(await client.ask(Code.PULL_MESSAGE, from_heartbeat())) == [b"7", b"5"]
    await beat(client, "price > 10", version=2)
    assert bodies(await client.ask(Code.PULL_MESSAGE, from_heartbeat(2))) == [b"12"]


async def test_a_heartbeat_that_does_not_compile_is_taken_but_its_pulls_fail(
    client: WireClient,
) -> None:
    await send_all(client)
    await beat(client, "price >< 5")
    answer = await client.ask(Code.PULL_MESSAGE, from_heartbeat())
    assert answer.code == ResponseCode.FILTER_DATA_NOT_EXIST
    assert "Your expression may be wrong! SQL92: " in (answer.remark or "")
    assert "(character 8)" in (answer.remark or "")


async def test_who_is_ahead_of_its_heartbeat_never_gets_what_it_cannot_filter_itself(
    client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send_all(client)
    await beat(client, "price > 10")
    answer = await client.ask(Code.PULL_MESSAGE, from_heartbeat(version=2))
    assert answer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    monkeypatch.setattr(pull_filters, "HEARTBEAT_GRACE_S", -1.0)
    answer = await client.ask(Code.PULL_MESSAGE, from_heartbeat(version=2))
    assert bodies(answer) == [b"12"], "by the newest expression that is known"

    await beat(client, "*", kind="TAG", version=3)
    answer = await client.ask(Code.PULL_MESSAGE, from_heartbeat(version=4))
    assert answer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST, "no expression is known"
    answer = await client.ask(Code.PULL_MESSAGE, from_heartbeat(version=4, kind="TAG"))
    assert len(bodies(answer)) == 5


async def test_a_waiting_pull_is_answered_by_the_first_message_that_it_wants(
    client: WireClient,
) -> None:
    await send(client, "1")
    waiting = client.send(Code.PULL_MESSAGE, named("price > 4", offset=1, suspend_ms=15_000))
    for price in ("2", "x", "3"):
        await send(client, price)
    assert not waiting.done()
    await send(client, "9")
    answer = await waiting
    assert bodies(answer) == [b"9"]
    assert next_offset(answer) == 5


async def test_a_waiting_pull_learns_how_far_it_is_when_its_time_is_up(client: WireClient) -> None:
    await send(client, "1")
    waiting = client.send(Code.PULL_MESSAGE, named("price > 4", offset=1, suspend_ms=100))
    await send(client, "2")
    answer = await waiting
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert next_offset(answer) == 2


def check_body(expression: str, kind: str = "SQL92") -> bytes:
    data = {"topic": TOPIC, "subString": expression, "expressionType": kind}
    return json.dumps({"clientId": "c", "group": GROUP, "subscriptionData": data}).encode()


async def test_a_consumer_may_ask_beforehand(client: WireClient) -> None:
    async def check(expression: str, kind: str = "SQL92") -> Command:
        return await client.ask(Code.CHECK_CLIENT_CONFIG, {}, check_body(expression, kind))

    assert (await check("a || b", "TAG")).code == ResponseCode.SUCCESS
    assert (await check("price > 5")).code == ResponseCode.SUCCESS
    refused = await check("price > 'x'")
    assert refused.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert refused.remark == "SQL92: a text cannot be compared by '>' (character 7)"


async def test_the_setting_switches_expressions_off(broker: Broker, client: WireClient) -> None:
    await send_all(client)
    assert bodies(await client.ask(Code.PULL_MESSAGE, named("price > 10"))) == [b"12"]
    await beat(client, "price > 10")
    off = build_config({**TEMPORARY_SETTINGS, "enablePropertyFilter": "false"})
    apply_live(broker.config, off)
    said = "The broker does not support consumer to filter message by SQL92"
    for answer in (
        await client.ask(Code.PULL_MESSAGE, named("price > 10")),
        await client.ask(Code.PULL_MESSAGE, named("price > 11")),
        await client.ask(Code.PULL_MESSAGE, from_heartbeat()),
        await client.ask(Code.CHECK_CLIENT_CONFIG, {}, check_body("price > 10")),
    ):
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (answer.remark or "").startswith(said)
    assert (await client.ask(Code.PULL_MESSAGE, pull_fields(TOPIC, 0))).code == 0


async def test_retries_pass_unless_the_setting_asks_again(
    broker: Broker, client: WireClient
) -> None:
    await send(client, "1")
    await beat(client, "price > 10")
    retry = f"%RETRY%{GROUP}"
    for price, origin in (("3", TOPIC), ("12", TOPIC), ("4", "other")):
        await send(client, price, topic=retry, more=f"RETRY_TOPIC\x01{origin}\x02")
    pull = from_heartbeat(kind="TAG", topic=retry)
    assert bodies(await client.ask(Code.PULL_MESSAGE, pull)) == [b"3", b"12", b"4"]
    again = build_config({**TEMPORARY_SETTINGS, "filterSupportRetry": "true"})
    apply_live(broker.config, again)
    assert bodies(await client.ask(Code.PULL_MESSAGE, pull)) == [b"12", b"4"]


async def test_our_pull_consumer_takes_an_expression(broker: Broker) -> None:
    async with Producer(broker.nameserver) as producer:
        for price in PRICES:
            message = Message(TOPIC, price.encode(), tags="new", properties={"price": price})
            await producer.send(message, queue=0)
    wanted = Sql("price > 4 AND TAGS = 'new'")
    async with PullConsumer(TOPIC, nameserver=broker.nameserver, filter=wanted) as consumer:
        found = [message.body async for message in _first(consumer, 3)]
    assert found == [b"7", b"12", b"5"]


async def _first(consumer: PullConsumer, count: int) -> AsyncIterator[Message]:
    async for message in consumer:
        yield message  # type: ignore[misc]
        count -= 1
        if not count:
            return


async def test_what_the_broker_refuses_reaches_the_application(broker: Broker) -> None:
    off = build_config({**TEMPORARY_SETTINGS, "enablePropertyFilter": "false"})
    apply_live(broker.config, off)
    async with Producer(broker.nameserver) as producer:
        await producer.send(TOPIC, b"x")
    wanted = Sql("price > 4")
    async with PullConsumer(TOPIC, nameserver=broker.nameserver, filter=wanted) as consumer:
        with pytest.raises(RequestRefusedError, match="enablePropertyFilter is false"):
            await consumer.pull(timeout_s=HANG_S)


def test_our_client_refuses_what_does_not_compile_or_would_be_ignored() -> None:
    with pytest.raises(SqlSyntaxError, match="the expression ends"):
        Sql("price >")
    with pytest.raises(SqlSyntaxError, match=r"expected an operator before .ADN region"):
        Sql("price > 5 ADN region = 'eu'")
    with pytest.raises(ValueError, match="cannot be combined"):
        PullConsumer(TOPIC, tags="new", filter=Sql("price > 5"))


async def shell(*arguments: str) -> tuple[int, str, str]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "rockhopper.client", *arguments), stdout=pipe, stderr=pipe
    )
    async with asyncio.timeout(HANG_S):
        out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


@pytest.mark.costly
async def test_the_command_line_takes_an_expression(broker: Broker, client: WireClient) -> None:
    await send_all(client)
    pull = ("pull", TOPIC, "--nameserver", broker.nameserver, "--json")
    code, out, _ = await shell(*pull, "--filter", "price > 6")
    assert code == 0
    assert [json.loads(line)["body"] for line in out.splitlines()] == ["7", "12"]
    code, _, err = await shell(*pull, "--filter", "price > 6 AND")
    assert code == 2
    assert ", but the expression ends (character 14)" in err
    code, _, err = await shell(*pull, "--filter", "price > 6", "--tag", "new")
    assert code == 2
    assert "exclude each other" in err
