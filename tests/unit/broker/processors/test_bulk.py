"""BULK_PULL: more than a pull gives, within its range, and of this topic only."""

import pytest

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
    topic_id = filled.topic_ids.get("orders", 0)
    assert len(numbers(await bulk(filled, topicId=topic_id))) == 100
