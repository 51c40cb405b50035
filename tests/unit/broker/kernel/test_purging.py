"""Contents: what a purge forgets, what it leaves, and what it gives back to who is online."""

import pytest

from rockhopper.broker.kernel.members.consumer_groups import Client, ConsumeSettings
from rockhopper.broker.kernel.purging import Contents
from rockhopper.protocol.subscription import Subscription
from tests.support.peers import Peer
from tests.support.served_broker import ServedBroker


@pytest.fixture
def contents(broker: ServedBroker) -> Contents:
    return Contents(broker.store, broker.tables, broker.kernel.consumers, broker.stats)


async def test_users_topics_groups_and_offsets_go(broker: ServedBroker, contents: Contents) -> None:
    broker.create_topic("orders")
    broker.put("orders")
    broker.tables.groups.find_or_create("billing")
    broker.tables.offsets.commit("orders", "billing", 0, 1)
    contents.purge()
    assert "orders" not in broker.tables.topics
    assert "billing" not in broker.tables.groups
    assert broker.tables.offsets.get("orders", "billing", 0) is None
    assert broker.store.reading.queue_range("orders", 0) == (0, 0)


async def test_system_topics_stay_and_are_emptied(broker: ServedBroker, contents: Contents) -> None:
    topics = [name for name in broker.tables.topics.configs if broker.tables.topics.is_system(name)]
    broker.put("SCHEDULE_TOPIC_XXXX")
    broker.put("SCHEDULE_TOPIC_XXXX")
    contents.purge()
    assert list(broker.tables.topics.configs) == topics
    assert broker.store.reading.queue_range("SCHEDULE_TOPIC_XXXX", 0) == (2, 2)
    assert "TOOLS_CONSUMER" in broker.tables.groups


async def test_who_is_online_goes_on_with_topic_and_group(
    broker: ServedBroker, contents: Contents
) -> None:
    broker.create_topic("orders", queues=3)
    broker.create_topic("others")
    broker.put("orders")
    client = Client(Peer().connection, "c1", 0, 479)
    subscriptions = {"orders": Subscription("orders")}
    broker.kernel.consumers.register("billing", client, ConsumeSettings(), subscriptions)
    contents.purge()
    topic = broker.tables.topics.get("orders")
    assert topic is not None
    assert topic.read_queue_nums == 3
    assert "billing" in broker.tables.groups
    assert "others" not in broker.tables.topics
    assert broker.store.reading.queue_range("orders", 0) == (0, 0)
    assert broker.put("orders").queue_offset == 0


def test_contents_go_before_features_do_and_what_delivers_to_these_comes_last(
    broker: ServedBroker,
) -> None:
    kernel, parts = broker.kernel, list(broker.parts)
    (contents,) = [at for at, part in enumerate(parts) if isinstance(part, Contents)]
    features = [parts.index(part) for part in broker.features.values()]
    assert parts[0] is broker.tables
    assert contents < parts.index(kernel.positions) < min(features)
    assert features == sorted(features)
    last = [kernel.scheduled.delayed, kernel.scheduled.timers, kernel.cluster, kernel.puller]
    assert parts[max(features) + 1 : -1] == last
