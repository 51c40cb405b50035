"""Topic patterns: finds the existing topics that match and refreshes them periodically.

A topic that the name server has not listed for a minute is dropped: it was deleted, or its broker
has been away for long. It is found again when its broker returns.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from rockhopper.client.errors import MalformedAnswerError
from rockhopper.client.filters import Sql, make_subscription
from rockhopper.client.network.session import Session
from rockhopper.protocol.bodies import TopicList
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.names import (
    is_dlq_topic,
    is_retry_topic,
    is_system_topic,
    reply_topic,
)
from rockhopper.protocol.subscription import Subscription

_LISTS_WITHOUT_MAX = 6
# Characters that no topic name has; a text with one of them is a regular expression.
_SIGNS = frozenset(".*+?[](){}^$\\")


@dataclass(frozen=True)
class TopicPattern:
    """A regular expression that matches whole topic names, and the filter for those topics."""

    expression: re.Pattern[str]
    wanted: str | Sql | None

    def subscription(self, topic: str, version: int) -> Subscription:
        """Return the subscription to a matching topic."""
        return make_subscription(topic, self.wanted, version)


def is_pattern(topic: str | re.Pattern[str]) -> bool:
    """Whether the application gave a pattern instead of a topic name."""
    return isinstance(topic, re.Pattern) or bool(_SIGNS.intersection(topic))


def compile_pattern(topic: str | re.Pattern[str]) -> re.Pattern[str]:
    """Return the compiled regular expression of a pattern. Raises ValueError if it is invalid."""
    if isinstance(topic, re.Pattern):
        return topic
    if re.search(r"(^|[^.)\]}\\])\*", topic):
        written = re.sub(r"(?<![.)])[*]", ".*", topic)
        raise ValueError(
            f"the pattern {topic!r} has a * that repeats a single character: topic patterns are "
            f"regular expressions, so write {written!r}"
        )
    try:
        return re.compile(topic)
    except re.error as error:
        raise ValueError(f"the pattern {topic!r} is not a regular expression: {error}") from error


class TopicFinder:
    """Finds the matching topics and adds them to the subscriptions of a consumer."""

    def __init__(
        self,
        session: Session,
        patterns: Iterable[TopicPattern],
        subscriptions: dict[str, Subscription],
        version: int,
    ) -> None:
        self._session = session
        self._patterns = tuple(patterns)
        self.found = subscriptions
        self._version = version
        self._missed: dict[str, int] = {}
        """For each topic found, the number of consecutive lists that did not contain it."""

    async def look(self) -> bool:
        """Query the name server and return whether the topics have changed. Raises ClientError."""
        names = set(await self._names(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
        if not any(self._match(name) for name in names - self._missed.keys()):
            return self._forget(names)
        # The list also contains topics named after brokers and clusters.
        names -= {
            each
            for name in await self._names(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
            for each in (name, reply_topic(name))
        }
        added = False
        for name in sorted(names - self.found.keys()):
            pattern = self._match(name)
            if pattern is not None:
                self.found[name] = pattern.subscription(name, self._version)
                self._missed[name] = 0
                added = True
        return self._forget(names) or added

    def _match(self, name: str) -> TopicPattern | None:
        if is_system_topic(name) or is_retry_topic(name) or is_dlq_topic(name):
            return None
        for pattern in self._patterns:
            if pattern.expression.fullmatch(name):
                return pattern
        return None

    def _forget(self, names: set[str]) -> bool:
        gone = False
        for name, missed in list(self._missed.items()):
            self._missed[name] = 0 if name in names else missed + 1
            if self._missed[name] >= _LISTS_WITHOUT_MAX:
                del self._missed[name], self.found[name]
                self._session.routes.forget(name)
                gone = True
        return gone

    async def _names(self, code: RequestCode) -> list[str]:
        answer = await self._session.name_services.ask(code)
        address = str(self._session.name_services)
        if answer.code != ResponseCode.SUCCESS:
            raise self._session.refusal(address, int(code), answer)
        try:
            return TopicList.decode(answer.body).topic_list
        except ProtocolError as error:
            raise MalformedAnswerError(
                f"{address} sent an invalid list of topics ({error})", address=address
            ) from error
