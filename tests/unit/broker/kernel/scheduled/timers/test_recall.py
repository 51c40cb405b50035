"""Recalling a timer message, whoever asks."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rockhopper.broker.users.errors import IllegalOperation, NoPermission, TopicNotFound
from tests.support.peers import Clock
from tests.support.served_broker import BORN_HOST, ServedBroker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ServedBroker]:
    made = ServedBroker(tmp_path, Clock(), {})
    made.create_topic("t")
    yield made
    await made.close()


@pytest.mark.parametrize(
    ("topic", "handle", "kind"),
    [
        ("gone", "x", TopicNotFound),
        ("t", "x", IllegalOperation),
        ("t", "djEgb3RoZXIgYnJva2VyLWEgNSBV", IllegalOperation),
        ("t", "djEgdCBicm9rZXItYiA1IFU=", IllegalOperation),
        ("t", "djEgdCBicm9rZXItYSA1IFU=", IllegalOperation),
    ],
)
async def test_what_means_no_pending_message_is_refused(
    broker: ServedBroker, topic: str, handle: str, kind: type[Exception]
) -> None:
    broker.kernel.scheduled.timers.open()
    with pytest.raises(kind, match="recall failed"):
        broker.kernel.timer_recall.recall(topic, handle, BORN_HOST)


async def test_it_can_be_forbidden(broker: ServedBroker) -> None:
    broker.config.live.recall_message_enable = False
    with pytest.raises(NoPermission):
        broker.kernel.timer_recall.recall("t", "x", BORN_HOST)
