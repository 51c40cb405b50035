"""Rolling: what waits longer than the log is kept is appended again, in time and only once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.kernel.scheduled.timers import rolling as module
from rockhopper.broker.kernel.scheduled.timers.entries import TimerEntry
from rockhopper.broker.kernel.scheduled.timers.rolling import Rolling
from rockhopper.broker.store.files.errors import DiskFullError
from rockhopper.protocol.properties import PROPERTIES_SIZE_BYTES_MAX, join_properties
from tests.support.timer_rig import START_MS, TimerRig

HOUR_MS = 3_600_000
SIXTH_MS = 12 * HOUR_MS


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[TimerRig]:
    made = TimerRig(tmp_path / "store", {"timerMaxDelaySec": str(400 * 3600)})
    yield made
    made.close()


class Rolled:
    """A rig, and its rolling, which a test turns by itself. Logs are kept for 72 hours."""

    def __init__(self, rig: TimerRig) -> None:
        self.rig = rig
        timers = rig.broker.kernel.scheduled.timers
        rig.start()
        self.index, self.queue = timers.index, timers.queue
        self.rolling = Rolling(
            rig.broker.store, self.index, self.queue, lambda: 6 * SIXTH_MS, now_ms=rig.clock
        )

    def put(self, *delays_hours: int) -> None:
        self.rig.put_waiting(
            (b"%d" % hours, START_MS + hours * HOUR_MS + 2) for hours in delays_hours
        )
        self.follow()

    def follow(self) -> None:
        while self.queue.follow():
            pass

    def roll_once(self) -> bool:
        async def run() -> bool:
            return self.rolling.roll()

        return self.rig.loop.run(run())

    def roll(self) -> list[bytes]:
        """Roll until there is no more; what is in the timer topic then."""
        while self.roll_once():
            pass
        self.follow()
        return [message.body for message in self.rig.waiting_messages()]


@pytest.fixture
def rolled(rig: TimerRig, monkeypatch: pytest.MonkeyPatch) -> Rolled:
    # The broker's own would take a part of what a test counts.
    monkeypatch.setattr(rig.broker.kernel.scheduled.timers.rolling, "roll", lambda: False)
    return Rolled(rig)


def test_young_messages_are_left_alone(rolled: Rolled) -> None:
    rolled.put(100, 200)
    rolled.rig.clock.advance(4 * SIXTH_MS - 1)
    assert rolled.roll() == [b"100", b"200"]
    assert rolled.rolling.rolled_count == 0


def test_at_four_sixths_goes_what_has_more_than_one_to_wait(rolled: Rolled) -> None:
    rolled.put(59, 61, 200)
    rolled.rig.clock.advance(4 * SIXTH_MS + 1)
    assert rolled.roll() == [b"59", b"61", b"200", b"61", b"200"]
    assert rolled.rolling.rolled_count == 2
    assert rolled.index.waiting == 3
    assert rolled.index.min_offset == 0


def test_at_five_sixths_goes_everything(rolled: Rolled) -> None:
    rolled.put(70, 200)
    rolled.rig.clock.advance(5 * SIXTH_MS + 1)
    assert rolled.roll() == [b"70", b"200", b"70", b"200"]
    assert rolled.index.min_offset == 2


def test_the_new_record_says_which_one_it_replaces_and_counts(rolled: Rolled) -> None:
    rolled.put(200)
    rolled.rig.clock.advance(5 * SIXTH_MS + 1)
    rolled.roll()
    rolled.rig.clock.advance(5 * SIXTH_MS + 1)
    rolled.roll()
    first, second, third = rolled.rig.waiting_messages()
    due = START_MS + 200 * HOUR_MS + 2
    assert second.properties == first.properties | {
        "TIMER_ROLL_TIMES": "1",
        "TIMER_ORIGIN": f"0/{due}",
    }
    assert third.properties["TIMER_ROLL_TIMES"] == "2"
    assert third.properties["TIMER_ORIGIN"] == f"1/{due}"
    assert [entry.due_ms for entry in rolled.index.pending() if entry] == [due]


def test_it_looks_once_a_minute_and_when_the_clock_was_set_back(
    rolled: Rolled, monkeypatch: pytest.MonkeyPatch
) -> None:
    rolled.put(200)
    rolled.rig.clock.advance(HOUR_MS)
    looks: list[int] = []
    older_than = rolled.index.older_than

    def look(queue_offset: int, from_ms: int) -> Iterator[TimerEntry | None]:
        looks.append(from_ms)
        return older_than(queue_offset, from_ms)

    monkeypatch.setattr(rolled.index, "older_than", look)

    def looked() -> bool:
        looks.clear()
        while rolled.roll_once():
            pass
        return bool(looks)

    assert looked()
    rolled.rig.clock.advance(59_999)
    assert not looked()
    rolled.rig.clock.advance(1)
    assert looked()
    rolled.rig.clock.set_by(-1)
    assert looked()


def test_much_goes_in_several_passes(rolled: Rolled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PASS_COUNT_MAX", 2)
    rolled.put(100, 101, 102)
    rolled.rig.clock.advance(5 * SIXTH_MS + 1)
    while rolled.rolling.rolled_count < 2:
        assert rolled.roll_once()
    assert rolled.rolling.rolled_count == 2
    assert rolled.roll() == [b"100", b"101", b"102"] * 2


def test_a_message_that_is_gone_is_given_up_and_named(
    rolled: Rolled, monkeypatch: pytest.MonkeyPatch
) -> None:
    rolled.put(100, 101)
    rolled.rig.clock.advance(5 * SIXTH_MS + 1)
    message_at = rolled.queue.message_at
    monkeypatch.setattr(
        rolled.queue, "message_at", lambda p, offset: message_at(p, offset) if offset else None
    )
    with capture_logs() as logs:
        assert rolled.roll() == [b"100", b"101", b"101"]
    assert [entry["queue_offset"] for entry in logs if "missing" in entry["event"]] == [0]
    assert rolled.index.waiting == 1


def test_a_full_disk_leaves_everything_pending(
    rolled: Rolled, monkeypatch: pytest.MonkeyPatch
) -> None:
    rolled.put(100)
    rolled.rig.clock.advance(5 * SIXTH_MS + 1)

    def refuse() -> None:
        raise DiskFullError("full")

    with monkeypatch.context() as patch:
        patch.setattr(rolled.rig.broker.store, "check_writable", refuse)
        with pytest.raises(DiskFullError):
            rolled.roll_once()
    assert rolled.index.waiting == 1
    assert rolled.roll() == [b"100", b"100"]


def test_what_is_reserved_may_change_and_it_says_when_all_is_rolled_by_that(
    rolled: Rolled, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserved_ms = 6 * SIXTH_MS
    monkeypatch.setattr(rolled.rolling, "_reserved_ms", lambda: reserved_ms)
    rolled.put(200)
    rolled.rig.clock.advance(2 * SIXTH_MS)
    rolled.roll()
    asked_ms = rolled.rig.clock()
    reserved_ms = 2 * SIXTH_MS
    assert not rolled.rolling.has_rolled_since(asked_ms)
    rolled.rig.clock.advance(60_000)
    assert rolled.roll() == [b"200", b"200"]
    assert rolled.rolling.has_rolled_since(asked_ms)


def test_messages_with_long_or_odd_properties_are_appended_again(rolled: Rolled) -> None:
    rig = rolled.rig
    due_ms = str(START_MS + 200 * HOUR_MS)
    asked = {"UNIQ_KEY": "K", "TIMER_DELIVER_MS": due_ms, "x": "y"}
    assert rig.send(asked, b"usual").code == 0
    (waiting,) = rig.waiting_messages()
    room_bytes = PROPERTIES_SIZE_BYTES_MAX - len(join_properties(waiting.properties))
    long = asked | {"x": "y" * (room_bytes + 1)}
    assert rig.send(long, b"long").code == 0
    assert rig.send(asked | {"x": "a\x01b"}, b"odd").code == 0
    rolled.follow()
    rig.clock.advance(4 * SIXTH_MS + 1)
    assert rolled.roll() == [b"usual", b"long", b"odd"] * 2
    copy = rig.waiting_messages()[4]
    assert copy.properties["x"] == long["x"]
    assert copy.properties["TIMER_OUT_MS"] == str(int(due_ms) - 1)
    rig.wait(200 * 3600)
    assert sorted(rig.bodies()) == [b"long", b"odd", b"usual"]
