"""Problems of a replica set that need an operator.

They are logged when they begin and when they end.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import structlog

from rockhopper.broker.replication.election.machine import Machine
from rockhopper.broker.replication.election.replica_set import (
    STATE_WRITER,
    Replica,
    SetState,
    SetView,
)
from rockhopper.broker.replication.engines.engine import ENDED_AFTER_MS
from rockhopper.broker.replication.shipping.engine_health import EngineHealth

log = structlog.get_logger("broker.ha")

PATIENCE_MS = 60_000
RETENTION_SHARE_MAX = 0.8
LAG_BYTES_MIN = 64 << 20
PUT_BACK_PATIENCE_MS = 5000
GONE_PATIENCE_MS = 5000
CLOCKS_PATIENCE_MS = 5000
(
    DIVERGED,
    SECOND,
    STOPPED,
    DISK,
    PUT_BACK,
    UNCLEAN,
    GONE,
    OLD,
    BELOW,
    FLOOR,
    ENGINE,
    UNWRITABLE,
    RETENTION,
    SETTINGS,
    CLOCKS,
) = REASONS = (
    "diverged",
    "second-process",
    "stopped",
    "disk-fails",
    "engine-put-back",
    "unclean",
    "stores-gone",
    "release-too-old",
    "below-the-floor",
    "at-the-floor",
    "engine-away",
    "engine-read-only",
    "falls-out-of-retention",
    "settings-differ",
    "clocks-differ",
)
_PATIENCE_MS = {
    FLOOR: PATIENCE_MS,
    PUT_BACK: PUT_BACK_PATIENCE_MS,
    SECOND: ENDED_AFTER_MS,
    GONE: GONE_PATIENCE_MS,
    CLOCKS: CLOCKS_PATIENCE_MS,
}


_TOO_OLD = (
    f"a later release changed this set's state and requires version {{}} from every replica that "
    f"changes it; this one has {STATE_WRITER}. This replica follows, but cannot be elected: "
    "upgrade it"
)


class _Losing(NamedTuple):
    """A follower that is far behind, and whether its lag did not shrink in the last minute."""

    since_ms: int
    lag_bytes: int
    is_losing: bool


class Alarms:
    """The alarms of one replica; call ``look`` about once a second."""

    def __init__(self, now_ms: Callable[[], int], replica_count: int = 0) -> None:
        """*replica_count* is the expected number of replicas; 0: as many as were seen."""
        self._now_ms = now_ms
        self._replica_count = replica_count
        self._since_ms: dict[str, int] = {}
        self._far: dict[Replica, _Losing] = {}
        self.shown: dict[str, str] = {}
        """The text of each active alarm by reason, with its remedy."""

    def look(self, machine: Machine, own: Mapping[str, str], health: EngineHealth) -> None:
        """Update the alarms.

        *own* contains, by reason, the problems that this replica found in itself.
        """
        found = {**own, **dict(self._find_alarms(machine, health))}
        now_ms = self._now_ms()
        for reason in REASONS:
            text = found.get(reason)
            if text is None:
                self._since_ms.pop(reason, None)
                if self.shown.pop(reason, None):
                    log.info("alarm cleared", alarm=reason)
                continue
            since_ms = self._since_ms.setdefault(reason, now_ms)
            is_due = now_ms - since_ms >= _PATIENCE_MS.get(reason, 0)
            if is_due and reason not in self.shown:
                log.critical("the replica set needs an operator", alarm=reason, reason=text)
            if is_due:
                self.shown[reason] = text

    def _find_alarms(self, machine: Machine, health: EngineHealth) -> Iterator[tuple[str, str]]:
        view = machine.view
        state = view.state if view else None
        if health.silent_ms >= PATIENCE_MS:
            yield (
                ENGINE,
                f"the engine has not answered for {health.silent_ms // 1000} s, so no replica "
                "can be elected; check haEngine and the engine's own log",
            )
        if why := health.why_unwritable:
            yield (
                UNWRITABLE,
                f"the engine answers reads but refuses writes ({why}): no replica can be "
                "elected, and the in-sync set cannot change",
            )
        if view is None or state is None:
            return
        if machine.is_engine_behind:
            yield (
                PUT_BACK,
                f"the state of the set in the engine, of epoch {state.epoch}, is older than the "
                "state seen before: the engine was restored from a backup. By this state, a "
                "replica that has been out of sync since may lead. Stop the current master, and "
                "let the replica with the largest LOG END in 'rockhopper ha status' lead: "
                "rockhopper ha elect --unclean. If the current master has all of that log, and "
                "no other replica raises this alarm, the engine was switched back and forth: "
                "seed this replica from the master, rockhopper ha reseed",
            )
        texts = {
            SETTINGS: _differing(machine, view),
            UNCLEAN: _unclean(machine, view, state),
            GONE: _describe_gone(machine, view, state),
            OLD: "" if state.is_writable else _TOO_OLD.format(state.writer),
        }
        yield from ((reason, text) for reason, text in texts.items() if text)
        if machine.term is not None:
            has_floor = machine.term.has_floor(self._now_ms())
            if not has_floor and machine.term.is_young(self._now_ms()):
                return
            if text := self._describe_floor(machine, view, state, has_floor=has_floor):
                yield FLOOR if has_floor else BELOW, text
            if text := self._outrun(machine):
                yield RETENTION, text

    def _describe_floor(
        self, machine: Machine, view: SetView, state: SetState, *, has_floor: bool
    ) -> str:
        seen = {replica.id for replica in state.in_sync} | set(view.members)
        if machine.term is not None:
            seen |= {replica.id for replica in machine.term.followers}
        count, in_sync = max(self._replica_count, len(seen)), len(state.in_sync)
        if has_floor and (in_sync > state.min_in_sync or in_sync >= count):
            return ""
        meanwhile = (
            "nothing is stored"
            if not has_floor
            else "if one more is lost, nothing is stored"
            if in_sync > 1
            else "if this replica is lost now, messages stored from now on are lost with it"
        )
        but = (
            ", but are not all connected," if not has_floor and in_sync >= state.min_in_sync else ""
        )
        return (
            f"{in_sync} of {count} replicas are in sync{but} and "
            f"minInSyncReplicas={state.min_in_sync}: {meanwhile}; find out why the other "
            "replicas are away"
        )

    def _outrun(self, machine: Machine) -> str:
        mine, now_ms, texts = machine.replica_state, self._now_ms(), []
        kept_bytes = mine.log_end - mine.log_start
        followers = machine.term.followers if machine.term else {}
        lags = {
            replica: mine.log_end - max(follower.acknowledgeable_offset, 0)
            for replica, follower in followers.items()
        }
        limit_bytes = max(kept_bytes * RETENTION_SHARE_MAX, LAG_BYTES_MIN)
        far, self._far = self._far, {}
        for replica, lag_bytes in sorted(lags.items()):
            if lag_bytes <= limit_bytes:
                continue
            found = far.get(replica, _Losing(now_ms, lag_bytes, is_losing=False))
            if now_ms - found.since_ms >= PATIENCE_MS:
                found = _Losing(now_ms, lag_bytes, lag_bytes >= found.lag_bytes)
            self._far[replica] = found
            if found.is_losing:
                texts.append(
                    f"replica {replica.id} is {lag_bytes} bytes behind, and {kept_bytes} bytes "
                    "are kept: soon it must be seeded again; keep more log, or find out what "
                    "slows it down"
                )
        return "; ".join(texts)


def _unclean(machine: Machine, view: SetView, state: SetState) -> str:
    """Describe the problem if all in-sync replicas may have lost messages, so none may lead."""
    mine = machine.replica_state
    if mine.is_clean or mine.me not in state.in_sync or view.leader or machine.term:
        return ""
    others = sorted(replica.id for replica in state.in_sync - {mine.me})
    if any(number in view.members and view.members[number].is_clean for number in others):
        return ""
    away = [number for number in others if number not in view.members]
    if away:
        return (
            f"replica {mine.me.id}'s machine restarted without its unflushed data, and the "
            f"in-sync replicas {_join(away)} are away: start them, because they may have all "
            "acknowledged messages. If you cannot, let this one lead: rockhopper ha elect "
            "--unclean"
        )
    if others:
        return (
            f"the machines of all in-sync replicas, {_join(sorted([mine.me.id, *others]))}, "
            "restarted without their unflushed data: let the replica with the largest LOG END in "
            "'rockhopper ha status' lead: rockhopper ha elect --unclean"
        )
    return (
        f"only replica {mine.me.id} is in sync, and its machine restarted without its unflushed "
        "data: acknowledged messages may be missing. If there is no other copy, let it lead: "
        "rockhopper ha elect --unclean"
    )


def _describe_gone(machine: Machine, view: SetView, state: SetState) -> str:
    """Describe the problem if no in-sync store is present, and one of them never will be."""
    there = {member.replica for member in view.members.values()}
    numbers = sorted(replica.id for replica in state.in_sync)
    gone = [number for number in numbers if number in view.members]
    if machine.term is not None or view.leader or there & state.in_sync or not gone:
        return ""
    if away := [number for number in numbers if number not in view.members]:
        begin = (
            f"the stores of replicas {_join(gone)} are missing, and the in-sync replicas "
            f"{_join(away)} are away: start them with their former stores"
        )
    else:
        begin = (
            f"the stores of all in-sync replicas, {_join(gone)}, are missing: no replica may "
            "lead. Restore one of these stores"
        )
    return (
        f"{begin}. If you cannot, acknowledged messages may be missing: let the replica with the "
        "largest LOG END in 'rockhopper ha status' lead: rockhopper ha elect --unclean"
    )


def _join(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


def _differing(machine: Machine, view: SetView) -> str:
    """List the settings in which other running replicas differ from this one."""
    mine = view.members.get(machine.replica_state.me.id)
    if mine is None:
        return ""
    own = dict(mine.settings)
    texts = [
        f"{key} is {own[key]} at replica {mine.replica.id} and {value} at replica {number}"
        for number, member in sorted(view.members.items())
        for key, value in member.settings
        if own.get(key, value) != value
    ]
    return f"{'; '.join(texts)}: set them to the same value" if texts else ""
