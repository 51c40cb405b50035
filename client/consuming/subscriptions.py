"""Topics and filters from what the application gave."""

from collections.abc import Iterable, Mapping

from rockhopper.client.filters import Sql, subscription_to
from rockhopper.protocol.names import topic_error
from rockhopper.protocol.subscription import SUBSCRIBE_ALL, Subscription

Filter = str | Sql | None
Topics = str | Iterable[str] | Mapping[str, Filter]


def subscriptions_of(topics: Topics, version: int) -> dict[str, Subscription]:
    """Return what is wanted of each topic: all of it, some tags, or what an Sql selects.

    Raises:
        TypeError: something else than topics.
        ValueError: no topic, or a name that cannot be one.
        SubscriptionError: a filter that selects nothing.
    """
    filters: dict[str, Filter]
    if isinstance(topics, str):
        filters = {topics: SUBSCRIBE_ALL}
    elif isinstance(topics, Mapping):
        filters = dict(topics)
    elif isinstance(topics, Iterable):
        filters = dict.fromkeys(topics, SUBSCRIBE_ALL)
    else:
        filters = {topics: SUBSCRIBE_ALL}
    if not all(isinstance(topic, str) for topic in filters):
        raise TypeError(
            "topics are texts: give one, several, or a mapping of topics to filters, not "
            f"{topics!r}"
        )
    if not filters:
        raise ValueError("a consumer needs at least one topic")
    return {topic: _subscription(topic, wanted, version) for topic, wanted in filters.items()}


def _subscription(topic: str, wanted: Filter, version: int) -> Subscription:
    reason = topic_error(topic)
    if reason is not None:
        raise ValueError(reason)
    if wanted is not None and not isinstance(wanted, str | Sql):
        raise TypeError(
            f"the filter of topic {topic!r} is {wanted!r}: use tags such as 'new || paid', or "
            "Sql('price > 5')"
        )
    return subscription_to(topic, wanted, version)
