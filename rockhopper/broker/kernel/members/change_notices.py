"""When a consumer group is told that its members have changed (NOTIFY_CONSUMER_IDS_CHANGED, 40).

At once, but never twice for what one notice can say. All changes of one turn of the loop share a
notice, and after one the group has a pause of 2 ms and 20 µs for each member: 1,000 members that
join one after another cost some tens of rounds, not 500,000 frames.
"""

import time
from collections.abc import Callable

PAUSE_S = 0.002
PAUSE_PER_MEMBER_S = 0.000_02
# Groups whose last notice is remembered; older ones are past their pause.
REMEMBERED_MAX = 1024

CallLater = Callable[[float, Callable[[], None]], object]


class ChangeNotices:
    """Paces the notices of all groups.

    *send* tells a group and returns how many members it told. Without *call_later*, which is the
    event loop's, notices leave in the call that brought the change.
    """

    def __init__(
        self,
        send: Callable[[str], int],
        *,
        call_later: CallLater | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._send = send
        self._call_later = call_later
        self._clock = clock
        self._pending: set[str] = set()
        self._pause_ends_s: dict[str, float] = {}

    def changed(self, group: str) -> None:
        """Tell *group* soon, unless that is about to happen."""
        if self._call_later is None:
            self._send(group)
            return
        if group in self._pending:
            return
        self._pending.add(group)
        pause_s = self._pause_ends_s.get(group, 0.0) - self._clock()
        self._call_later(max(pause_s, 0.0), lambda: self._tell(group))

    def _tell(self, group: str) -> None:
        self._pending.discard(group)
        told = self._send(group)
        if len(self._pause_ends_s) >= REMEMBERED_MAX:
            self._pause_ends_s.clear()
        self._pause_ends_s[group] = self._clock() + PAUSE_S + told * PAUSE_PER_MEMBER_S
