"""Codes 222, 308 and 314: groups are moved, compared and copied, and nothing by a mistake."""

import json
from itertools import pairwise

import pytest

from rockhopper.broker.kernel.members.consumer_groups import Client, ConsumeSettings
from rockhopper.broker.kernel.processors import resets
from rockhopper.protocol.codes import LanguageCode, ResponseCode
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.subscription import Subscription
from tests.support.peers import Clock, Peer
from tests.support.served_broker import ServedBroker


@pytest.fixture(autouse=True)
def orders(broker: ServedBroker) -> None:
    broker.create_topic("orders")
    broker.tables.groups.find_or_create("billing")


def commit(broker: ServedBroker, offset: int, group: str = "billing", queue_id: int = 0) -> None:
    broker.tables.offsets.commit("orders", group, queue_id, offset)


def reset(**changes: str) -> dict[str, str]:
    return {"topic": "orders", "group": "billing", "timestamp": "0", "isForce": "true"} | changes


async def test_reset_to_a_time_moves_every_queue_and_is_handed_out_by_the_next_pull(
    broker: ServedBroker, clock: Clock
) -> None:
    broker.put("orders")
    clock.advance(1000)
    broker.put("orders")
    commit(broker, 2)
    answer = await broker.ask(
        Code.INVOKE_BROKER_TO_RESET_OFFSET, reset(timestamp=str(clock.now_ms))
    )
    queue = '{"brokerName":"broker-a","queueId":%d,"topic":"orders"}'
    assert answer.body.decode() == (
        f'{{"offsetTable":{{{queue % 0}:1,{queue % 1}:0,{queue % 2}:0,{queue % 3}:0}}}}'
    )
    assert broker.tables.offsets.take_reset("orders", "billing", 0) == 1


@pytest.mark.parametrize(
    ("changes", "offset"),
    [
        ({"queueId": "0", "offset": "2"}, 2),
        ({"queueId": "0", "offset": "3"}, 3),
        ({"queueId": "0", "offset": "-1"}, 0),
        ({"queueId": "0", "timestamp": "-1"}, 3),
        ({"timestamp": "-1"}, 3),
    ],
)
async def test_reset_to_a_number_or_to_the_end(
    broker: ServedBroker, changes: dict[str, str], offset: int
) -> None:
    for _ in range(3):
        broker.put("orders")
    answer = await broker.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, reset(**changes))
    assert answer.code == ResponseCode.SUCCESS
    assert broker.tables.offsets.pending_reset("orders", "billing", 0) == offset


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": "nothing"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"group": "nobody"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"queueId": "9"}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": "0", "offset": "4"}, ResponseCode.SYSTEM_ERROR),
        ({"timestamp": "now"}, ResponseCode.INVALID_PARAMETER),
    ],
)
async def test_reset_to_what_does_not_exist_changes_nothing(
    broker: ServedBroker, changes: dict[str, str], code: ResponseCode
) -> None:
    broker.put("orders")
    answer = await broker.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, reset(**changes))
    assert answer.code == code
    assert broker.tables.offsets.pending_reset("orders", "billing", 0) is None


@pytest.mark.parametrize("offset", ["-2", "-3", "1"])
async def test_reset_to_a_number_that_is_not_in_the_queue_is_refused(
    broker: ServedBroker, offset: str
) -> None:
    ext = reset(queueId="0", offset=offset)
    answer = await broker.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, ext)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert broker.tables.offsets.pending_reset("orders", "billing", 0) is None


def join(broker: ServedBroker, language: int = LanguageCode.GO, version: int = 317) -> Peer:
    peer = Peer()
    client = Client(peer.connection, "c1", language, version)
    subscriptions = {"orders": Subscription("orders", "*")}
    broker.kernel.consumers.register("billing", client, ConsumeSettings(), subscriptions)
    peer.requests.clear()
    return peer


async def test_where_clients_reset_themselves_they_are_told(broker: ServedBroker) -> None:
    broker.config.live.server_side_reset = False
    broker.put("orders")
    commit(broker, 1)
    peer = join(broker)
    answer = await broker.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, reset())
    assert answer.code == ResponseCode.SUCCESS
    assert peer.requests == [
        (220, {"topic": "orders", "group": "billing", "timestamp": "0", "isForce": "true"})
    ]
    assert broker.tables.offsets.pending_reset("orders", "billing", 0) is None


