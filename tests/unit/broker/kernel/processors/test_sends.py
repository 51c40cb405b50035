"""SEND_MESSAGE (10, 310): who may send, and what a first send makes."""

import pytest

from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.store.message_codec import decode_messages, encode_batch
from tests.support.direct import pull_fields, send_fields
from tests.support.features import needs
from tests.support.served_broker import ServedBroker


@pytest.fixture(autouse=True)
def orders(broker: ServedBroker) -> None:
    broker.create_topic("orders")


async def send(broker: ServedBroker, topic: str = "orders", **changes: str) -> Command:
    return await broker.ask(Code.SEND_MESSAGE, send_fields(topic) | changes, b"hello")


@pytest.mark.parametrize("group", ["a.b", "a b", "gr\u00fc\u00dfe", "g" * 300, "", "../x"])
async def test_any_producer_group_may_send(broker: ServedBroker, group: str) -> None:
    answer = await send(broker, producerGroup=group)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def test_namespaces_of_version_2_share_topics_as_the_page_on_migrating_says(
    broker: ServedBroker,
) -> None:
    for namespace in ("here", "there"):
        await send(broker, ns=namespace, nsd="true")
    fields = pull_fields("orders", 0) | {"ns": "there", "nsd": "true"}
    answer = await broker.ask(Code.PULL_MESSAGE, fields)
    assert len(decode_messages(answer.body)) == 2


@needs("transactions")
async def test_a_producer_group_cannot_smuggle_properties_into_a_transaction(
    broker: ServedBroker,
) -> None:
    group = "g\x02CLUSTER\x01theirs"
    half = {"sysFlag": "4", "properties": "TRAN_MSG\x01true\x02"}
    answer = await send(broker, producerGroup=group, **half)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert (await send(broker, producerGroup="a.b", **half)).code == ResponseCode.SUCCESS
    answer = await broker.ask(Code.PULL_MESSAGE, pull_fields("RMQ_SYS_TRANS_HALF_TOPIC", 0))
    (message,) = decode_messages(answer.body)
    assert message.properties["PGROUP"] == "a.b"


@pytest.mark.parametrize(
    ("topic", "unit_mode", "sys_flag"),
    [("new", "true", 1), ("new", "false", 0), ("%RETRY%billing", "true", 2)],
)
async def test_a_topic_that_a_send_makes_knows_of_units(
    broker: ServedBroker, topic: str, unit_mode: str, sys_flag: int
) -> None:
    answer = await send(broker, topic, unitMode=unit_mode)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    made = broker.tables.topics.get(topic)
    assert made is not None
    assert made.sys_flag == sys_flag


@pytest.mark.parametrize("code", [Code.SEND_MESSAGE, Code.SEND_BATCH_MESSAGE])
async def test_a_topic_counts_the_bytes_of_its_records(broker: ServedBroker, code: Code) -> None:
    """As RocketMQ does, not those of bodies."""
    body = encode_batch([(0, b"hello", b"")] * 3)
    ext = send_fields("orders")
    if code == Code.SEND_BATCH_MESSAGE:
        ext = dict(zip("abcdefghi", ext.values(), strict=True))
    answer = await broker.ask(code, ext, body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert broker.stats.get_send_traffic("orders").bytes == broker.store.log.written_offset > 0


@needs("transactions")
async def test_the_end_of_a_transaction_that_is_none_is_refused(broker: ServedBroker) -> None:
    ext = {
        "producerGroup": "g",
        "tranStateTableOffset": "0",
        "commitLogOffset": "0",
        "commitOrRollback": "5",
    }
    answer = await broker.ask(Code.END_TRANSACTION, ext)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert (answer.remark or "").startswith("commitOrRollback field wrong")
