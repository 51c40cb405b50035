"""Pops, peeks and notifications of a topic with so many queues that one slice is not enough."""

from collections.abc import AsyncIterator

import pytest

from rockhopper.broker.app import Broker
from rockhopper.broker.kernel.pull.long_polling import PARKED_PER_CONNECTION_MAX
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.direct import send_fields
from tests.support.features import needs, pop_of
from tests.support.popping import TOPIC, pop_fields
from tests.support.raw_peer import RawPeer, request, until

pytestmark = needs("pop")

# Two slices of a pop (features/pop/sources.py) more than a connection may wait for.
QUEUES = PARKED_PER_CONNECTION_MAX + 2 * 256
WAITS = pop_fields(pollTime=600_000)
DOES_NOT_WAIT = pop_fields()


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker.temporary() as broker:
        broker.tables.topics.put(
            TopicConfig(TOPIC, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
        )
        yield broker


@pytest.fixture
async def peer(broker: Broker) -> AsyncIterator[RawPeer]:
    async with RawPeer(broker.address) as peer:
        yield peer


async def send(broker: Broker, *queue_ids: int) -> None:
    async with RawPeer(broker.address) as sender:
        for queue_id in queue_ids:
            fields = send_fields(TOPIC, queue_id)
            answer = await sender.ask(Code.SEND_MESSAGE, fields, b"%d" % queue_id)
            assert answer.code == ResponseCode.SUCCESS


def bodies(data: bytes) -> set[bytes]:
    return {message.body for message in decode_messages(data)}


async def test_waiting_costs_nothing_per_queue_and_any_queue_wakes(
    broker: Broker, peer: RawPeer
) -> None:
    peer.send(request(Code.POP_MESSAGE, WAITS))
    # Of another group: its message is not taken by the pop.
    peer.send(request(Code.NOTIFICATION, WAITS | {"consumerGroup": "others"}))
    await until(lambda: len(pop_of(broker).polling) == 2)
    assert len(broker.kernel.long_polling) == 0
    await send(broker, QUEUES - 1)
    found, noticed = await peer.answers(2)
    if found.ext is not None and "hasMsg" in found.ext:
        found, noticed = noticed, found
    assert bodies(found.body) == {b"%d" % (QUEUES - 1)}
    assert noticed.ext is not None
    assert noticed.ext["hasMsg"] == "true"
    assert len(pop_of(broker).polling) == 0


async def test_a_pop_that_waits_finds_what_is_far_from_where_it_begins(
    broker: Broker, peer: RawPeer
) -> None:
    ids = [*range(100, QUEUES, QUEUES // 5)]
    await send(broker, *ids)
    found: set[bytes] = set()
    while len(found) < len(ids):
        answer = await peer.ask(Code.POP_MESSAGE, WAITS)
        assert answer.code == ResponseCode.SUCCESS
        found |= bodies(answer.body)
    assert found == {b"%d" % queue_id for queue_id in ids}


async def test_without_waiting_all_queues_are_looked_at(broker: Broker, peer: RawPeer) -> None:
    notice = await peer.ask(Code.NOTIFICATION, DOES_NOT_WAIT)
    assert notice.ext is not None
    assert notice.ext["hasMsg"] == "false"
    ids = [*range(100, QUEUES, QUEUES // 5)]
    await send(broker, *ids)
    expected = {b"%d" % queue_id for queue_id in ids}
    notice = await peer.ask(Code.NOTIFICATION, DOES_NOT_WAIT)
    assert notice.ext is not None
    assert notice.ext["hasMsg"] == "true"
    peeked = bodies((await peer.ask(Code.PEEK_MESSAGE, DOES_NOT_WAIT)).body)
    assert peeked
    assert peeked <= expected
    popped: set[bytes] = set()
    for _ in ids:
        popped |= bodies((await peer.ask(Code.POP_MESSAGE, DOES_NOT_WAIT)).body)
    assert popped == expected
    assert (await peer.ask(Code.POP_MESSAGE, DOES_NOT_WAIT)).code == ResponseCode.POLLING_TIMEOUT
    assert (await peer.ask(Code.PEEK_MESSAGE, DOES_NOT_WAIT)).code == ResponseCode.PULL_NOT_FOUND


@pytest.mark.parametrize("code", [Code.POP_MESSAGE, Code.NOTIFICATION])
async def test_time_that_runs_out_while_looking_is_answered_once(
    broker: Broker, peer: RawPeer, code: Code
) -> None:
    answer = await peer.ask(code, pop_fields(pollTime=1))
    if code is Code.POP_MESSAGE:
        assert answer.code == ResponseCode.POLLING_TIMEOUT
    else:
        assert answer.ext is not None
        assert answer.ext["hasMsg"] == "false"
    assert len(pop_of(broker).polling) == 0
    # Nothing else comes before the next answer.
    assert (await peer.ask(Code.PEEK_MESSAGE, DOES_NOT_WAIT)).code == ResponseCode.PULL_NOT_FOUND


async def test_who_leaves_while_his_pop_looks_takes_nothing_along(broker: Broker) -> None:
    async with RawPeer(broker.address) as peer:
        peer.send(request(Code.POP_MESSAGE, WAITS))
        await until(lambda: len(pop_of(broker).polling) == 1)
    await until(lambda: len(pop_of(broker).polling) == 0)
    await send(broker, 7)
    async with RawPeer(broker.address) as other:
        assert bodies((await other.ask(Code.POP_MESSAGE, WAITS)).body) == {b"7"}


async def test_too_many_that_wait_are_told_so_after_all_queues_were_looked_at(
    broker: Broker, peer: RawPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rockhopper.broker.features.pop.polling.WAITING_MAX", 0)
    assert (await peer.ask(Code.POP_MESSAGE, WAITS)).code == ResponseCode.POLLING_FULL
    notice = await peer.ask(Code.NOTIFICATION, WAITS)
    assert notice.ext is not None
    assert (notice.ext["hasMsg"], notice.ext["pollingFull"]) == ("false", "true")
    await send(broker, 5)
    assert bodies((await peer.ask(Code.POP_MESSAGE, WAITS)).body) == {b"5"}


async def test_a_stop_answers_who_waits_while_his_pop_looks() -> None:
    async with Broker.temporary() as broker:
        broker.tables.topics.put(
            TopicConfig(TOPIC, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
        )
        async with RawPeer(broker.address) as peer:
            peer.send(request(Code.POP_MESSAGE, WAITS))
            await until(lambda: len(pop_of(broker).polling) == 1)
            await broker.stop()
            assert (await peer.answer()).code == ResponseCode.POLLING_TIMEOUT
