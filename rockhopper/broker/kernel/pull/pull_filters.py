"""Which filter a read uses: the one in the request, or the one from the group's heartbeats.

The store compares tags. It also evaluates SQL92 expressions, which are compiled once, unless
``enablePropertyFilter`` is off. A retry topic contains only messages that its group has received
before, so the group's filter for the original topic is not applied there again, unless
``filterSupportRetry`` is on.

Clients compare tags again, but cannot evaluate SQL92. So a client whose pulls are ahead of its
heartbeats may be served without a filter if it wants tags, but never if it wants SQL92.
"""

import time
from collections.abc import Callable, Mapping
from typing import cast

import structlog

from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.store.reading.property_stage import MessageFilter, PropertyTest
from rockhopper.broker.users.errors import (
    FilterNotFound,
    Refusal,
    SubscriptionNotParsed,
    SubscriptionOutdated,
)
from rockhopper.broker.users.peer import Peer
from rockhopper.protocol.errors import ProtocolError, SqlSyntaxError
from rockhopper.protocol.names import is_retry_topic, retry_topic
from rockhopper.protocol.properties import PROPERTY_RETRY_TOPIC, is_popped_copy
from rockhopper.protocol.sql92.sql_filter import SqlFilter
from rockhopper.protocol.subscription import TYPE_SQL92, Subscription

log = structlog.get_logger("broker.pull_filters")

CACHED_MAX = 4096
WARNED_MAX = 1000
# Some 8,000 tags: parsing more would delay all other requests.
EXPRESSION_LENGTH_MAX = 65_536
HEARTBEAT_GRACE_S = 0.5


