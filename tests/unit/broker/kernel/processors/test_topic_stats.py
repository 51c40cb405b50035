"""FIGURES: all topics and groups in one answer."""

from rockhopper.protocol.bodies.stats import OLDEST_UNKNOWN, Figures
from rockhopper.protocol.codes import RequestCode
from tests.support.peers import Clock
from tests.support.served_broker import ServedBroker


async def figures(broker: ServedBroker, *, details: bool = True) -> Figures:
    ext = {"details": "true" if details else "false"}
    return Figures.decode((await broker.ask(RequestCode.FIGURES, ext)).body)


async def test_topics_are_counted_and_groups_measured(broker: ServedBroker) -> None:
    broker.create_topic("orders", queues=2)
    broker.create_topic("quiet")
    for queue_id in (0, 0, 1):
        broker.put("orders", queue_id=queue_id)
    broker.tables.groups.find_or_create("billing")
    broker.tables.groups.find_or_create("new")
    broker.tables.offsets.commit("orders", "billing", 0, 1)
    broker.stats.get_send_traffic("orders").count_request(3, 300)
    broker.stats.get_pull_traffic("orders", "billing").count_request(1, 100)
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
    broker.tables.groups.find_or_create("billing")
    for _ in range(5):
        broker.put("orders")
    broker.tables.offsets.commit("orders", "billing", 0, 0)
    await broker.ask(RequestCode.PURGE_TOPIC, {"topic": "orders"})
    broker.put("orders")
    assert [each.lag for each in (await figures(broker)).groups if each.name == "billing"] == [1]


async def test_a_retry_topic_without_offsets_is_behind(broker: ServedBroker) -> None:
    broker.create_topic("%RETRY%billing", queues=1)
    broker.create_topic("%RETRY%other", queues=1)
    broker.tables.groups.find_or_create("billing")
    broker.tables.groups.find_or_create("other")
    broker.put("%RETRY%billing")
    found = {each.name: each for each in (await figures(broker)).groups}
    assert (found["billing"].lag, found["billing"].topics) == (1, ["%RETRY%billing"])
    assert (found["other"].lag, found["other"].topics) == (0, [])


async def test_the_oldest_message_that_is_not_consumed_has_an_age_if_asked_for(
    broker: ServedBroker, clock: Clock
) -> None:
    broker.create_topic("orders", queues=2)
    for group in ("billing", "done", "new"):
        broker.tables.groups.find_or_create(group)
    stored_ms = []
    for queue_id in (0, 1, 1):
        clock.advance(1000)
        stored_ms.append(broker.put("orders", queue_id=queue_id).store_time_ms)
    for queue_id, offset in ((0, 1), (1, 2)):
        broker.tables.offsets.commit("orders", "done", queue_id, offset)
        broker.tables.offsets.commit("orders", "billing", queue_id, offset - (queue_id == 1))
    found = {each.name: each for each in (await figures(broker)).groups}
    assert {each.oldest_ms for each in found.values()} == {OLDEST_UNKNOWN}
    answer = await broker.ask(RequestCode.FIGURES, {"ages": "true"})
    found = {each.name: each for each in Figures.decode(answer.body).groups}
    assert found["billing"].oldest_ms == stored_ms[2]
    assert found["done"].oldest_ms == 0
