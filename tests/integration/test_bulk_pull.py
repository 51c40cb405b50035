"""BULK_PULL (70001) over a socket."""

from collections.abc import AsyncIterator

import pytest

from rockhopper.broker import Broker
from rockhopper.client import Message, Producer
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.raw_peer import RawPeer, request

MESSAGES = 1000


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker.temporary() as broker:
        async with Producer(nameserver=broker.nameserver) as producer:
            await producer.send_batch(
                [
                    Message("bulk", b"%d" % n, tags="even" if n % 2 == 0 else "odd")
                    for n in range(MESSAGES)
                ]
            )
        yield broker


def filled_queue(broker: Broker) -> int:
    return next(q for q in range(8) if broker.store.reading.queue_range("bulk", q)[1] == MESSAGES)


async def bulk(peer: RawPeer, **fields: object) -> tuple[int, dict[str, str], list[StoredMessage]]:
    peer.send(request(RequestCode.BULK_PULL, fields))
    answer = await peer.answer()
    messages = decode_messages(answer.body) if answer.body else []
    return answer.code, answer.ext or {}, messages


async def test_one_answer_holds_far_more_than_a_consumers_pull(broker: Broker) -> None:
    async with RawPeer(broker.address) as peer:
        code, ext, messages = await bulk(peer, topic="bulk", queueId=filled_queue(broker), offset=0)
    assert code == ResponseCode.SUCCESS
    assert [m.body for m in messages] == [b"%d" % n for n in range(MESSAGES)]
    assert (ext["nextBeginOffset"], ext["minOffset"], ext["maxOffset"]) == ("1000", "0", "1000")


async def test_it_stops_in_front_of_the_end_offset_and_at_the_size_asked_for(
    broker: Broker,
) -> None:
    queue_id = filled_queue(broker)
    async with RawPeer(broker.address) as peer:
        _, ext, messages = await bulk(peer, topic="bulk", queueId=queue_id, offset=10, endOffset=13)
        assert [m.queue_offset for m in messages] == [10, 11, 12]
        assert ext["nextBeginOffset"] == "13"
        _, ext, messages = await bulk(peer, topic="bulk", queueId=queue_id, offset=0, maxBytes=1)
        assert [m.queue_offset for m in messages] == [0]
        assert ext["nextBeginOffset"] == "1"


async def test_a_filter_lets_through_what_it_matches(broker: Broker) -> None:
    async with RawPeer(broker.address) as peer:
        _, ext, messages = await bulk(
            peer, topic="bulk", queueId=filled_queue(broker), offset=0, expression="odd"
        )
    assert messages
    assert all(m.tags == "odd" for m in messages)
    assert int(ext["nextBeginOffset"]) > messages[-1].queue_offset


async def test_offsets_outside_the_queue_are_answered_like_a_pull(broker: Broker) -> None:
    queue_id = filled_queue(broker)
    async with RawPeer(broker.address) as peer:
        code, ext, _ = await bulk(peer, topic="bulk", queueId=queue_id, offset=MESSAGES)
        assert (code, ext["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "1000")
        code, ext, _ = await bulk(peer, topic="bulk", queueId=queue_id, offset=MESSAGES + 5)
        assert (code, ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "1000")


@pytest.mark.parametrize(
    ("fields", "code", "says"),
    [
        ({"topic": "nothing"}, ResponseCode.TOPIC_NOT_EXIST, "nothing"),
        ({"queueId": 99}, ResponseCode.INVALID_PARAMETER, "99"),
        ({"maxBytes": 0}, ResponseCode.INVALID_PARAMETER, "maxBytes is 0"),
        ({"offset": 5, "endOffset": 5}, ResponseCode.INVALID_PARAMETER, "there is nothing between"),
        ({"expression": "||"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse"),
    ],
)
async def test_a_request_that_cannot_be_served_says_why(
    broker: Broker, fields: dict[str, object], code: int, says: str
) -> None:
    async with RawPeer(broker.address) as peer:
        peer.send(
            request(RequestCode.BULK_PULL, {"topic": "bulk", "queueId": 0, "offset": 0} | fields)
        )
        answer = await peer.answer()
    assert answer.code == code
    assert says in (answer.remark or "")
