"""BULK_PULL: more than a pull gives, within its range, and of this topic only."""

import pytest

from rockhopper.broker.features.bulk_pull import processors as bulk_module
from rockhopper.protocol.bodies.queue_ranges import (
    QueueRange,
    decode_queue_reads,
    encode_queue_ranges,
)
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.served_broker import ServedBroker


@pytest.fixture
def filled(broker: ServedBroker) -> ServedBroker:
    broker.create_topic("orders")
    for number in range(100):
        tag = "ab"[number % 2]
        broker.put("orders", b"%d" % number, properties=f"TAGS\x01{tag}\x02")
    return broker


async def bulk(broker: ServedBroker, **fields: str) -> Command:
    ext = {"topic": "orders", "queueId": "0", "offset": "0"} | fields
    return await broker.ask(RequestCode.BULK_PULL, ext)


def numbers(answer: Command) -> list[int]:
    return [int(message.body) for message in decode_messages(answer.body)]


@pytest.mark.parametrize(
    ("fields", "first", "count"),
    [
        ({}, 0, 100),
        ({"offset": "40"}, 40, 60),
        ({"endOffset": "10"}, 0, 10),
        ({"offset": "5", "endOffset": "6"}, 5, 1),
        ({"maxBytes": "1"}, 0, 1),
    ],
)
async def test_a_range_comes_in_one_answer(
    filled: ServedBroker, fields: dict[str, str], first: int, count: int
) -> None:
    answer = await bulk(filled, **fields)
    assert answer.code == ResponseCode.SUCCESS
    assert numbers(answer) == list(range(first, first + count))
    assert (answer.ext or {})["nextBeginOffset"] == str(first + count)
    assert (answer.ext or {})["maxOffset"] == "100"


async def test_a_filter_is_obeyed_and_what_it_leaves_out_is_stepped_over(
    filled: ServedBroker,
) -> None:
    found: list[int] = []
    offset = 0
    while offset < 100:
        answer = await bulk(filled, offset=str(offset), expression="b")
        found += numbers(answer)
        offset = int((answer.ext or {})["nextBeginOffset"])
    assert found == list(range(1, 100, 2))


async def test_nothing_is_waited_for(filled: ServedBroker) -> None:
    answer = await bulk(filled, offset="100")
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert filled.stats.get_missed == 1


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"maxBytes": "0"}, ResponseCode.INVALID_PARAMETER),
        ({"maxBytes": "-1"}, ResponseCode.INVALID_PARAMETER),
        ({"offset": "7", "endOffset": "7"}, ResponseCode.INVALID_PARAMETER),
        ({"offset": "7", "endOffset": "0"}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "gone"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"topicId": "00"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": "99"}, ResponseCode.INVALID_PARAMETER),
    ],
)
async def test_what_makes_no_sense_is_refused(
    filled: ServedBroker, fields: dict[str, str], code: int
) -> None:
    answer = await bulk(filled, **fields)
    assert answer.code == code


async def test_the_topic_of_an_id_is_read(filled: ServedBroker) -> None:
    topic_id = filled.tables.catalog.topic_ids.get("orders", 0)
    assert len(numbers(await bulk(filled, topicId=topic_id))) == 100


async def queues(broker: ServedBroker, *ranges: QueueRange, **fields: str) -> Command:
    body = encode_queue_ranges(list(ranges))
    return await broker.ask(RequestCode.BULK_PULL_QUEUES, {"topic": "orders"} | fields, body)


async def test_many_queues_come_in_one_answer(filled: ServedBroker) -> None:
    filled.put("orders", b"100", queue_id=2)
    wanted = [
        QueueRange(0, 10, 13),
        QueueRange(1, 0, 5),
        QueueRange(2, 0, 1),
        QueueRange(0, 500, 501),
    ]
    answer = await queues(filled, *wanted)
    assert answer.code == ResponseCode.SUCCESS
    reads = decode_queue_reads(answer.body)
    assert [(read.code, read.next_offset, read.max_offset) for read in reads] == [
        (ResponseCode.SUCCESS, 13, 100),
        (ResponseCode.PULL_NOT_FOUND, 0, 0),
        (ResponseCode.SUCCESS, 1, 1),
        (ResponseCode.PULL_OFFSET_MOVED, 100, 100),
    ]
    bodies = [[m.body for m in decode_messages(read.records)] for read in reads]
    assert bodies == [[b"10", b"11", b"12"], [], [b"100"], []]


async def test_as_many_queues_come_as_fit(filled: ServedBroker) -> None:
    wanted = [QueueRange(0, number, number + 1) for number in range(100)]
    answer = await queues(filled, *wanted, maxBytes="1000")
    reads = decode_queue_reads(answer.body)
    assert 1 < len(reads) < 20
    assert sum(len(read.records) for read in reads[:-1]) < 1000
    (one,) = decode_queue_reads((await queues(filled, *wanted, maxBytes="1")).body)
    assert one.next_offset == 1
    whole = decode_queue_reads((await queues(filled, *wanted)).body)
    assert [read.next_offset for read in whole] == list(range(1, 101))


async def test_queues_that_a_topic_has_left_with_messages_are_told_and_read(
    filled: ServedBroker,
) -> None:
    filled.put("orders", b"left", queue_id=3)
    filled.create_topic("orders", queues=2)
    answer = await queues(filled, QueueRange(0, 0, 1))
    assert answer.ext == {"leftQueues": "3"}
    (read,) = decode_queue_reads((await queues(filled, QueueRange(3, 0, 1))).body)
    assert [message.body for message in decode_messages(read.records)] == [b"left"]
    assert (await bulk(filled, queueId="3")).code == ResponseCode.SUCCESS
    assert (await bulk(filled, queueId="2")).code == ResponseCode.INVALID_PARAMETER
    filled.create_topic("orders", queues=4)
    assert (await queues(filled, QueueRange(0, 0, 1))).ext is None


@pytest.mark.parametrize(
    ("wanted", "fields", "code"),
    [
        (QueueRange(0, 0, 1), {"maxBytes": "0"}, ResponseCode.INVALID_PARAMETER),
        (QueueRange(0, 5, 5), {}, ResponseCode.INVALID_PARAMETER),
        (QueueRange(99, 0, 1), {}, ResponseCode.INVALID_PARAMETER),
        (QueueRange(0, 0, 1), {"topic": "none"}, ResponseCode.TOPIC_NOT_EXIST),
        (QueueRange(0, 0, 1), {"topicId": "another"}, ResponseCode.TOPIC_NOT_EXIST),
    ],
)
async def test_what_is_wrong_with_any_queue_is_refused(
    filled: ServedBroker, wanted: QueueRange, fields: dict[str, str], code: int
) -> None:
    assert (await queues(filled, QueueRange(0, 0, 1), wanted, **fields)).code == code


async def test_a_topic_that_is_made_anew_meanwhile_ends_a_long_answer(
    filled: ServedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first messages would be of the one topic, and the others of the other."""

    async def replace() -> None:
        deleted = await filled.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
        assert deleted.code == ResponseCode.SUCCESS
        filled.create_topic("orders")
        filled.tables.catalog.topic_ids.get("orders", 0)

    topic_id = filled.tables.catalog.topic_ids.get("orders", 0)
    wanted = [QueueRange(0, number, number + 1) for number in range(bulk_module.SLICE_COUNT)]
    monkeypatch.setattr(bulk_module, "next_slice", replace)
    answer = await queues(filled, *wanted, topicId=topic_id)
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert "created again" in (answer.remark or "")
