"""Groups that clients made by naming them, and nobody used, go again; others stay."""

from pathlib import Path

import pytest

from rockhopper.broker.kernel.tables import subscription_groups
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroup
from rockhopper.broker.kernel.unused_groups import UNUSED_MS
from rockhopper.protocol.names import retry_topic
from tests.support.peers import Clock
from tests.support.served_broker import ServedBroker


@pytest.fixture
def broker(tmp_path: Path) -> ServedBroker:
    return ServedBroker(tmp_path, Clock(), {})


def make(broker: ServedBroker, *names: str) -> None:
    for name in names:
        assert broker.tables.groups.find_or_create(name) is not None
        broker.tables.topics.ensure_retry_topic(name)


def pass_time(broker: ServedBroker, clock: Clock, ms: int) -> None:
    clock.advance(ms)
    broker.parts.expire()


async def test_a_group_that_nobody_ever_used_goes_after_an_hour(tmp_path: Path) -> None:
    clock = Clock()
    broker = ServedBroker(tmp_path, clock, {})
    make(broker, "unused", "used", "meant", "kept")
    broker.tables.offsets.commit("orders", "used", 0, 1)
    broker.tables.groups.put(SubscriptionGroup("meant", retry_max_times=3))
    broker.tables.groups.put(SubscriptionGroup("admins"))
    broker.tables.groups.put(SubscriptionGroup("kept"))
    pass_time(broker, clock, UNUSED_MS - 1)
    assert "unused" in broker.tables.groups
    pass_time(broker, clock, 1)
    assert "unused" not in broker.tables.groups
    assert retry_topic("unused") not in broker.tables.topics
    assert all(name in broker.tables.groups for name in ("used", "meant", "kept", "admins"))
    assert retry_topic("used") in broker.tables.topics
    broker.store.abandon()


async def test_with_too_many_groups_none_is_made_on_first_use(
    broker: ServedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription_groups, "MADE_ON_USE_MAX", len(broker.tables.groups) + 1)
    make(broker, "first")
    assert broker.tables.groups.find_or_create("second") is None
    assert broker.tables.groups.find_or_create("first") is not None
    broker.tables.groups.put(SubscriptionGroup("second"))
    assert broker.tables.groups.find_or_create("second") is not None
    broker.store.abandon()
