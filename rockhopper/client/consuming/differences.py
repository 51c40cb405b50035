"""Logs when members of a group have different subscriptions: once for each state."""

import logging
from collections.abc import Collection

log = logging.getLogger(__name__)

_NAMED_MAX = 5


class Differences:
    """The differences that one consumer has found in a round, between `clear` and `tell`."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._told: tuple[tuple[str, ...], ...] = ()
        self.left: set[str] = set()
        """Topics that only other members read, because they subscribe to more of the messages."""
        self.read: set[str] = set()
        """Topics that this member reads and some other members do not."""
        self.unread: set[str] = set()
        """Topics without a reader: no member subscribes to all messages that the members want."""
        self.at_risk: set[str] = set()
        """Topics shared by RocketMQ's rule among members with different filters."""

    def clear(self) -> None:
        """Clear the findings of the last round."""
        for found in self._sets():
            found.clear()

    def record(self, topic: str, readers: Collection[str], client_id: str) -> None:
        """Record the readers of a topic that not all members read."""
        if not readers:
            self.unread.add(topic)
        elif client_id in readers:
            self.read.add(topic)
        else:
            self.left.add(topic)

    def tell(self) -> None:
        """Log the findings, unless they equal those of the last round."""
        found = tuple(tuple(sorted(each)) for each in self._sets())
        if found == self._told:
            return
        before, self._told = self._told, found
        left, read, unread, at_risk = found
        if not any(found):
            if any(before):
                log.info("members of group %r have the same subscriptions again", self._group)
            return
        if left:
            self._warn(
                f"this member reads nothing of {_join(left)}, because other members subscribe "
                "to more of it"
            )
        if read:
            self._warn(
                f"{_join(read)} is left to members that subscribe to all of it, as this one does"
            )
        if unread:
            self._warn(
                f"no member reads {_join(unread)}, because none subscribes to all that the "
                "others do: stop the members of one version"
            )
        if at_risk:
            self._warn(
                f"{_join(at_risk)} is shared with foreign clients or brokers, so messages may "
                "be skipped, or some queues have no reader"
            )

    def _warn(self, what: str) -> None:
        text = "members of group %r have different subscriptions: %s; see rockhopper group show %s"
        log.warning(text, self._group, what, self._group)

    def _sets(self) -> tuple[set[str], ...]:
        return self.left, self.read, self.unread, self.at_risk


def _join(topics: Collection[str]) -> str:
    names = list(topics)[:_NAMED_MAX]
    more = len(topics) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
