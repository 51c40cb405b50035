"""Which connections are swept: each reason at its time, and not a moment before."""

from dataclasses import dataclass, field

import pytest

from rockhopper.broker.server.remoting.sweeping import sweep_connections


@dataclass
class Watched:
    frames_received: int = 1
    connected_at_s: float = 0.0
    last_active_s: float = 0.0
    frame_begun_at_s: float | None = None
    stalled_at_s: float | None = None
    writing_paused: bool = False
    is_waiting: bool = False
    read_bytes: bool = False
    reasons: list[str] = field(default_factory=list)

    def note_progress(self, now_s: float) -> None:
        if self.read_bytes:
            self.stalled_at_s = now_s

    def abort(self, reason: str) -> None:
        self.reasons.append(reason)


@pytest.mark.parametrize(
    ("connection", "limit_s", "reason"),
    [
        (Watched(frames_received=0), 10, "no request within 10 s"),
        (Watched(frame_begun_at_s=5.0, last_active_s=30.0), 35, "a frame was not completed"),
        (Watched(last_active_s=7.0), 127, "idle for 120 s"),
        (Watched(stalled_at_s=3.0, writing_paused=True), 33, "the peer read no answer for 30 s"),
    ],
)
def test_a_reason_counts_when_its_time_is_over(
    connection: Watched, limit_s: float, reason: str
) -> None:
    sweep_connections([connection], limit_s)
    assert connection.reasons == []
    sweep_connections([connection], limit_s + 0.1)
    assert [said.startswith(reason) for said in connection.reasons] == [True]


@pytest.mark.parametrize(
    "connection",
    [
        Watched(is_waiting=True),
        Watched(is_waiting=True, frame_begun_at_s=0.0),
        Watched(stalled_at_s=0.0, writing_paused=True, read_bytes=True),
        Watched(last_active_s=990.0, frame_begun_at_s=990.0),
    ],
    ids=["waits for messages", "waits in a frame", "reads slowly", "is active"],
)
def test_who_waits_or_reads_is_left_alone(connection: Watched) -> None:
    sweep_connections([connection], 1000.0)
    assert connection.reasons == []


def test_one_that_is_closed_keeps_nobody_from_being_looked_at() -> None:
    connections = [Watched(), Watched(last_active_s=1000.0), Watched()]
    sweep_connections(connections, 1000.0)
    assert [len(each.reasons) for each in connections] == [1, 0, 1]
