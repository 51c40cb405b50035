"""Which connections are closed, and when; the notices that a client gets."""

from collections.abc import Callable
from typing import cast

import pytest

from rockhopper.broker.server.remoting.connection import (
    PeerActivity,
    RemotingConnection,
    request_of,
)
from rockhopper.broker.server.remoting.server import sweep_connections
from rockhopper.broker.users.peer import ConsumersChanged
from rockhopper.protocol.codes import RequestCode


def active_at(last_s: float) -> PeerActivity:
    """The activity of a peer that connected at 0 s, and sent its last request at *last_s*."""
    activity = PeerActivity(0.0)
    activity.frames_received = 1
    activity.last_active_s = last_s
    return activity


def sending_slowly(begun_s: float, last_s: float) -> PeerActivity:
    activity = active_at(0.0)
    activity.note_part(begun_s, frame_count=0, pending_bytes=4)
    activity.note_part(last_s, frame_count=0, pending_bytes=5)
    activity.last_active_s = last_s
    return activity


def stalled_at(now_s: float) -> PeerActivity:
    activity = active_at(0.0)
    activity.stall(now_s)
    return activity


class Connection:
    """A connection, and the reasons for which it was closed."""

    unread_bytes = 1000

    def __init__(self, activity: PeerActivity, *, is_waiting: bool = False) -> None:
        self.activity = activity
        self.is_waiting = is_waiting
        self.reasons: list[str] = []

    def abort(self, reason: str) -> None:
        self.reasons.append(reason)


def sweep(*connections: Connection, now_s: float) -> None:
    sweep_connections(cast("tuple[RemotingConnection, ...]", connections), now_s)


@pytest.mark.parametrize(
    ("activity", "limit_s", "reason"),
    [
        (PeerActivity(0.0), 10, "no request within 10 s"),
        (sending_slowly(5.0, 30.0), 35, "a frame was not completed"),
        (active_at(7.0), 127, "idle for 120 s"),
        (stalled_at(3.0), 33, "the peer read no answer for 30 s"),
    ],
)
def test_a_reason_counts_when_its_time_is_over(
    activity: PeerActivity, limit_s: float, reason: str
) -> None:
    connection = Connection(activity)
    sweep(connection, now_s=limit_s)
    assert connection.reasons == []
    sweep(connection, now_s=limit_s + 0.1)
    assert [said.startswith(reason) for said in connection.reasons] == [True]


@pytest.mark.parametrize(
    ("activity", "is_waiting"),
    [
        (active_at(0.0), True),
        (sending_slowly(0.0, 0.0), True),
        (sending_slowly(990.0, 990.0), False),
    ],
    ids=["waits for messages", "waits in a frame", "is active"],
)
def test_who_waits_or_reads_is_left_alone(activity: PeerActivity, is_waiting: bool) -> None:
    connection = Connection(activity, is_waiting=is_waiting)
    sweep(connection, now_s=1000.0)
    assert connection.reasons == []


def test_a_peer_that_reads_slowly_is_left_alone_until_it_stops() -> None:
    connection = Connection(stalled_at(0.0))
    for now_s in range(1, 100):
        connection.unread_bytes -= 1
        sweep(connection, now_s=now_s)
    assert connection.reasons == []
    sweep(connection, now_s=130)
    assert len(connection.reasons) == 1


def complete_it(activity: PeerActivity) -> None:
    activity.note_part(30.0, frame_count=1, pending_bytes=0)


def complete_it_and_begin_another(activity: PeerActivity) -> None:
    activity.note_part(30.0, frame_count=1, pending_bytes=5)


def read_again(activity: PeerActivity) -> None:
    activity.restart_frame(30.0)


@pytest.mark.parametrize("change", [complete_it, complete_it_and_begin_another, read_again])
def test_the_time_of_a_frame_starts_anew(change: Callable[[PeerActivity], None]) -> None:
    activity = sending_slowly(5.0, 5.0)
    change(activity)
    assert activity.find_timeout(60.0, is_waiting=False) is None


def test_a_peer_that_has_read_everything_is_only_idle() -> None:
    activity = stalled_at(3.0)
    activity.recover()
    assert activity.find_timeout(100.0, is_waiting=False) is None


def test_one_that_is_closed_keeps_nobody_from_being_looked_at() -> None:
    connections = [Connection(active_at(last_s)) for last_s in (0.0, 1000.0, 0.0)]
    sweep(*connections, now_s=1000.0)
    assert [len(each.reasons) for each in connections] == [1, 0, 1]


def test_members_of_a_changed_group_are_told_its_name() -> None:
    code, ext, body = request_of(ConsumersChanged("billing"))
    assert (code, ext, body) == (
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
        {"consumerGroup": "billing"},
        b"",
    )
    assert code == 40
