"""TOPIC_IDS: one id for each topic that is there, on disk before it is told."""

import pytest

from rockhopper.broker.kernel.processors import topics_admin as module
from rockhopper.broker.kernel.tables.topic_ids import TopicIds
from rockhopper.protocol.bodies.topic_ids import decode_topic_ids, encode_topic_ids
from rockhopper.protocol.codes import RequestCode, ResponseCode
from tests.support.served_broker import ServedBroker


async def ids(broker: ServedBroker, *topics: str) -> list[str | None]:
    answer = await broker.ask(RequestCode.TOPIC_IDS, {}, encode_topic_ids(list(topics)))
    assert answer.code == ResponseCode.SUCCESS
    return list(decode_topic_ids(answer.body))


async def test_each_topic_that_is_there_has_an_id_of_its_own(broker: ServedBroker) -> None:
    broker.create_topic("a")
    broker.create_topic("b")
    a, missing, b = await ids(broker, "a", "gone", "b")
    assert missing is None
    assert a != b
    assert await ids(broker, "b", "a") == [b, a]
    assert await ids(broker) == []


async def test_an_id_is_on_disk_when_it_is_told(broker: ServedBroker) -> None:
    broker.create_topic("a")
    broker.tables.catalog.topic_ids.start_saving()
    (told,) = await ids(broker, "a")
    again = TopicIds(broker.tables.catalog.topic_ids.path)
    assert again.load()
    assert again.find("a") == told


async def test_a_topic_made_anew_has_another_one(broker: ServedBroker) -> None:
    broker.create_topic("a")
    before = await ids(broker, "a")
    broker.tables.topics.delete("a")
    assert await ids(broker, "a") == [None]
    broker.create_topic("a")
    assert await ids(broker, "a") != before


async def test_too_many_at_a_time_are_refused(
    broker: ServedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IDENTIFIED_MAX", 2)
    body = encode_topic_ids(["a", "b", "c"])
    answer = await broker.ask(RequestCode.TOPIC_IDS, {}, body)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "request at most 2 at a time" in str(answer.remark)
