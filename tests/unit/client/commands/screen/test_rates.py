"""Rates between two samples."""

import pytest

from rockhopper.client.commands.screen.rates import Sample
from rockhopper.client.network.addresses import BrokerAddress
from rockhopper.protocol.bodies.stats import LAG_UNKNOWN, Figures, GroupFigures, TopicFigures

BROKERS = [BrokerAddress("c", "broker-a", 0, "a:1"), BrokerAddress("c", "broker-a", 1, "b:1")]


def sample(at_s: float, sent: int, lag: int = 0, *more: TopicFigures) -> Sample:
    figures = Figures(
        [TopicFigures("orders", sent=sent), TopicFigures("%RETRY%g"), *more],
        [GroupFigures("g", lag=lag, handed_out=sent)],
    )
    return Sample.from_figures(figures, BROKERS, at_s=at_s, took_s=0.0, with_system=False)


def test_what_came_is_counted_per_second() -> None:
    flow = sample(12.0, 30, 4).since(sample(10.0, 10, 10))
    assert (flow.in_per_s, flow.lag, flow.broker_count) == (10.0, 4, 1)
    (group,) = flow.groups
    assert (group.out_per_s, group.grows_per_s) == (10.0, -3.0)


def test_a_broker_that_began_anew_has_no_negative_rate() -> None:
    assert sample(12.0, 4).since(sample(10.0, 1000)).in_per_s == 2.0


def test_what_is_seen_for_the_first_time_has_no_rate_yet() -> None:
    new = TopicFigures("new", sent=1_000_000)
    assert sample(12.0, 0, 0, new).since(sample(10.0, 0)).in_per_s == 0.0


@pytest.mark.parametrize("same_moment", [True, False])
def test_a_broadcast_group_has_no_lag(same_moment: bool) -> None:
    now = sample(10.0, 0, LAG_UNKNOWN)
    flow = now.since(now if same_moment else sample(9.0, 0, 5))
    assert (flow.groups[0].lag, flow.groups[0].grows_per_s, flow.lag) == (None, None, 0)
