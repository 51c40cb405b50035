"""Filters for a topic that a consumer subscribes to: tags, or an SQL92 expression."""

from dataclasses import dataclass

from rockhopper.protocol.sql92 import compile_filter
from rockhopper.protocol.subscription import TYPE_SQL92, Subscription, check_tags_meant


@dataclass(frozen=True, slots=True)
class Sql:
    """An SQL92 expression over the properties of a message, such as "price > 5 AND region = 'eu'".

    The broker evaluates it; TAGS and KEYS are properties too. The constructor refuses invalid
    expressions. It also refuses probable mistakes that brokers accept: text after the expression,
    which they ignore, and a property that is not compared with anything. SqlSyntaxError names the
    position.
    """

    expression: str

    def __post_init__(self) -> None:
        compile_filter(self.expression).check_meant()


def make_subscription(topic: str, wanted: str | Sql | None, version: int = 0) -> Subscription:
    """Return the subscription to a topic by tags, by an expression, or to all messages.

    Raises:
        SubscriptionError: the tags select nothing, or the filter is invalid.
    """
    if isinstance(wanted, Sql):
        return Subscription(topic, wanted.expression, TYPE_SQL92, version)
    check_tags_meant(topic, wanted)
    return Subscription(topic, wanted, version=version)
