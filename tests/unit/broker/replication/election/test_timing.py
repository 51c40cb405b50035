"""What follows from the lease."""

from rockhopper.broker.replication.election.timing import Timing


def test_a_lease_is_renewed_several_times_before_it_is_no_longer_trusted() -> None:
    timing = Timing(lease_ms=6000)
    assert timing.renew_interval_ms == 1800
    assert timing.lease_usable_ms == 4000
