"""Notifies consumer groups of changed members (NOTIFY_CONSUMER_IDS_CHANGED, 40).

A notice leaves at once, but several changes share one where possible. All changes in one iteration
of the loop share a notice. After a notice the group pauses for 2 ms plus 20 µs for each member. So
1,000 members that join one after another cause some tens of rounds, not 500,000 frames.
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

    *send* notifies a group and returns the number of notified members. *call_later* is the event
    loop's; without it, notices leave in the call that reports the change.
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
        """Notify *group* soon, unless a notice is already pending."""
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
