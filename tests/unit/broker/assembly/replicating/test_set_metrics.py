"""The numbers of a replica, as families of metrics."""

from rockhopper.broker.assembly.replicating import set_metrics
from rockhopper.broker.assembly.replicating.alarms import ENGINE, REASONS
from rockhopper.broker.ha.leading import Follower, MasterTerm
from rockhopper.broker.ha.machine import Machine
from rockhopper.broker.ha.replica_set import Replica, SetState, View
from rockhopper.broker.ha.standing import Standing
from rockhopper.broker.ha.timing import Timing

ME, OTHER = Replica(1, "a"), Replica(2, "b")
COUNTS = {"elections": 3, "resignations": 2, "cuts": 1, "seeds": 0}


def shown(*, leads: bool) -> dict[str, dict[tuple[str, ...], float]]:
    standing = Standing(
        ME,
        "1-a",
        promise=4,
        epochs=(),
        is_clean=True,
        log_start=0,
        log_end=1000,
        held_offset=1000,
        confirmed_offset=0,
    )
    machine = Machine(standing, Timing(), min_in_sync=1, now_ms=0, spread=lambda: 0)
    if leads:
        state = SetState(4, ME, frozenset({ME, OTHER}), 1)
        machine.view = View(state, 1, None)
        machine.term = MasterTerm(ME, state, 1, 1000, 1000, 0, 0, Timing())
        machine.term.followers[OTHER] = Follower(5, True, 0, 0, held_offset=900)
    families = set_metrics.families(
        machine, COUNTS, {ENGINE: "away"}, confirmed_offset=900, engine_silent_ms=1500
    )
    return {each.name.removeprefix("rockhopper_ha_"): dict(each.samples) for each in families}


def test_a_master_shows_its_set_and_how_far_the_others_are() -> None:
    found = shown(leads=True)
    assert (found["epoch"][()], found["in_sync"][()], found["is_in_sync"][()]) == (4, 2, 1)
    assert found["lag_bytes"] == {("2",): 100}
    assert (found["confirmed_bytes"][()], found["engine_silent_seconds"][()]) == (900, 1.5)
    assert found["elections_total"][()] == 3


def test_one_that_knows_of_no_set_shows_zeros() -> None:
    found = shown(leads=False)
    assert (found["epoch"][()], found["in_sync"][()], found["lag_bytes"]) == (0, 0, {})
    assert found["role"]["joining",] == 1


def test_each_alarm_is_a_number() -> None:
    found = shown(leads=False)["alarm"]
    assert found == {(reason,): float(reason == ENGINE) for reason in REASONS}
