"""ServedTopics: both directions agree, and a broker that goes costs what it has."""

from collections.abc import Iterator

from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.name_server.served_topics import ServedTopics


def served() -> ServedTopics:
    topics = ServedTopics()
    for broker, name in [("a", "orders"), ("a", "only-a"), ("b", "orders")]:
        topics.set_topic(name, broker, TopicConfig(name))
    return topics


def test_a_topic_counts_once_for_each_broker_that_has_it() -> None:
    topics = served()
    topics.set_topic("orders", "a", TopicConfig("orders", write_queue_nums=9))
    assert (topics.count, len(topics), topics.find_topics("a")) == (3, 2, {"orders", "only-a"})
    assert topics.brokers("orders")["a"].write_queue_nums == 9
    topics.remove("orders", "a")
    assert (topics.count, list(topics.brokers("orders")), topics.find_topics("a")) == (
        2,
        ["b"],
        {"only-a"},
    )


def test_a_broker_that_goes_takes_along_all_that_is_known_of_it() -> None:
    topics = served()
    topics.put_mapping("orders", "a", {"bname": "a"})
    topics.remove_broker("a")
    topics.remove_broker("unknown")
    assert (topics.count, topics.names(), topics.find_topics("a")) == (1, ["orders"], set())
    assert topics.mappings("orders") == {}


class NotWalked(dict[str, dict[str, TopicConfig]]):
    """A table that may be looked up in and not walked through."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("all topics are walked through")

    keys = values = items = __iter__  # type: ignore[assignment]


def test_the_topics_of_others_are_not_looked_at_when_a_broker_goes() -> None:
    topics = served()
    topics._brokers = NotWalked(topics._brokers)
    topics.remove_broker("a")
    assert topics.count == 1
