"""The reasons for which the broker refuses something, without any protocol's codes.

Each is raised where it is decided, with the sentence that the client receives. Each protocol has a
table that maps them to its codes: remoting's is in server/remoting/dispatcher.py.

Refusal                     it cannot be served in the present state
├── IllegalMessage          the message, or a field about it, is invalid
├── InvalidParameter        a request field has an invalid value
├── NoPermission            a topic, a group or the broker does not permit this
├── NotAuthenticated        no known user has sent it
├── TopicNotFound
├── GroupNotFound
├── SubscriptionNotFound    the group has not subscribed to the topic
├── SubscriptionOutdated    the client names a newer subscription than its heartbeats
├── SubscriptionNotParsed   the expression of a request is not a filter
├── FilterNotFound          the expression of a heartbeat is not a filter
├── IllegalOperation        the target does not support this operation (any more)
└── TooManyWait             too many requests wait; a retry may succeed
"""

from enum import IntEnum

_TEXT_LENGTH_MAX = 900


def shorten(text: str) -> str:
    """Return *text* as it is sent: without its middle if a client's value made it too long."""
    if len(text) <= _TEXT_LENGTH_MAX:
        return text
    half = _TEXT_LENGTH_MAX // 2
    return f"{text[:half]}…{text[-half:]}"


class Refusal(Exception):
    """A request is refused; the text says why, for the client's owner."""


class IllegalMessage(Refusal):
    """A message that no user may store."""


class InvalidParameter(Refusal):
    """A value that no request may have."""


class Forbidden(IntEnum):
    """What forbids a pull; RocketMQ's ForbiddenType."""

    BROKER = 1
    GROUP = 2
    TOPIC = 3
    BROADCASTING = 4
    SUBSCRIPTION = 5


class NoPermission(Refusal):
    """A topic, a group or the whole broker does not permit this."""

    def __init__(self, text: str, by: Forbidden | None = None) -> None:
        super().__init__(text)
        self.by = by


class NotAuthenticated(Refusal):
    """A request is not signed, or not by the user whom it names."""


class TopicNotFound(Refusal):
    """The topic does not exist, and is not created on first use."""


class GroupNotFound(Refusal):
    """The group does not exist, and is not created on first use."""


class SubscriptionNotFound(Refusal):
    """A group's heartbeats have not named the topic, or there were none."""


class SubscriptionOutdated(Refusal):
    """A client names a newer subscription than its heartbeats have."""


class SubscriptionNotParsed(Refusal):
    """The filter expression of a request does not parse."""


class FilterNotFound(Refusal):
    """The filter expression of a heartbeat does not compile."""


class IllegalOperation(Refusal):
    """The target of a request is not of the expected kind, or no longer."""


class TooManyWait(Refusal):
    """As many requests as allowed are waiting already."""
