"""What a consumer wants of a topic: everything, some tags, or what an SQL expression selects.

An expression of type TAG is ``*`` or tags joined by ``||``. The broker compares Java hashes of
tags, which is all that a consume queue holds; the client compares the tags themselves.

An expression of type SQL92 is over the properties of a message; the broker alone evaluates it.
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
# A comparison with blanks around it, or what is like a word of SQL between two others.
_CONDITION = re.compile(
    r"\s(=|<>|[<>]=?)\s|[<>]|\S\s+(AND|OR|IN|IS|LIKE|BETWEEN|NOT)\s+\S", re.IGNORECASE
)


def check_tags_meant(topic: str, expression: str | None) -> None:
    """Refuse what brokers take for tags and nobody means as such: `new | paid`, `price > 5`.

    Raises:
        SubscriptionError: a part of the expression is no tag; it names the correct form.
    """
    for part in (expression or "").split("||"):
        if "|" in part or ", " in part.strip():
            tags = " || ".join(filter(None, re.split(r"[|,\s]+", expression or "")))
            raise SubscriptionError(
                f"the filter {expression!r} for topic {topic!r} holds {part.strip()!r}, which is "
                f"no tag: tags are joined by ||, as in {tags!r}"
            )
        if _CONDITION.search(part):
            raise SubscriptionError(
                f"the filter {expression!r} for topic {topic!r} is no tag but a condition over "
                f"properties: use Sql({expression!r}), or filterType=sql92"
            )


class Subscription:
    """One topic of a consumer, and which of its messages; compares by value.

    ``version`` grows with every change (milliseconds in Java, nanoseconds in Go, 0 from some).
    For SQL92 every message matches as far as tags go, and the expression is compiled when it is
    first used.
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
        """No expression means everything, no type means TAG.

        Raises:
            SubscriptionError: the type is not known, or the expression selects nothing. Whether an
                SQL92 expression compiles is found out later, see ``sql``.
        """
        self.topic = topic
        self.expression_type = expression_type or TYPE_TAG
        self.version = version
        self.matches_all = False
        """Whether no message is filtered out."""
        self.is_sql = self.expression_type == TYPE_SQL92
        self._sql: SqlFilter | None = None
        tags: frozenset[str] = frozenset()
        if self.expression_type == TYPE_TAG:
            expression = (expression or "").strip() or SUBSCRIBE_ALL
            if expression == SUBSCRIBE_ALL:
                self.matches_all = True
            else:
                tags = frozenset(tag.strip() for tag in expression.split("||")) - {""}
                if not tags:
                    raise SubscriptionError(
                        f"the expression '{expression}' for topic '{topic}' names no tag; "
                        "'*' subscribes to everything, 'a || b' to two tags"
                    )
        elif self.is_sql:
            if not expression or not expression.strip():
                raise SubscriptionError(f"the SQL92 expression for topic '{topic}' is empty")
        else:
            raise SubscriptionError(
                f"the expression type '{expression_type}' for topic '{topic}' is not known; "
                f"{TYPE_TAG} and {TYPE_SQL92} are"
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
        """What says of the properties of a message whether it is wanted; None for tags.

        Raises:
            SqlSyntaxError: the expression does not compile.
        """
        if not self.is_sql:
            return None
        sql = self.sql
        return None if sql is None else sql.matches

    @property
    def takes_any_tag(self) -> bool:
        """Whether tags play no part."""
        return self._any_tag

    def covers(self, other: "Subscription") -> bool:
        """Whether it surely wants all that *other* wants of the same topic.

        Of two SQL92 expressions that is known only if they are the same but for blanks.
        """
        if self.matches_all:
            return True
        if self.is_sql or other.is_sql:
            own, others = self.expression.split(), other.expression.split()
            return self.is_sql == other.is_sql and own == others
        return not other.matches_all and self.tags >= other.tags

    def matches_hash(self, tags_code: int) -> bool:
        """Whether a message whose consume queue entry holds *tags_code* may be wanted."""
        return self._any_tag or tags_code in self.tag_hashes

    def matches_tag(self, tag: str | None) -> bool:
        """Whether a message with this tag, None for none, is wanted as far as tags go."""
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
    """One whose tags are compared themselves, and not by their hashes alone.

    For clients of RocketMQ 5, which do not compare them once more.
    """

    __slots__ = ("_hashes",)

    def __init__(
        self, topic: str, expression: str | None, expression_type: str | None = TYPE_TAG
    ) -> None:
        """As for Subscription."""
        super().__init__(topic, expression, expression_type)
        # None whose messages are wanted at once.
        self._hashes, self.tag_hashes = self.tag_hashes, frozenset()

    @property
    def matches_properties(self) -> Callable[[Mapping[str, str]], bool] | None:
        """As of a Subscription; for tags, too, unless all are wanted."""
        if self.takes_any_tag:
            return super().matches_properties
        return lambda properties: properties.get(PROPERTY_TAGS) in self.tags

    def matches_hash(self, tags_code: int) -> bool:
        """Whether a message whose consume queue entry holds *tags_code* may be wanted."""
        return self.takes_any_tag or tags_code in self._hashes
