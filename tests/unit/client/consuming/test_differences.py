"""What a consumer says of members that subscribe differently, and how often."""

from collections.abc import Callable

import pytest

from rockhopper.client.consuming.differences import Differences


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The lines since the last call."""
    caplog.set_level("INFO", logger="rockhopper.client.consuming.differences")

    def lines() -> list[str]:
        found = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return found

    return lines


def round_of(differences: Differences, **readers: tuple[str, ...]) -> None:
    differences.clear()
    for topic, ids in readers.items():
        differences.record(topic, ids, "me")
    differences.tell()


def test_each_state_is_logged_once(told: Callable[[], list[str]]) -> None:
    differences = Differences("billing")
    round_of(differences)
    assert told() == []
    for _ in range(3):
        round_of(differences, orders=("other",))
    assert told() == [
        "members of group 'billing' have different subscriptions: this member reads nothing of "
        "orders, because other members subscribe to more of it; see rockhopper group show billing"
    ]
    round_of(differences, orders=("me",))
    assert told() == [
        "members of group 'billing' have different subscriptions: orders is left to members that "
        "subscribe to all of it, as this one does; see rockhopper group show billing"
    ]
    round_of(differences, orders=())
    (line,) = told()
    assert "no member reads orders, because none subscribes to all that the others do" in line
    for _ in range(2):
        round_of(differences)
    assert told() == ["members of group 'billing' have the same subscriptions again"]


def test_what_may_be_skipped_is_said(told: Callable[[], list[str]]) -> None:
    differences = Differences("billing")
    differences.clear()
    differences.at_risk.add("orders")
    differences.tell()
    (line,) = told()
    assert "orders is shared with foreign clients or brokers" in line


def test_of_many_topics_some_are_named(told: Callable[[], list[str]]) -> None:
    round_of(Differences("billing"), **{f"t{number}": ("other",) for number in range(1000)})
    (line,) = told()
    assert "nothing of t0, t1, t10, t100, t101 and 995 more, because" in line
