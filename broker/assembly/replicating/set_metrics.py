"""The numbers of a replica for /metrics, whoever leads."""

from collections.abc import Iterator, Mapping

from rockhopper.broker.assembly.metrics import Family
from rockhopper.broker.assembly.replicating.alarms import REASONS
from rockhopper.broker.ha.machine import Machine, Role


def families(
    machine: Machine,
    counts: Mapping[str, int],
    alarms: Mapping[str, str],
    *,
    confirmed_offset: int,
    engine_silent_ms: int,
) -> Iterator[Family]:
    """Every metric; *counts* are totals since the start, by their names."""
    state = machine.view.state if machine.view else None
    standing, term = machine.standing, machine.term
    role = Family("gauge", "rockhopper_ha_role", "1 for the role of this replica", "role")
    for each in Role:
        role.add(each is machine.role, each.value)
    yield role
    yield _gauge("epoch", "The epoch of the master that this replica knows").add(
        state.epoch if state else 0
    )
    yield _gauge("in_sync", "Replicas that hold all that is acknowledged").add(
        len(state.in_sync) if state else 0
    )
    yield _gauge("in_sync_floor", "minInSyncReplicas").add(state.min_in_sync if state else 0)
    yield _gauge("is_in_sync", "1 when this replica is one of them").add(
        bool(state and standing.me in state.in_sync)
    )
    yield _gauge("log_end_bytes", "Where the log of this replica ends").add(standing.log_end)
    yield _gauge("confirmed_bytes", "Up to where all in sync hold it").add(confirmed_offset)
    yield _gauge("engine_silent_seconds", "Since the engine answered last").add(
        engine_silent_ms / 1000
    )
    lag = _gauge("lag_bytes", "What a follower lacks, as its master sees it", "replica")
    for replica, follower in sorted(term.followers.items()) if term else ():
        if follower.link is not None:
            lag.add(max(standing.log_end - max(follower.held_offset, 0), 0), str(replica.id))
    yield lag
    for name, count in counts.items():
        yield Family("counter", f"rockhopper_ha_{name}_total", _HELP[name]).add(count)
    alarm = _gauge("alarm", "1 for what a person must see", "reason")
    for reason in REASONS:
        alarm.add(reason in alarms, reason)
    yield alarm


_HELP = {
    "elections": "Times that this replica began to lead",
    "resignations": "Times that it ceased to",
    "cuts": "Times that the end of its log was cut",
    "seeds": "Times that its log was replaced by its master's",
}


def _gauge(name: str, help_text: str, *labels: str) -> Family:
    return Family("gauge", f"rockhopper_ha_{name}", help_text, *labels)
