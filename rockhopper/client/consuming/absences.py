"""Which brokers and members are away for a moment, and expected back.

Example: a restarted broker knows no member of the group. The first member that registers again
would see itself alone and take over all queues. As the group had a second member before, the first
one waits up to 5 s for it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from rockhopper.client.network.routing import TopicRoute

# How long to look more often for a broker that has left a route.
_PATIENCE_S = 600.0
# Other clients retry a pull after 3 s.
_RETURN_S = 5.0


class AbsentBrokers:
    """The brokers that have left the route of a topic: they may be restarting."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._present: dict[str, set[str]] = {}
        self._absent_since_s: dict[tuple[str, str], float] = {}

    def __bool__(self) -> bool:
        """Whether any broker is absent."""
        return bool(self._absent_since_s)

    def compare_routes(self, routes: Iterable[TopicRoute]) -> None:
        """Find the brokers that have left *routes*, or are back; forget those away for long."""
        now_s = self._now_s()
        for route in routes:
            present = self._present.setdefault(route.topic, set())
            present |= set(route.brokers)
            for name in list(present):
                if name in route.brokers:
                    self._absent_since_s.pop((route.topic, name), None)
                elif (
                    now_s - self._absent_since_s.setdefault((route.topic, name), now_s)
                    > _PATIENCE_S
                ):
                    present.discard(name)
                    del self._absent_since_s[route.topic, name]


class AwaitedMembers:
    """The members that a group had before one of its brokers restarted."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._members: Mapping[str, Sequence[str]] = {}
        self._until_s = 0.0

    def wait_for(self, members: Mapping[str, Sequence[str]]) -> None:
        """Wait for *members*, by topic; while others are awaited already, longer for those."""
        now_s = self._now_s()
        if now_s >= self._until_s:
            self._members = dict(members)
        self._until_s = now_s + _RETURN_S

    def may_come_back(self, topic: str, members: Iterable[str]) -> bool:
        """Whether a member is missing in *members* that was there before the broker restarted."""
        if self._now_s() >= self._until_s:
            return False
        return not set(self._members.get(topic, ())).issubset(members)
