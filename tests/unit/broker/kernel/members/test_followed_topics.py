"""Which topics the lag of a group counts."""

from rockhopper.broker.kernel.members.consumer_groups import Client, ConsumeSettings
from rockhopper.broker.kernel.members.followed_topics import iterate_followed_topics
from rockhopper.protocol.codes import LanguageCode
from rockhopper.protocol.subscription import Subscription
from tests.support.peers import Peer
from tests.support.served_broker import ServedBroker


def followed(broker: ServedBroker) -> dict[tuple[str, str], dict[int, int]]:
    names, has_messages = broker.tables.topics.configs, broker.store.reading.has_messages
    found = iterate_followed_topics(
        broker.tables.offsets,
        broker.kernel.consumers,
        names,
        has_messages,
        broker.kernel.retry_owners.groups,
    )
    return {(topic, group): dict(offsets) for topic, group, offsets in found}


async def test_topics_count_that_nobody_online_subscribes_to(broker: ServedBroker) -> None:
    broker.tables.offsets.commit("bills", "billing", 0, 7)
    client = Client(Peer().connection, "c1", LanguageCode.GO, 317)
    subscriptions = {"orders": Subscription("orders", "*", version=1)}
    broker.kernel.consumers.register("billing", client, ConsumeSettings(), subscriptions)
    assert followed(broker) == {("bills", "billing"): {0: 7}, ("orders", "billing"): {}}


async def test_retry_topics_count_once_they_have_messages(broker: ServedBroker) -> None:
    for topic in ("%RETRY%billing", "%RETRY%billing+orders", "%RETRY%quiet"):
        broker.create_topic(topic)
    broker.put("%RETRY%billing")
    broker.put("%RETRY%billing+orders")
    assert followed(broker) == {
        ("%RETRY%billing", "billing"): {},
        ("%RETRY%billing+orders", "billing"): {},
    }


async def test_what_a_group_popped_is_not_behind_for_a_group_that_is_none(
    broker: ServedBroker,
) -> None:
    broker.create_topic("paid")
    broker.tables.offsets.commit("paid", "orders", 0, 0)
    name = "%RETRY%orders_paid"
    broker.create_topic(name)
    broker.put(name)
    assert followed(broker) == {("paid", "orders"): {0: 0}, (name, "orders"): {}}
