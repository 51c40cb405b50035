"""ChangeNotices: at once, and never more than one notice can say."""

from collections.abc import Callable

from rockhopper.broker.kernel.members.change_notices import (
    PAUSE_PER_MEMBER_S,
    PAUSE_S,
    ChangeNotices,
)


class Told:
    """Remembers which groups were told, and when."""

    def __init__(self, loop: "Loop | None" = None, members: int = 3) -> None:
        self._loop = loop
        self._members = members
        self.groups: list[str] = []
        self.times_s: list[float] = []

    def __call__(self, group: str) -> int:
        self.groups.append(group)
        if self._loop is not None:
            self.times_s.append(self._loop.now_s)
        return self._members


class Loop:
    """A loop whose time passes when a test says so."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.calls: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay_s: float, action: Callable[[], None]) -> None:
        self.calls.append((self.now_s + delay_s, action))

    def run_until(self, now_s: float) -> None:
        self.now_s = now_s
        due = [action for due_s, action in self.calls if due_s <= now_s + 1e-9]
        self.calls = [call for call in self.calls if call[0] > now_s + 1e-9]
        for action in due:
            action()


def test_changes_of_one_turn_share_a_notice_that_goes_with_it() -> None:
    loop = Loop()
    told = Told(loop)
    notices = ChangeNotices(told, call_later=loop.call_later, clock=lambda: loop.now_s)
    for _ in range(50):
        notices.changed("billing")
    notices.changed("audit")
    loop.run_until(100.0)
    assert told.groups == ["billing", "audit"]


def test_a_change_after_a_notice_waits_for_the_pause_and_no_longer() -> None:
    loop = Loop()
    told = Told(loop, members=1000)
    notices = ChangeNotices(told, call_later=loop.call_later, clock=lambda: loop.now_s)
    notices.changed("billing")
    loop.run_until(100.0)
    notices.changed("billing")
    notices.changed("billing")
    loop.run_until(100.001)
    assert told.times_s == [100.0]
    loop.run_until(100.0 + PAUSE_S + 1000 * PAUSE_PER_MEMBER_S)
    assert len(told.times_s) == 2
    loop.run_until(200.0)
    assert len(told.times_s) == 2


def test_without_a_loop_notices_leave_in_the_call() -> None:
    told = Told()
    ChangeNotices(told).changed("billing")
    assert told.groups == ["billing"]
