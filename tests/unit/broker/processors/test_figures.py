"""FIGURES: all topics and groups in one answer."""

from rockhopper.protocol.bodies.figures import Figures
from rockhopper.protocol.codes import RequestCode
from tests.support.served_broker import ServedBroker


async def figures(broker: ServedBroker, *, details: bool = True) -> Figures:
    ext = {"details": "true" if details else "false"}
    return Figures.decode((await broker.ask(RequestCode.FIGURES, ext)).body)


async def test_topics_are_counted_and_groups_measured(broker: ServedBroker) -> None:
    broker.create_topic("orders", queues=2)
    broker.create_topic("quiet")
    for queue_id in (0, 0, 1):
        broker.put("orders", queue_id=queue_id)
    broker.groups.find_or_create("billing")
    broker.groups.find_or_create("new")
    broker.offsets.commit("orders", "billing", 0, 1)
    broker.stats.put("orders").add(3, 300)
    broker.stats.got("orders", "billing").add(1, 100)
    found = await figures(broker)
    topics = {each.name: each for each in found.topics}
    groups = {each.name: each for each in found.groups}
    orders = topics["orders"]
    assert (orders.messages, orders.sent, orders.handed_out) == (3, 3, 1)
    assert orders.newest_ms == broker.clock.steady_ms()
    assert orders.groups == ["billing"]
    assert (topics["quiet"].messages, topics["quiet"].newest_ms) == (0, 0)
    assert (groups["billing"].lag, groups["billing"].topics) == (2, ["orders"])
    assert (groups["billing"].handed_out, groups["new"].lag) == (1, 0)


async def test_without_details_messages_are_not_looked_at(broker: ServedBroker) -> None:
    broker.create_topic("orders")
    broker.put("orders")
    found = await figures(broker, details=False)
    assert [each.messages for each in found.topics if each.name == "orders"] == [0]


async def test_what_has_expired_is_no_lag(broker: ServedBroker) -> None:
    broker.create_topic("orders", queues=1)
    broker.groups.find_or_create("billing")
    for _ in range(5):
        broker.put("orders")
    broker.offsets.commit("orders", "billing", 0, 0)
    await broker.ask(RequestCode.PURGE_TOPIC, {"topic": "orders"})
    broker.put("orders")
    assert [each.lag for each in (await figures(broker)).groups if each.name == "billing"] == [1]


async def test_a_retry_topic_without_offsets_is_behind(broker: ServedBroker) -> None:
    broker.create_topic("%RETRY%billing", queues=1)
    broker.create_topic("%RETRY%other", queues=1)
    broker.groups.find_or_create("billing")
    broker.groups.find_or_create("other")
    broker.put("%RETRY%billing")
    found = {each.name: each for each in (await figures(broker)).groups}
    assert (found["billing"].lag, found["billing"].topics) == (1, ["%RETRY%billing"])
    assert (found["other"].lag, found["other"].topics) == (0, [])
