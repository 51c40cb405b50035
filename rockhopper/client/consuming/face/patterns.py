"""Topics by pattern: which of those that exist are consumed, found again and again.

A topic that the name service has not named for a minute is let go of: it was deleted, or its broker
is away for long, and it is found again when that is back.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from rockhopper.client.errors import MalformedAnswerError
from rockhopper.client.filters import Sql, subscription_to
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
# Characters that no topic has, and that say that a text is a regular expression.
_SIGNS = frozenset(".*+?[](){}^$\\")


@dataclass(frozen=True)
class TopicPattern:
    """A regular expression that whole names of topics match, and what is wanted of them."""

    expression: re.Pattern[str]
    wanted: str | Sql | None

    def subscription(self, topic: str, version: int) -> Subscription:
        """What is wanted of a topic that matches."""
        return subscription_to(topic, self.wanted, version)


def is_pattern(topic: str | re.Pattern[str]) -> bool:
    """Whether what was given for a topic is a pattern."""
    return isinstance(topic, re.Pattern) or bool(_SIGNS.intersection(topic))


def compiled(topic: str | re.Pattern[str]) -> re.Pattern[str]:
    """The regular expression of a pattern. Raises ValueError where it is none."""
    if isinstance(topic, re.Pattern):
        return topic
    if re.search(r"(^|[^.)\]}\\])\*", topic):
        written = re.sub(r"(?<![.)])[*]", ".*", topic)
        raise ValueError(
            f"the pattern {topic!r} has a * that repeats a single character: patterns of topics "
            f"are regular expressions, so write {written!r}"
        )
    try:
        return re.compile(topic)
    except re.error as error:
        raise ValueError(f"the pattern {topic!r} is no regular expression: {error}") from error


class TopicFinder:
    """Finds the topics that match, and notes them in the subscriptions of a consumer."""

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
        """The topics found, and how many lists in a row have not named them."""

    async def look(self) -> bool:
        """Ask the name service, and return whether something has changed. Raises ClientError."""
        names = set(await self._names(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
        if not any(self._match(name) for name in names - self._missed.keys()):
            return self._forget(names)
        # Brokers and clusters are topics too, by their names.
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
                f"{address} sent a list of topics that cannot be read ({error})", address=address
            ) from error
