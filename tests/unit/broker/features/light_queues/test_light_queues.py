"""Light queues by request codes: sent to, pulled, committed, and what is refused."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.properties import encode_properties
from rockhopper.protocol.store.message_codec import decode_messages, encode_batch
from tests.support.direct import pull_fields, short_send_fields, topic_fields
from tests.support.peers import Clock, Peer
from tests.support.served_broker import ServedBroker

ENABLED = {"enableLmq": "true", "enableMultiDispatch": "true"}


@pytest.fixture
async def light(tmp_path: Path) -> AsyncIterator[ServedBroker]:
    served = ServedBroker(tmp_path / "store", Clock(), ENABLED)
    served.create_topic("orders")
    yield served
    await served.close()


async def send(
    broker: ServedBroker, topic: str = "orders", queue_id: int = 0, **properties: str
) -> Command:
    text = encode_properties({"UNIQ_KEY": "A1", **properties})
    fields = short_send_fields(topic, queue_id, text)
    return await broker.ask(Code.SEND_MESSAGE_V2, fields, b"hello")


async def pull(broker: ServedBroker, topic: str, group: str, queue_id: int = 0) -> Command:
    fields = pull_fields(topic, 0, queue_id) | {"consumerGroup": group}
    return await broker.ask(Code.PULL_MESSAGE, fields)


async def test_a_light_queue_needs_no_topic_and_no_group(light: ServedBroker) -> None:
    sent = await send(light, INNER_MULTI_DISPATCH="%LMQ%a,%LMQ%$orders$b")
    assert sent.code == ResponseCode.SUCCESS
    for name in ("%LMQ%a", "%LMQ%$orders$b", "orders"):
        answer = await pull(light, name, "%LMQ%readers")
        (message,) = decode_messages(answer.body)
        assert (message.topic, message.queue_offset) == ("orders", 0)
        assert answer.ext is not None
        assert answer.ext["nextBeginOffset"] == "1"
    assert (await pull(light, "%LMQ%a", "%LMQ%readers", queue_id=1)).code == 29
    assert (await pull(light, "%LMQ%unknown", "readers")).code == ResponseCode.PULL_NOT_FOUND
    assert not any(name.startswith("%LMQ%") for name in light.tables.topics.configs)
    assert not any(name.startswith("%LMQ%") for name in light.tables.groups.groups)


async def test_the_part_of_a_lite_topic_is_a_light_queue(light: ServedBroker) -> None:
    await send(light, __LITE_TOPIC="part")
    assert (await pull(light, "%LMQ%$orders$part", "readers")).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("names", ["plain", "%LMQ%a,plain", "%LMQ%a/b", ",%LMQ%a"])
async def test_names_at_which_rocketmq_stands_still_are_refused(
    light: ServedBroker, names: str
) -> None:
    answer = await send(light, INNER_MULTI_DISPATCH=names)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "INNER_MULTI_DISPATCH" in (answer.remark or "")


async def test_numbers_are_taken_from_no_client(light: ServedBroker) -> None:
    await send(light, INNER_MULTI_DISPATCH="%LMQ%a", INNER_MULTI_QUEUE_OFFSET="77")
    batch = encode_batch(
        [(0, b"x", b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02INNER_MULTI_QUEUE_OFFSET\x0178\x02")]
    )
    fields = short_send_fields("orders") | {"m": "true"}
    answer = await light.ask(Code.SEND_BATCH_MESSAGE, fields, batch)
    assert answer.code == ResponseCode.SUCCESS
    stored = decode_messages((await pull(light, "orders", "readers")).body)
    numbers = [message.properties.get("INNER_MULTI_QUEUE_OFFSET") for message in stored]
    assert numbers == ["0", None]


async def test_there_may_be_a_quota(tmp_path: Path) -> None:
    quota = {"enableLmqQuota": "true", "maxLmqConsumeQueueNum": "2"}
    broker = ServedBroker(tmp_path / "store", Clock(), ENABLED | quota)
    broker.create_topic("orders")
    assert (await send(broker, INNER_MULTI_DISPATCH="%LMQ%a,%LMQ%b")).code == 0
    refused = await send(broker, INNER_MULTI_DISPATCH="%LMQ%c")
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "maxLmqConsumeQueueNum" in (refused.remark or "")
    assert (await send(broker, INNER_MULTI_DISPATCH="%LMQ%b")).code == 0
    await broker.close()


async def test_names_that_are_only_waited_for_take_no_memory_afterwards(
    light: ServedBroker,
) -> None:
    def wait(name: str) -> Peer:
        peer = Peer()
        command = Command(
            code=Code.PULL_MESSAGE,
            opaque=7,
            ext=pull_fields(name, 0, suspend_ms=15000),
            version=479,
        )
        assert light.begin(peer, command) == b""
        return peer

    tails = light.store.staging.tails
    before = set(tails)
    for number in range(100):
        peer = wait(f"%LMQ%{number}")
        assert len(tails) == len(before) + 1
        peer.hang_up()
    assert set(tails) == before
    peer = wait("%LMQ%a")
    light.kernel.puller.look_at_resets("%LMQ%b", 0)
    light.kernel.long_polling.wake_all(light.store.staging.tail("%LMQ%a", 0))
    assert len(peer.written) == 1
    assert set(tails) == before
    # Who waits keeps the queue: the message that comes in the end is not missed.
    (peer, other) = (wait("%LMQ%a"), wait("%LMQ%a"))
    other.hang_up()
    await send(light, INNER_MULTI_DISPATCH="%LMQ%a")
    assert len(peer.written) == 1
    assert light.store.reading.queue_range("%LMQ%a", 0) == (0, 1)


async def test_offsets_are_kept_of_light_queues_that_exist(light: ServedBroker) -> None:
    await send(light, INNER_MULTI_DISPATCH="%LMQ%a")
    for name in ("%LMQ%a", "%LMQ%b"):
        fields = {"topic": name, "consumerGroup": "%LMQ%r", "queueId": "0", "commitOffset": "1"}
        assert (await light.ask(Code.UPDATE_CONSUMER_OFFSET, fields)).code == ResponseCode.SUCCESS
        await light.ask(Code.PULL_MESSAGE, pull_fields(name, 0) | fields | {"sysFlag": "5"})
    assert [topic for topic, _, _ in light.tables.offsets.entries()] == ["%LMQ%a"]


async def test_without_the_settings_there_are_none(broker: ServedBroker) -> None:
    broker.create_topic("orders")
    assert (await send(broker, INNER_MULTI_DISPATCH="plain")).code == ResponseCode.SUCCESS
    answer = await pull(broker, "%LMQ%a", "readers")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_light_queue_can_be_deleted_and_not_made(light: ServedBroker) -> None:
    await send(light, INNER_MULTI_DISPATCH="%LMQ%a+b")
    made = topic_fields("%LMQ%z")
    assert (await light.ask(Code.UPDATE_AND_CREATE_TOPIC, made)).code == ResponseCode.SUCCESS
    assert "%LMQ%z" not in light.tables.topics.configs
    gone = await light.ask(Code.DELETE_TOPIC_IN_BROKER, {"topic": "%LMQ%a+b"})
    assert gone.code == ResponseCode.SUCCESS
    assert (await pull(light, "%LMQ%a+b", "readers")).code == ResponseCode.PULL_NOT_FOUND
