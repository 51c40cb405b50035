"""What counts as alive, by the clock of who looks."""

from rockhopper.broker.replication.engines.consensus.sightings import Sightings


def test_a_mark_that_stays_the_same_is_over_after_its_lease() -> None:
    now_ms = 0.0
    sightings = Sightings(lambda: now_ms)
    assert sightings.is_alive("leader", 1, 100)
    now_ms = 99.0
    assert sightings.is_alive("leader", 1, 100)
    now_ms = 100.0
    assert not sightings.is_alive("leader", 1, 100)
    assert sightings.is_alive("leader", 2, 100)
    now_ms = 199.0
    assert sightings.is_alive("leader", 2, 100)
    assert sightings.is_alive("another", 1, 100)
