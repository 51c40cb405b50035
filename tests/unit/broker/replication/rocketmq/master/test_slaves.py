"""What reports confirm: by machine, and by what each has reported itself."""

from rockhopper.broker.replication.rocketmq.master.slaves import Slave, Slaves


def slaves(*reports: tuple[str, int]) -> Slaves:
    found = Slaves()
    for number, (host, offset) in enumerate(reports):
        found.register(Slave(host, 4000 + number, next_offset=offset, acked_offset=offset))
    return found


def test_the_slowest_of_as_many_as_are_needed_counts() -> None:
    three = slaves(("10.0.0.1", 100), ("10.0.0.2", 300), ("10.0.0.3", 200))
    assert [three.compute_replicated_offset(count) for count in (1, 2, 3, 4)] == [300, 200, 100, 0]


def test_a_machine_counts_once() -> None:
    twice = slaves(("10.0.0.1", 100), ("10.0.0.1", 300))
    assert [twice.compute_replicated_offset(count) for count in (1, 2)] == [300, 0]
    assert twice.count_in_sync(300, 0) == 1


def test_who_has_not_reported_does_not_count() -> None:
    silent = Slaves()
    silent.register(Slave("10.0.0.1", 4000))
    assert silent.compute_replicated_offset(1) == 0
    assert silent.count_in_sync(0, 1 << 20) == 0
    assert silent.have(100)


def test_who_has_gone_does_not_count() -> None:
    two = slaves(("10.0.0.1", 100), ("10.0.0.2", 300))
    two.remove(next(slave for slave in two if slave.acked_offset == 300))
    assert (two.compute_replicated_offset(1), len(two)) == (100, 1)


def test_in_sync_is_who_is_not_far_behind() -> None:
    two = slaves(("10.0.0.1", 100), ("10.0.0.2", 300))
    assert [two.count_in_sync(310, gap) for gap in (5, 10, 210)] == [0, 1, 2]
    assert two.have(100)
    assert not two.have(101)
