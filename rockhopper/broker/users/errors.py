"""Why the broker refuses something, in its own words: no protocol's codes.

Each is raised where it is decided, with the sentence that the asking client reads. What a protocol
makes of it is that protocol's table: remoting's stands in server/remoting/dispatcher.py.

Refusal                     it cannot be served as things are
├── IllegalMessage          the message, or what is said of it, is not as it must be
├── InvalidParameter        a value of the request is none that can be
├── NoPermission            a topic, a group or the broker is closed for this
├── NotAuthenticated        nobody is known to have sent it
├── TopicNotFound
├── GroupNotFound
├── SubscriptionNotFound    the group has not said that it wants the topic
├── SubscriptionOutdated    the client is ahead of what its heartbeats have said
├── SubscriptionNotParsed   the expression of a request is no filter
├── FilterNotFound          the expression of a heartbeat is no filter
├── IllegalOperation        what it is asked of is no longer, or was never, such a thing
└── TooManyWait             later, perhaps
"""

from enum import IntEnum

_TEXT_LENGTH_MAX = 900


def elided(text: str) -> str:
    """*text* as it is sent: without its middle if a value in it, the client's own, made it long."""
    if len(text) <= _TEXT_LENGTH_MAX:
        return text
    half = _TEXT_LENGTH_MAX // 2
    return f"{text[:half]}…{text[-half:]}"


class Refusal(Exception):
    """What was asked is refused; the text says why, for the client's owner."""


class IllegalMessage(Refusal):
    """A message that is not stored, whoever sends it."""


class InvalidParameter(Refusal):
    """A value that no request may have."""


class Forbidden(IntEnum):
    """Who forbids a pull; RocketMQ's ForbiddenType."""

    BROKER = 1
    GROUP = 2
    TOPIC = 3
    BROADCASTING = 4
    SUBSCRIPTION = 5


class NoPermission(Refusal):
    """A topic, a group or the whole broker is closed for this."""

    def __init__(self, text: str, by: Forbidden | None = None) -> None:
        super().__init__(text)
        self.by = by


class NotAuthenticated(Refusal):
    """A request is not signed, or not by the user whom it names."""


class TopicNotFound(Refusal):
    """There is no such topic, and it is not made on first use."""


class GroupNotFound(Refusal):
    """There is no such group, and it is not made on first use."""


class SubscriptionNotFound(Refusal):
    """A group's heartbeats have not named the topic, or there were none."""


class SubscriptionOutdated(Refusal):
    """A client names a newer subscription than its heartbeats have."""


class SubscriptionNotParsed(Refusal):
    """The filter expression of a request does not parse."""


class FilterNotFound(Refusal):
    """The filter expression of a heartbeat does not compile."""


class IllegalOperation(Refusal):
    """What a request names is not what it takes it for, or not any more."""


class TooManyWait(Refusal):
    """As many requests as may wait do so already."""
