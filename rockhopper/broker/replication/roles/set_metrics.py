"""The metrics of a replica, in any role."""

from collections.abc import Callable, Iterator, Mapping

from rockhopper.broker.kernel.families import Family
from rockhopper.broker.replication.election.campaigning import CAUSES
from rockhopper.broker.replication.election.machine import Machine, ReplicaRole
from rockhopper.broker.replication.roles.alarms import REASONS
from rockhopper.broker.replication.shipping.engine_health import EngineHealth

_PAST = {
    "resignations": "Times that this replica stopped leading",
    "cuts": "Times that the end of this replica's log was cut",
    "cut_bytes": "Bytes cut from the log: none were acknowledged",
    "seeds": "Times that this replica's log was replaced by its master's",
}


def of_set(machine: Machine, replicated_offset: int) -> Iterator[Family]:
    """Return the metrics of the leader and the in-sync set, as this replica knows them."""
    state = machine.view.state if machine.view else None
    replica_state = machine.replica_state
    role = _gauge("role", "1 for the current role of this replica", "role")
    for each in ReplicaRole:
        role.add_sample(each is machine.role, each.value)
    yield role
    yield _gauge("epoch", "Epoch of the master that this replica knows").add_sample(
        state.epoch if state else 0
    )
    yield _gauge("in_sync", "Replicas in sync: they have every acknowledged message").add_sample(
        len(state.in_sync) if state else 0
    )
    yield _gauge("in_sync_floor", "minInSyncReplicas").add_sample(state.min_in_sync if state else 0)
    yield _gauge("is_in_sync", "1 when this replica is in sync").add_sample(
        bool(state and replica_state.me in state.in_sync)
    )
    yield _gauge("log_start_bytes", "Start of the log; older messages were deleted").add_sample(
        replica_state.log_start
    )
    yield _gauge("log_end_bytes", "End of the log").add_sample(replica_state.log_end)
    yield _gauge(
        "confirmed_bytes", "High watermark: all in-sync replicas have the log up to here"
    ).add_sample(replicated_offset)


def of_followers(machine: Machine, seconds: Callable[[int], float]) -> Iterator[Family]:
    """Return the lag of each connected follower; *seconds* converts the end of its log."""
    term, end = machine.term, machine.replica_state.log_end
    lag_bytes = _gauge(
        "lag_bytes", "How many bytes a follower is behind, as its master sees it", "replica"
    )
    lag_seconds = _gauge("lag_seconds", "How long a follower is behind, to a second", "replica")
    for replica, follower in sorted(term.followers.items()) if term else ():
        if follower.link is not None:
            held = max(follower.acknowledgeable_offset, 0)
            lag_bytes.add_sample(max(end - held, 0), str(replica.id))
            lag_seconds.add_sample(seconds(held) if held < end else 0, str(replica.id))
    yield lag_bytes
    yield lag_seconds


def of_engine(health: EngineHealth) -> Iterator[Family]:
    """Return the metrics of the engine's answers."""
    yield _gauge("engine_silent_seconds", "Time since the last answer of the engine").add_sample(
        health.silent_ms / 1000
    )
    yield _gauge("engine_renewal_seconds", "Duration of the last lease renewal").add_sample(
        health.renewal_ms / 1000
    )
    yield _counter("engine_unknown", "Changes whose outcome the engine did not report").add_sample(
        health.unknown_count
    )


def of_clock(ahead_ms: int | None) -> Family:
    """Return how far this clock is ahead of the master's; no sample if *ahead_ms* is None."""
    ahead = _gauge("clock_ahead_seconds", "How far a follower's clock is ahead of its master's")
    if ahead_ms is not None:
        ahead.add_sample(ahead_ms / 1000)
    return ahead


def of_past(elections: Mapping[str, int], counts: Mapping[str, int]) -> Iterator[Family]:
    """Return the totals since the start; *elections* are by cause."""
    won = _counter("elections", "Elections that this replica won", "cause")
    for cause in (*CAUSES.values(), "other"):
        won.add_sample(elections.get(cause, 0), cause)
    yield won
    for name, help_text in _PAST.items():
        yield _counter(name, help_text).add_sample(counts.get(name, 0))


def of_alarms(shown: Mapping[str, str]) -> Family:
    """Return a sample for each possible alarm."""
    alarm = _gauge("alarm", "1 for a condition that an operator must handle", "reason")
    for reason in REASONS:
        alarm.add_sample(reason in shown, reason)
    return alarm


def _gauge(name: str, help_text: str, *labels: str) -> Family:
    return Family("gauge", f"rockhopper_ha_{name}", help_text, *labels)


def _counter(name: str, help_text: str, *labels: str) -> Family:
    return Family("counter", f"rockhopper_ha_{name}_total", help_text, *labels)
