"""SetWatch: the counters and alarms of a set in one replica."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from rockhopper.broker.kernel.families import Family
from rockhopper.broker.replication.election.campaigning import CAUSES
from rockhopper.broker.replication.election.machine import Machine
from rockhopper.broker.replication.roles import set_metrics
from rockhopper.broker.replication.roles.alarms import Alarms
from rockhopper.broker.replication.roles.lags import Lags
from rockhopper.broker.replication.shipping.engine_health import EngineHealth

LOOK_INTERVAL_MS = 1000


class SetWatch:
    """The counters since the start of the process, and the alarms; belongs to the event loop."""

    def __init__(self, now_ms: Callable[[], int], replica_count: int = 0) -> None:
        """*replica_count* is haReplicas, the expected number of replicas; 0 if not set."""
        self.alarms = Alarms(now_ms, replica_count)
        self.elections: Counter[str] = Counter()
        """The elections that this replica won, by cause."""
        self.counts: Counter[str] = Counter()
        self._lags = Lags(now_ms)
        self._now_ms = now_ms
        self._look_at_ms = 0

    def elected(self, machine: Machine) -> None:
        """Count an election, by the reason in the set's state."""
        state = machine.view.state if machine.view else None
        why = state.history[-1].why if state and state.history else ""
        self.elections[CAUSES.get(why, "other")] += 1

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

    def look(self, machine: Machine, own: Mapping[str, str], health: EngineHealth) -> None:
        """Update alarms and lags once a second, however often this is called."""
        if self._now_ms() < self._look_at_ms:
            return
        self._look_at_ms = self._now_ms() + LOOK_INTERVAL_MS
        self._lags.sample(machine.replica_state.log_end)
        self.alarms.look(machine, own, health)

    def families(
        self,
        machine: Machine,
        health: EngineHealth,
        replicated_offset: int,
        clock_ahead_ms: int | None = None,
    ) -> Iterator[Family]:
        """Return all metrics of the set."""
        yield from set_metrics.of_set(machine, replicated_offset)
        yield from set_metrics.of_followers(machine, self._lags.seconds)
        yield from set_metrics.of_engine(health)
        yield set_metrics.of_clock(clock_ahead_ms)
        yield from set_metrics.of_past(self.elections, self.counts)
        yield set_metrics.of_alarms(self.alarms.shown)
