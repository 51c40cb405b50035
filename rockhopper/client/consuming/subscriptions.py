"""Turns the application's topics and filters into subscriptions."""

import re
from collections.abc import Iterable, Mapping

from rockhopper.client.consuming.face.patterns import TopicPattern, compile_pattern, is_pattern
from rockhopper.client.filters import Sql, make_subscription
from rockhopper.protocol.names import topic_error
from rockhopper.protocol.subscription import SUBSCRIBE_ALL, Subscription

Filter = str | Sql | None
Topic = str | re.Pattern[str]
Topics = Topic | Iterable[Topic] | Mapping[Topic, Filter] | Mapping[str, Filter]


def make_subscriptions(
    topics: Topics, version: int
) -> tuple[dict[str, Subscription], list[TopicPattern]]:
    """Return the subscription to each topic: all messages, some tags, or an Sql filter.

    Patterns are returned separately, because their topics are still to be found.

    Raises:
        TypeError: an argument is not a topic.
        ValueError: no topic, an invalid topic name, or an invalid pattern.
        SubscriptionError: an invalid filter.
    """
    filters = _collect_filters(topics)
    if not all(isinstance(topic, str | re.Pattern) for topic in filters):
        raise TypeError(
            "topics are strings: pass one, several, or a mapping of topics to filters, not "
            f"{topics!r}"
        )
    if not filters:
        raise ValueError("a consumer needs at least one topic")
    subscriptions: dict[str, Subscription] = {}
    patterns: list[TopicPattern] = []
    for topic, wanted in filters.items():
        _check_filter(topic, wanted)
        if isinstance(topic, re.Pattern) or is_pattern(topic):
            make_subscription("of the pattern", wanted)  # raise errors in the filter now
            patterns.append(TopicPattern(compile_pattern(topic), wanted))
        elif (reason := topic_error(topic)) is not None:
            raise ValueError(reason)
        else:
            subscriptions[topic] = make_subscription(topic, wanted, version)
    return subscriptions, patterns


def _collect_filters(topics: Topics) -> dict[Topic, Filter]:
    if isinstance(topics, Mapping):
        return dict(topics.items())
    if isinstance(topics, Iterable) and not isinstance(topics, str):
        return dict.fromkeys(topics, SUBSCRIBE_ALL)
    return {topics: SUBSCRIBE_ALL}


def _check_filter(topic: Topic, wanted: Filter) -> None:
    if wanted is not None and not isinstance(wanted, str | Sql):
        raise TypeError(
            f"the filter of topic {topic!r} is {wanted!r}: use tags such as 'new || paid', or "
            "Sql('price > 5')"
        )
