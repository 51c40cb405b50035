"""SetWatch: the counters, problems and alarms of a set in one replica."""

from collections import Counter
from collections.abc import Callable, Iterator

import structlog

from rockhopper.broker.kernel.families import Family
from rockhopper.broker.replication.election.campaigning import CAUSES
from rockhopper.broker.replication.election.machine import Machine
from rockhopper.broker.replication.roles import set_metrics
from rockhopper.broker.replication.roles.alarms import (
    CLOCKS,
    DISK,
    DIVERGED,
    GONE,
    SECOND,
    STOPPED,
    Alarms,
)
from rockhopper.broker.replication.roles.lags import Lags
from rockhopper.broker.replication.shipping.replica import RunningReplica

log = structlog.get_logger("broker.ha")

LOOK_INTERVAL_MS = 1000


def floor_in_force(machine: Machine) -> int:
    """Return the minInSyncReplicas by which the master decides; 0 if there is none yet."""
    state = machine.term.state if machine.term else machine.view and machine.view.state
    return state.min_in_sync if state else 0


class SetWatch:
    """The counters since the start of the process, and the alarms; belongs to the event loop."""

    def __init__(
        self, now_ms: Callable[[], int], replica_count: int = 0, floor_setting: int = 0
    ) -> None:
        """*replica_count* is haReplicas, the expected number of replicas; 0 if not set."""
        self.alarms = Alarms(now_ms, replica_count)
        self.elections: Counter[str] = Counter()
        """The elections that this replica won, by cause."""
        self.counts: Counter[str] = Counter()
        self._lags = Lags(now_ms)
        self._now_ms = now_ms
        self._look_at_ms = 0
        self._fence = ""
        """Why this replica takes no part until an operator intervenes; blank if it does."""
        self._stopped = ""
        """Why a part of replication has stopped; blank if none has."""
        self._floor_setting = floor_setting
        self._floor = 0
        """The last minInSyncReplicas in force that was logged."""

    def elected(self, machine: Machine) -> None:
        """Count an election, by the reason in the set's state."""
        state = machine.view.state if machine.view else None
        self.elections[CAUSES.get(state.why_elected if state else "", "other")] += 1

    def resigned(self) -> None:
        """Count the end of a term."""
        self.counts["resignations"] += 1

    def cut(self, size_bytes: int) -> None:
        """Count a truncation of the log."""
        self.counts["cuts"] += 1
        self.counts["cut_bytes"] += max(size_bytes, 0)

    def seeded(self) -> None:
        """Count a replacement of the log by the master's."""
        self.counts["seeds"] += 1

    def require_operator(self, why: str) -> None:
        """Show that this replica takes no part until an operator intervenes."""
        self._fence = why

    def operator_decided(self) -> None:
        """Clear what required an operator."""
        self._fence = ""

    def replication_stopped(self, why: str) -> None:
        """Show that a part of replication has stopped, until the process restarts."""
        self._stopped = why

    def why_out(self, replica: RunningReplica | None) -> str:
        """Return why this replica takes no part in its set; blank if it does."""
        diverged, second = self._fence, ""
        if replica is not None:
            second = replica.second_because
            if replica.has_started:
                diverged = self._describe_divergence(replica.machine)
        return diverged or self._stopped or second or self.alarms.shown.get(GONE, "")

    def look(self, replica: RunningReplica) -> None:
        """Log a changed floor; update alarms and lags once a second, however often this is called.

        The floor is the minInSyncReplicas in force.
        """
        machine = replica.machine
        self._look_at_floor(floor_in_force(machine))
        if self._now_ms() < self._look_at_ms:
            return
        self._look_at_ms = self._now_ms() + LOOK_INTERVAL_MS
        self._lags.sample(machine.replica_state.log_end)
        self.alarms.look(machine, self._find_problems(replica), replica.engine_health)

    def _look_at_floor(self, floor: int) -> None:
        if floor and floor != self._floor:
            self._floor = floor
            log.info("effective minInSyncReplicas", floor=floor, setting=self._floor_setting)

    def _find_problems(self, replica: RunningReplica) -> dict[str, str]:
        """Return, by reason, the problems that this replica finds in itself."""
        problem = replica.disk_problem
        disk = (
            f"this replica cannot save its state ({problem}): it retries, and resumes by itself "
            "when the disk has room and works"
        )
        found = {
            DIVERGED: self._describe_divergence(replica.machine),
            SECOND: replica.second_because,
            STOPPED: self._stopped,
            DISK: disk if problem else "",
            CLOCKS: replica.clock.problem,
        }
        return {reason: text for reason, text in found.items() if text}

    def _describe_divergence(self, machine: Machine) -> str:
        """Return why this replica's log contradicts its set's; blank if it does not."""
        if not machine.replica_state.has_left or machine.view is None:
            return self._fence
        if machine.view.state is None:
            return ""
        return (
            "this replica's store was served on its own (--leave-set) since it was in the set, "
            "and the set lacks the messages that it took. Nothing was cut. Either seed it from "
            "the set (rockhopper ha reseed), or, to keep its log, let it lead (rockhopper ha "
            "elect --unclean) and seed the others"
        )

    def families(self, replica: RunningReplica, replicated_offset: int) -> Iterator[Family]:
        """Return all metrics of the set."""
        machine = replica.machine
        yield from set_metrics.of_set(machine, replicated_offset)
        yield from set_metrics.of_followers(machine, self._lags.seconds)
        yield from set_metrics.of_engine(replica.engine_health)
        yield set_metrics.of_clock(replica.clock.ahead_ms)
        yield from set_metrics.of_past(self.elections, self.counts)
        yield set_metrics.of_alarms(self.alarms.shown)