class PullFilters:
    """Converts subscriptions to filters; None is no filter."""

    def __init__(self, config: BrokerConfig) -> None:
        self._settings = config.pull
        self._named: dict[tuple[str, str, str], Subscription | None] = {}
        self._warned: set[tuple[str, str]] = set()

    def build_requested(
        self, group: str, topic: str, expression: str, expression_type: str
    ) -> Subscription | None:
        """Return the filter that a request contains.

        Raises:
            Refusal: it cannot be parsed (23), or SQL92 is switched off (1).
        """
        key = (topic, expression, expression_type)
        try:
            chosen = self._named[key]
        except KeyError:
            parsed = self._parse(topic, expression, expression_type)
            chosen = None if parsed.matches_all else parsed
            if len(self._named) >= CACHED_MAX:
                self._named.clear()
            self._named[key] = chosen
        if chosen is not None and chosen.is_sql:
            self.check_enabled(chosen)
            self.warn(group, chosen)
        return chosen

    def _parse(self, topic: str, expression: str, expression_type: str) -> Subscription:
        failed = "parse the consumer's subscription failed"
        if len(expression) > EXPRESSION_LENGTH_MAX:
            raise SubscriptionNotParsed(
                f"{failed}: it has {len(expression)} characters; at most {EXPRESSION_LENGTH_MAX} "
                "are allowed"
            )
        try:
            subscription = Subscription(topic, expression, expression_type)
            if subscription.is_sql:
                self.check_enabled(subscription)
                _ = subscription.sql
        except ProtocolError as error:
            raise SubscriptionNotParsed(f"{failed}: {error}") from None
        return subscription

    def check_enabled(self, subscription: Subscription) -> None:
        """Raise Refusal if expressions over properties are switched off."""
        if subscription.is_sql and not self._settings.property_filter:
            raise Refusal(
                "The broker does not support consumer to filter message by "
                f"{subscription.expression_type}: its setting enablePropertyFilter is false"
            )

    def find_registered(self, group: str, subscription: Subscription) -> Subscription | None:
        """Return the filter from a heartbeat of the group.

        Raises:
            Refusal: it does not compile (27), or SQL92 is switched off (1).
        """
        if subscription.is_sql:
            self.check_enabled(subscription)
            self.warn(group, subscription)
            try:
                _ = subscription.sql
            except SqlSyntaxError as error:
                raise FilterNotFound(
                    "The broker's consumer filter data is not exist!Your expression may be wrong! "
                    f"{error}"
                ) from None
        return None if subscription.matches_all else subscription

    def find_newer(
        self,
        group: str,
        subscription: Subscription,
        connection: Peer,
        version: int,
        wanted_type: str | None,
    ) -> Subscription | None:
        """Return the filter for a client whose *version* is newer than its heartbeats'.

        The Java client raises its version after a rebalance and sends it in a heartbeat. But it
        drops that heartbeat if another one is in flight, at about one start in eight; RocketMQ then
        refuses the client for half a minute. A heartbeat in flight arrives within a second. After
        that, a client that wants tags receives every message and compares the tags itself. A client
        that wants SQL92 receives what its newest known expression selects.

        Raises:
            Refusal: a heartbeat may still arrive, or is required because no expression is known
            (25).
        """
        chosen = self.find_registered(group, subscription)
        ahead = f"ahead of its heartbeat: {group} {subscription.topic}"
        now_s = time.monotonic()
        known, since_s = cast("tuple[int, float]", connection.attributes.get(ahead, (-1, 0.0)))
        if known != version:
            since_s = now_s
            connection.attributes[ahead] = (version, since_s)
        wants_sql = (wanted_type or subscription.expression_type) == TYPE_SQL92
        if now_s - since_s <= HEARTBEAT_GRACE_S or (wants_sql and not subscription.is_sql):
            raise SubscriptionOutdated("the consumer's subscription not latest")
        return chosen if wants_sql else None

    def on_retry_topic(
        self,
        chosen: Subscription | None,
        group: str,
        topic: str,
        find: Callable[[str], Subscription | None],
    ) -> MessageFilter | None:
        """Return *chosen* without messages that another group has popped in a topic of this name.

        With filterSupportRetry, also apply the group's filter of the original topic; *find* returns
        its subscription to a topic.
        """
        is_shared = "_" in group and topic == retry_topic(group)
        if self._settings.filter_support_retry and is_retry_topic(topic):
            return RetryFilter(chosen, find, is_shared=is_shared)
        return RetryFilter(chosen, None, is_shared=True) if is_shared else chosen

    def warn(self, group: str, subscription: Subscription) -> None:
        """Log, once, a problem of an SQL92 expression for the consumer's owner."""
        if (group, subscription.expression) in self._warned:
            return
        try:
            sql = subscription.sql
            assert sql is not None
        except SqlSyntaxError as error:
            event, reason = "a consumer's expression does not compile: its pulls fail", str(error)
        else:
            rest = sql.ignored_from
            if rest is not None:
                event = "the end of a consumer's expression is ignored, as in RocketMQ"
                reason = sql.expression[rest : rest + 100]
            elif sql.first_error is not None:
                event = "a consumer skips messages for which its expression cannot be evaluated"
                reason = sql.first_error
            else:
                return
        if len(self._warned) >= WARNED_MAX:
            self._warned.clear()
        self._warned.add((group, subscription.expression))
        log.warning(
            event,
            group=group,
            topic=subscription.topic,
            expression=subscription.expression[:500],
            reason=reason,
        )


class RetryFilter:
    """A filter for a retry topic that also applies the group's filter of the original topic.

    If the topic *is_shared*, it omits popped messages. The retry topic of group ``a_b_c`` is shared
    with group ``a`` for topic ``b_c``, and with group ``a_b`` for topic ``c``.
    """

    def __init__(
        self,
        chosen: Subscription | None,
        find: Callable[[str], Subscription | None] | None,
        *,
        is_shared: bool = False,
    ) -> None:
        self._chosen = chosen
        self._find = find
        self._is_shared = is_shared
        self.tag_hashes: frozenset[int] = frozenset()
        # Another subscription may also apply.
        self.sql: SqlFilter | None = None

    def matches_hash(self, tags_code: int) -> bool:
        """Return whether the group may want a message with this entry."""
        return self._chosen is None or self._chosen.matches_hash(tags_code)

    @property
    def matches_properties(self) -> PropertyTest:
        """Returns whether the group wants a message with the given properties."""
        own = None if self._chosen is None else self._chosen.matches_properties

        def matches(properties: Mapping[str, str]) -> bool:
            if self._is_shared and is_popped_copy(properties):
                return False
            original = None
            if self._find is not None:
                original = self._find(properties.get(PROPERTY_RETRY_TOPIC, ""))
            if original is not None and original.is_sql:
                try:
                    test = original.matches_properties
                except SqlSyntaxError:
                    test = None
                if test is not None and not test(properties):
                    return False
            return own is None or own(properties)

        return matches
