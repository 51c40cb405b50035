"""Subscriptions of a consumer to a topic: all messages, some tags, or an SQL expression.

An expression of type TAG is ``*`` or tags joined by ``||``. The broker compares Java hashes of
tags, because a consume queue contains nothing else; the client compares the tags themselves.

An expression of type SQL92 filters by the properties of a message; only the broker evaluates it.
"""

import re
from collections.abc import Callable, Mapping

from rockhopper.protocol.errors import SubscriptionError
from rockhopper.protocol.java_hash import java_string_hash
from rockhopper.protocol.properties import PROPERTY_TAGS
from rockhopper.protocol.sql92 import SqlFilter, compile_filter

SUBSCRIBE_ALL = "*"
TYPE_TAG = "TAG"
TYPE_SQL92 = "SQL92"
# A comparison between blanks, or a word of SQL between two others.
_CONDITION = re.compile(
    r"\s(=|<>|[<>]=?)\s|[<>]|\S\s+(AND|OR|IN|IS|LIKE|BETWEEN|NOT)\s+\S", re.IGNORECASE
)


def check_tags_meant(topic: str, expression: str | None) -> None:
    """Reject expressions that brokers accept as tags but are mistakes: `new | paid`, `price > 5`.

    Raises:
        SubscriptionError: a part of the expression is not a tag; the error shows the correct form.
    """
    for part in (expression or "").split("||"):
        if "|" in part or ", " in part.strip():
            tags = " || ".join(filter(None, re.split(r"[|,\s]+", expression or "")))
            raise SubscriptionError(
                f"the filter {expression!r} for topic {topic!r} contains {part.strip()!r}, "
                f"which is not a tag: tags are joined by ||, as in {tags!r}"
            )
        if _CONDITION.search(part):
            raise SubscriptionError(
                f"the filter {expression!r} for topic {topic!r} is not a tag but a condition "
                f"over properties: use Sql({expression!r}), or filterType=sql92"
            )


def _parse_tags(topic: str, expression: str) -> frozenset[str]:
    tags = frozenset(tag.strip() for tag in expression.split("||")) - {""}
    if not tags:
        raise SubscriptionError(
            f"the expression '{expression}' for topic '{topic}' names no tag; "
            "'*' subscribes to everything, 'a || b' to two tags"
        )
    return tags


class Subscription:
    """A topic of a consumer and the filter for its messages; compares by value.

    ``version`` grows with every change (milliseconds in Java, nanoseconds in Go, 0 from some
    clients). For SQL92, every message matches by tag, and the expression is compiled on first use.
    """

    __slots__ = (
        "_any_tag",
        "_sql",
        "expression",
        "expression_type",
        "is_sql",
        "matches_all",
        "tag_hashes",
        "tags",
        "topic",
        "version",
    )

    def __init__(
        self,
        topic: str,
        expression: str | None = SUBSCRIBE_ALL,
        expression_type: str | None = TYPE_TAG,
        version: int = 0,
    ) -> None:
        """Without an expression it is ``*``, without a type TAG.

        Raises:
            SubscriptionError: the type is unknown, or the expression selects nothing. An SQL92
                expression is compiled later, see ``sql``.
        """
        self.topic = topic
        self.expression_type = expression_type or TYPE_TAG
        self.version = version
        self.matches_all = False
        """Whether all messages match."""
        self.is_sql = self.expression_type == TYPE_SQL92
        self._sql: SqlFilter | None = None
        tags: frozenset[str] = frozenset()
        if self.expression_type == TYPE_TAG:
            expression = (expression or "").strip() or SUBSCRIBE_ALL
            if expression == SUBSCRIBE_ALL:
                self.matches_all = True
            else:
                tags = _parse_tags(topic, expression)
        elif self.is_sql:
            if not expression or not expression.strip():
                raise SubscriptionError(f"the SQL92 expression for topic '{topic}' is empty")
        else:
            raise SubscriptionError(
                f"unknown expression type '{expression_type}' for topic '{topic}': expected "
                f"{TYPE_TAG} or {TYPE_SQL92}"
            )
        self.expression: str = expression
        self.tags = tags
        self.tag_hashes = frozenset(map(java_string_hash, tags))
        self._any_tag = self.matches_all or self.is_sql

    @property
    def sql(self) -> SqlFilter | None:
        """The compiled expression; None for tags.

        Raises:
            SqlSyntaxError: it does not compile.
        """
        if self._sql is None and self.is_sql:
            self._sql = compile_filter(self.expression)
        return self._sql

    @property
    def matches_properties(self) -> Callable[[Mapping[str, str]], bool] | None:
        """A function that tests the properties of a message; None for tags.

        Raises:
            SqlSyntaxError: the expression does not compile.
        """
        if not self.is_sql:
            return None
        sql = self.sql
        return None if sql is None else sql.matches

    @property
    def takes_any_tag(self) -> bool:
        """Whether messages match regardless of their tags."""
        return self._any_tag

    def covers(self, other: "Subscription") -> bool:
        """Whether every message that matches *other*, of the same topic, certainly matches this.

        Two SQL92 expressions are compared as text, ignoring blanks.
        """
        if self.matches_all:
            return True
        if self.is_sql or other.is_sql:
            own, others = self.expression.split(), other.expression.split()
            return self.is_sql == other.is_sql and own == others
        return not other.matches_all and self.tags >= other.tags

    def matches_hash(self, tags_code: int) -> bool:
        """Whether a message with *tags_code* in its consume queue entry may match."""
        return self._any_tag or tags_code in self.tag_hashes

    def matches_tag(self, tag: str | None) -> bool:
        """Whether the tag of a message matches; None is a message without a tag."""
        return self._any_tag or tag in self.tags

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Subscription):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, str, str, int]:
        return self.topic, self.expression, self.expression_type, self.version

    def __repr__(self) -> str:
        return (
            f"Subscription({self.topic!r}, {self.expression!r}, {self.expression_type!r}, "
            f"{self.version})"
        )


class ExactSubscription(Subscription):
    """A subscription whose tags are compared exactly, not only by their hashes.

    It is for clients of RocketMQ 5, which do not compare the tags again.
    """

    __slots__ = ("_hashes",)

    def __init__(
        self, topic: str, expression: str | None, expression_type: str | None = TYPE_TAG
    ) -> None:
        """See Subscription."""
        super().__init__(topic, expression, expression_type)
        # Empty: the hash alone never proves a match.
        self._hashes, self.tag_hashes = self.tag_hashes, frozenset()

    @property
    def matches_properties(self) -> Callable[[Mapping[str, str]], bool] | None:
        """See Subscription; here also tests tags, unless all match."""
        if self.takes_any_tag:
            return super().matches_properties
        return lambda properties: properties.get(PROPERTY_TAGS) in self.tags

    def matches_hash(self, tags_code: int) -> bool:
        """Whether a message with *tags_code* in its consume queue entry may match."""
        return self.takes_any_tag or tags_code in self._hashes
