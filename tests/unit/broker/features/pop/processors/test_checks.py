"""What the pop family checks before it does anything, with RocketMQ's codes."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.kernel.members.consumer_groups import Client, ConsumeSettings
from rockhopper.broker.users.access import Action, Resource, ResourceKind
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from tests.support.features import pop_of
from tests.support.peers import Clock, Peer
from tests.support.popping import pop_fields
from tests.support.rules import Rules
from tests.support.served_broker import ServedBroker
from tests.support.turns import until


async def pop(broker: ServedBroker, **changes: str) -> Command:
    fields = pop_fields(topic="orders", consumerGroup="billing", pollTime=0) | changes
    return await broker.ask(RequestCode.POP_MESSAGE, fields)


@pytest.fixture(autouse=True)
def orders(broker: ServedBroker) -> None:
    broker.create_topic("orders")
    broker.tables.groups.find_or_create("billing")
    broker.put("orders")


@pytest.mark.parametrize(
    ("changes", "code", "says"),
    [
        ({"topic": "gone"}, ResponseCode.TOPIC_NOT_EXIST, "topic[gone] not exist"),
        ({"queueId": "4"}, ResponseCode.INVALID_PARAMETER, "queueId[4] is illegal"),
        (
            {"consumerGroup": "no group!"},
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            "subscription group [no group!] does not exist",
        ),
    ],
)
async def test_what_is_not_there_is_named(
    broker: ServedBroker, changes: dict[str, str], code: int, says: str
) -> None:
    answer = await pop(broker, **changes)
    assert answer.code == code
    assert says in str(answer.remark)


async def test_a_broker_a_topic_and_a_group_may_be_closed(broker: ServedBroker) -> None:
    group = broker.tables.groups.get("billing")
    assert group is not None
    group.consume_enable = False
    answer = await pop(broker)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "subscription group no permission, billing" in str(answer.remark)
    broker.create_topic("orders", perm=2)
    answer = await pop(broker)
    assert (answer.code, "peeking" in str(answer.remark)) == (ResponseCode.NO_PERMISSION, True)
    broker.config.live.broker_permission = 2
    answer = await pop(broker)
    assert (answer.code, "the broker[" in str(answer.remark)) == (ResponseCode.NO_PERMISSION, True)


@pytest.mark.parametrize("code", [RequestCode.POP_MESSAGE, RequestCode.NOTIFICATION])
async def test_one_that_waited_is_checked_again(broker: ServedBroker, code: RequestCode) -> None:
    fields = pop_fields(topic="orders", consumerGroup="billing", queueId="1", pollTime=60_000)
    task = asyncio.create_task(broker.ask(code, fields))
    await until(lambda: len(pop_of(broker).polling) == 1)
    group = broker.tables.groups.get("billing")
    assert group is not None
    group.consume_enable = False
    broker.put("orders", queue_id=1)
    answer = await task
    assert (answer.code, answer.body) == (ResponseCode.NO_PERMISSION, b"")


@pytest.mark.parametrize("code", [RequestCode.POP_MESSAGE, RequestCode.NOTIFICATION])
async def test_a_user_who_lost_the_permission_meanwhile_gets_nothing(
    tmp_path: Path, code: RequestCode
) -> None:
    of_group = Action.SUB, Resource(ResourceKind.GROUP, "billing")
    rules = Rules((Action.SUB, Resource(ResourceKind.TOPIC, "orders")), of_group)
    broker = ServedBroker(tmp_path / "guarded", Clock(), {}, rules)
    broker.create_topic("orders")
    fields = pop_fields(topic="orders", consumerGroup="billing", queueId="1", pollTime=60_000)
    task = asyncio.create_task(broker.ask(code, fields))
    await until(lambda: len(pop_of(broker).polling) == 1)
    rules.allowed.remove(of_group)
    broker.put("orders", queue_id=1)
    answer = await task
    await broker.close()
    assert (answer.code, answer.body) == (ResponseCode.NO_PERMISSION, b"")


async def test_a_group_is_made_on_first_use_unless_that_is_off(broker: ServedBroker) -> None:
    assert (await pop(broker, consumerGroup="new")).code == ResponseCode.SUCCESS
    broker.config.live.auto_create_subscription_group = False
    answer = await pop(broker, consumerGroup="newer")
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert "not created on first use" in str(answer.remark)


async def test_a_client_whose_clock_is_behind_is_logged_once(broker: ServedBroker) -> None:
    fields = pop_fields(topic="orders", consumerGroup="billing")
    fields["bornTime"] = str(broker.clock.wall_ms() - 60_000)
    first, again, other = Peer(), Peer(port=40_001), Peer(port=40_002)
    unknown = [Peer("10.0.0.9"), Peer("10.0.0.9", 40_001)]
    for peer, name in ((first, "c1"), (again, "c1"), (other, "c2")):
        member = Client(peer.connection, name, language=0, version=479)
        broker.kernel.consumers.register("billing", member, ConsumeSettings(), {})
    with capture_logs() as logs:
        for peer in (first, first, again, other, *unknown):
            answer = await broker.ask(RequestCode.POP_MESSAGE, fields, peer=peer)
            assert answer.code == ResponseCode.POLLING_TIMEOUT
    late = [line for line in logs if "clock" in line["event"]]
    assert [line["client"] for line in late] == ["c1", "c2", "10.0.0.9"]
    assert (late[0]["group"], late[0]["behind_ms"]) == ("billing", 60_000)