@pytest.mark.parametrize(("force", "offset"), [("true", 2), ("false", 1)])
async def test_clients_are_moved_forward_only_by_force(
    broker: ServedBroker, force: str, offset: int
) -> None:
    broker.config.live.server_side_reset = False
    for _ in range(2):
        broker.put("orders")
    commit(broker, 1)
    join(broker)
    ext = reset(timestamp="-1", isForce=force, queueId="0")
    answer = await broker.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, ext)
    queue = '{"brokerName":"broker-a","queueId":0,"topic":"orders"}'
    assert answer.body.decode() == f'{{"offsetTable":{{{queue}:{offset}}}}}'


async def test_nobody_to_tell_and_clients_too_old_are_refused(broker: ServedBroker) -> None:
    broker.config.live.server_side_reset = False
    answer = await broker.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, reset())
    assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE
    join(broker, version=27)
    answer = await broker.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, reset())
    assert "does not support this feature. version=27" in str(answer.remark)


async def test_the_smallest_offset_of_any_group_is_told_but_for_some(broker: ServedBroker) -> None:
    for _ in range(9):
        broker.put("orders")
    for group, offset in (("a", 5), ("b", 3), ("c", 7)):
        commit(broker, offset, group)
    ask = {"topic": "orders", "filterGroups": "b,x"}
    answer = await broker.ask(Code.QUERY_CORRECTION_OFFSET, ask)
    assert answer.body == b'{"correctionOffsets":{0:5}}'
    answer = await broker.ask(Code.QUERY_CORRECTION_OFFSET, {"topic": "orders"})
    assert answer.body == b'{"correctionOffsets":{0:3}}'
    answer = await broker.ask(Code.QUERY_CORRECTION_OFFSET, {"topic": "other"})
    assert json.loads(answer.body) == {"correctionOffsets": {}}


@pytest.mark.parametrize("topic", ["orders", ""])
async def test_a_group_gets_the_offsets_of_another(broker: ServedBroker, topic: str) -> None:
    commit(broker, 5)
    commit(broker, 6, queue_id=2)
    ext = {"srcGroup": "billing", "destGroup": "copy", "topic": topic, "offline": "true"}
    assert (await broker.ask(Code.CLONE_GROUP_OFFSET, ext)).code == ResponseCode.SUCCESS
    assert broker.tables.offsets.get("orders", "copy", 0) == 5
    assert broker.tables.offsets.get("orders", "copy", 2) == 6


async def test_many_offsets_are_copied_in_slices(
    broker: ServedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(100):
        broker.create_topic(f"topic-{number}")
        broker.tables.offsets.commit(f"topic-{number}", "billing", 0, number)
    copied: list[int] = []

    async def next_slice() -> None:
        copied.append(len(broker.tables.offsets.topics_of("copy")))

    monkeypatch.setattr(resets, "next_slice", next_slice)
    ext = {"srcGroup": "billing", "destGroup": "copy", "offline": "true"}
    await broker.ask(Code.CLONE_GROUP_OFFSET, ext)

    assert max(after - before for before, after in pairwise([0, *copied, 100])) <= 20
    assert len(broker.tables.offsets.topics_of("copy")) == 100


async def test_topics_that_an_online_group_no_longer_wants_are_left_out(
    broker: ServedBroker,
) -> None:
    join(broker)
    broker.create_topic("old")
    broker.tables.offsets.commit("old", "billing", 0, 4)
    commit(broker, 5)
    ext = {"srcGroup": "billing", "destGroup": "copy", "offline": "false"}
    await broker.ask(Code.CLONE_GROUP_OFFSET, ext)
    assert broker.tables.offsets.get("old", "copy", 0) is None
    assert broker.tables.offsets.get("orders", "copy", 0) == 5


async def test_a_group_that_cannot_be_is_given_nothing(broker: ServedBroker) -> None:
    ext = {"srcGroup": "billing", "destGroup": "no group!", "offline": "true"}
    answer = await broker.ask(Code.CLONE_GROUP_OFFSET, ext)
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
