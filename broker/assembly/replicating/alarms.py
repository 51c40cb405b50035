"""What a person must see of a replica set: said once when it begins, and when it is over."""

from collections.abc import Callable, Iterator

import structlog

from rockhopper.broker.ha.machine import Machine
from rockhopper.broker.ha.replica_set import SetState

log = structlog.get_logger("broker.ha")

PATIENCE_MS = 60_000
RETENTION_SHARE_MAX = 0.8
LAG_BYTES_MIN = 64 << 20
DIVERGED, UNCLEAN, FLOOR, ENGINE, RETENTION = (
    "diverged",
    "unclean",
    "at-the-floor",
    "engine-away",
    "falls-out-of-retention",
)
REASONS = (DIVERGED, UNCLEAN, FLOOR, ENGINE, RETENTION)
_AT_ONCE = frozenset({DIVERGED, UNCLEAN, RETENTION})


class Alarms:
    """Of one replica; ``look`` is to be called about once a second."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._since_ms: dict[str, int] = {}
        self.shown: dict[str, str] = {}
        """By reason: the sentence, with its remedy."""

    def look(self, machine: Machine, fence: str, engine_silent_ms: int) -> None:
        """Take note of how things are; *fence* is why this replica takes part no more, or blank."""
        found = dict(_found(machine, fence, engine_silent_ms))
        now_ms = self._now_ms()
        for reason in REASONS:
            text = found.get(reason)
            if text is None:
                self._since_ms.pop(reason, None)
                if self.shown.pop(reason, None):
                    log.info("an alarm is over", alarm=reason)
                continue
            since_ms = self._since_ms.setdefault(reason, now_ms)
            is_due = reason in _AT_ONCE or now_ms - since_ms >= PATIENCE_MS
            if is_due and reason not in self.shown:
                log.critical("a person must look at this set", alarm=reason, reason=text)
            if is_due:
                self.shown[reason] = text


def _found(machine: Machine, fence: str, engine_silent_ms: int) -> Iterator[tuple[str, str]]:
    state = machine.view.state if machine.view else None
    if fence:
        yield DIVERGED, fence
    if engine_silent_ms >= PATIENCE_MS:
        yield (
            ENGINE,
            f"the engine has not answered for {engine_silent_ms // 1000} s: nobody could be "
            "elected now; see haEngine and the engine's own log",
        )
    if state is not None:
        yield from _of_set(machine, state)


def _of_set(machine: Machine, state: SetState) -> Iterator[tuple[str, str]]:
    mine = machine.standing
    if not mine.is_clean and state.in_sync == {mine.me} and machine.term is None:
        yield (
            UNCLEAN,
            f"replica {mine.me.id} alone is counted in sync, and its machine lost its memory: what "
            "was acknowledged may be missing. If no other copy can be had, let it lead: rockhopper "
            "ha elect --unclean",
        )
    term = machine.term
    if term is None:
        return
    if len(state.in_sync) <= state.min_in_sync and len(term.followers) + 1 > len(state.in_sync):
        yield (
            FLOOR,
            f"{len(state.in_sync)} replicas are in sync and minInSyncReplicas={state.min_in_sync}: "
            "if one more is lost, nothing is stored; see why the others are away",
        )
    kept_bytes = mine.log_end - mine.log_start
    for replica, follower in sorted(term.followers.items()):
        lag_bytes = mine.log_end - max(follower.held_offset, 0)
        if lag_bytes > max(kept_bytes * RETENTION_SHARE_MAX, LAG_BYTES_MIN):
            yield (
                RETENTION,
                f"replica {replica.id} is {lag_bytes} bytes behind, of {kept_bytes} that are kept: "
                "soon it has to be seeded anew",
            )
