"""A user gets nothing of topics that are not his by naming another place than he says."""

import pytest

from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from tests.support.peers import UsersPeer
from tests.support.served_broker import ServedBroker


@pytest.fixture
def secret_offset(broker: ServedBroker) -> int:
    """Where a message of a topic stands that alice may not read."""
    for name in ("mine", "theirs"):
        broker.create_topic(name)
    return broker.put("theirs", b"not for alice").commit_log_offset


@pytest.fixture
def alice() -> UsersPeer:
    return UsersPeer("10.0.0.9", "alice")


async def test_a_message_is_looked_up_in_the_topic_that_is_named(
    broker: ServedBroker, alice: UsersPeer, secret_offset: int
) -> None:
    for topic, code in (("mine", ResponseCode.SYSTEM_ERROR), ("theirs", ResponseCode.SUCCESS)):
        ext = {"offset": str(secret_offset), "topic": topic}
        answer = await broker.ask(Code.VIEW_MESSAGE_BY_ID, ext, peer=alice)
        assert answer.code == code


async def test_a_message_is_sent_back_to_where_it_came_from(
    broker: ServedBroker, alice: UsersPeer, secret_offset: int
) -> None:
    for topic, code in (("mine", ResponseCode.SYSTEM_ERROR), ("theirs", ResponseCode.SUCCESS)):
        ext = {
            "offset": str(secret_offset),
            "group": "g",
            "delayLevel": "-1",
            "originTopic": topic,
        }
        answer = await broker.ask(Code.CONSUMER_SEND_MSG_BACK, ext, peer=alice)
        assert answer.code == code
    assert broker.store.queue_range("%DLQ%g", 0) == (0, 1)


async def test_where_there_are_no_users_nothing_changes(
    broker: ServedBroker, secret_offset: int
) -> None:
    ext = {"offset": str(secret_offset)}
    assert (await broker.ask(Code.VIEW_MESSAGE_BY_ID, ext)).code == ResponseCode.SUCCESS
    ext |= {"group": "g", "delayLevel": "-1"}
    assert (await broker.ask(Code.CONSUMER_SEND_MSG_BACK, ext)).code == ResponseCode.SUCCESS
