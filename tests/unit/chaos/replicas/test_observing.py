"""What replicas say of themselves is put together."""

from typing import Any

import pytest

from tests.chaos.replicas.observing import Observer

ADDRESSES = {1: "10.0.0.1:1", 2: "10.0.0.2:1"}


def status(number: int, **changes: Any) -> dict[str, Any]:
    said: dict[str, Any] = {
        "epoch": 1,
        "role": "leading" if number == 1 else "following",
        "masterId": 1,
        "promise": 1,
        "alarms": [],
        "logEnd": 9,
        "confirmedOffset": 9,
        "replicas": [{"id": each, "isInSync": True} for each in ADDRESSES],
    }
    return said | changes


def told(*statuses: dict[str, Any]) -> Observer:
    observer = Observer(ADDRESSES)
    for number, each in enumerate(statuses, 1):
        observer.note(number, each)
    return observer


def test_the_newest_epoch_says_who_leads() -> None:
    assert told(status(2)).master is None
    both = told(status(1), status(2, role="leading", masterId=2, epoch=2))
    assert (both.master, both.master_address) == (2, "10.0.0.2:1")
    assert both.leaders == {1: {1}, 2: {2}}


def test_a_set_is_whole_when_all_are_in_sync_and_equally_far() -> None:
    assert told(status(1), status(2)).is_whole()
    assert not told(status(1)).is_whole()
    assert not told(status(1), status(2, confirmedOffset=8)).is_whole()
    assert not told(status(1), status(2, logEnd=10)).is_whole()
    alone = [{"id": 1, "isInSync": True}, {"id": 2, "isInSync": False}]
    assert not told(status(1, replicas=alone), status(2)).is_whole()


@pytest.mark.parametrize("what", ["promise", "epoch"])
def test_promises_and_epochs_do_not_fall_on_a_connection(what: str) -> None:
    observer = told(status(1, **{what: 3}))
    observer.note(1, status(1, **{what: 3}))
    assert observer.epoch_fell == []
    observer.note(1, status(1, **{what: 2}))
    assert observer.epoch_fell == [f"the {what} of replica 1 was 3 and then 2, on one connection"]


def test_alarms_are_kept() -> None:
    assert told(status(1, alarms=["look"]), status(2)).alarms == {"replica 1: look"}
