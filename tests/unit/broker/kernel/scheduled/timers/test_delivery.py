"""A broker that is killed at any point delivers every timer message once, in time."""

import random
from pathlib import Path

import pytest

from rockhopper.broker.kernel.scheduled.timers.delivery import PASS_COUNT_MAX
from tests.support.timer_rig import START_MS, TimerRig, handle_of

HOUR_MS = 3_600_000


def test_what_was_delivered_before_a_kill_is_not_delivered_again(rig: TimerRig) -> None:
    rig.start()
    for number in range(10):
        rig.send({"TIMER_DELAY_SEC": str(1 + number)}, b"%d" % number)
    rig.wait(5)
    assert len(rig.bodies()) == 5
    rig.kill()
    assert rig.pending == 5
    rig.wait(10)
    assert rig.bodies() == [b"%d" % number for number in range(10)]


def test_what_became_due_while_the_broker_was_down_comes_at_the_start(rig: TimerRig) -> None:
    rig.start()
    rig.send({"TIMER_DELAY_SEC": "10"})
    rig.clock.advance(7_200_000)
    rig.kill()
    assert rig.bodies() == [b"hello"]


@pytest.mark.parametrize("moment", ["noted", "staged", "written"])
def test_a_kill_in_the_midst_of_a_pass_repeats_and_loses_nothing(
    rig: TimerRig, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The files are copied at that very moment, and the copy goes on."""
    rig.start()
    for number in range(PASS_COUNT_MAX + 10):
        rig.send({"TIMER_DELAY_SEC": "60"}, b"%d" % number)

    class KilledError(BaseException):
        pass

    def die(*_: object) -> None:
        raise KilledError

    delivery = rig.broker.kernel.scheduled.timers.delivery
    with monkeypatch.context() as patch:
        if moment == "noted":
            patch.setattr(delivery, "_message", die)
        elif moment == "staged":
            patch.setattr(rig.broker.store, "commit", die)
        else:
            patch.setattr(delivery, "_note_written", die)
        rig.clock.advance(60_000)
        for _ in range(4):
            rig.broker.kernel.scheduled.timers.index.open_due(rig.clock.now_ms)
        with pytest.raises(KilledError):
            delivery.deliver()
    rig.kill()
    rig.wait(1)
    assert rig.bodies() == [b"%d" % number for number in range(PASS_COUNT_MAX + 10)]
    assert rig.pending == 0


def test_a_torn_entry_and_a_torn_note_are_cut_off(rig: TimerRig) -> None:
    rig.start()
    rig.send({"TIMER_DELAY_SEC": "10"}, b"a")
    rig.send({"TIMER_DELAY_SEC": "20"}, b"b")
    rig.save()
    rig.wait(10)
    directory = rig.broker.kernel.scheduled.timers.index.files.directory
    for path in directory.iterdir():
        with path.open("ab") as file:
            file.write(b"torn")
    rig.kill()
    rig.wait(10)
    assert rig.bodies() == [b"a", b"b"]


def test_without_its_index_a_broker_makes_a_new_one(rig: TimerRig) -> None:
    rig.start()
    rig.send({"TIMER_DELAY_SEC": "10"}, b"a")
    rig.send({"TIMER_DELAY_SEC": "20"}, b"b")
    handle = handle_of(rig.send({"TIMER_DELAY_SEC": "20"}, b"c"))
    rig.recall(handle)
    rig.wait(10)
    (rig.root / "rockhopper" / "timers" / "checkpoint.json").unlink()
    rig.kill()
    assert rig.pending == 1
    rig.wait(10)
    assert rig.bodies() == [b"a", b"b"]


@pytest.mark.parametrize("damage", [b"", b"\0" * 20, b"\0" * 80, b"\xff" * 400, None])
def test_a_damaged_slot_file_loses_nothing(rig: TimerRig, damage: bytes | None) -> None:
    rig.start()
    for number in range(6):
        rig.send({"TIMER_DELAY_SEC": str(150 + 60 * (number // 2))}, b"%d" % number)
    rig.save()
    rig.kill(start=False)
    slot = sorted(rig.broker.kernel.scheduled.timers.index.files.directory.iterdir())[1]
    if damage is None:
        slot.unlink()
    else:
        slot.write_bytes(damage)
    rig.start()
    assert rig.pending == 6
    rig.wait(400)
    assert sorted(rig.bodies()) == [b"%d" % number for number in range(6)]


@pytest.mark.costly
@pytest.mark.parametrize(
    ("count", "kills", "step_ms"),
    [(1_000, 4, 30_000), pytest.param(100_000, 12, 1000, marks=pytest.mark.slow)],
)
def test_timers_over_an_hour_with_kills_at_random_points(
    tmp_path: Path, count: int, kills: int, step_ms: int
) -> None:
    """None is lost, none comes twice or early, and none later than the clock's next step."""
    dice = random.Random(count)
    rig = TimerRig(tmp_path / "store", {"mappedFileSizeCommitLog": str(64 << 20)})
    rig.start()
    due = {b"%d" % number: START_MS + 2000 + dice.randrange(HOUR_MS) for number in range(count)}
    half = list(due)[: count // 2]
    rig.put_waiting([(body, due[body]) for body in half])
    late = list(due)[count // 2 :]
    end_ms = START_MS + HOUR_MS + 5000
    kill_at = sorted(dice.randrange(START_MS, end_ms) for _ in range(kills))
    per_step = len(late) * step_ms // HOUR_MS + 1
    down_ms: list[tuple[int, int]] = []
    while rig.clock.now_ms < end_ms:
        new, late = late[:per_step], late[per_step:]
        due.update({body: max(due[body], rig.clock.now_ms + 1) for body in new})
        rig.put_waiting([(body, due[body]) for body in new])
        rig.wait(step_ms / 1000)
        if kill_at and rig.clock.now_ms >= kill_at[0]:
            del kill_at[0]
            if dice.random() < 0.5:
                rig.save()
            away_ms = dice.randrange(30_000)
            down_ms.append((rig.clock.now_ms, rig.clock.now_ms + away_ms))
            rig.clock.advance(away_ms)
            rig.kill()
    for body in late:
        del due[body]  # The kills took so much of the hour that it was never sent.
    delivered = rig.delivered()
    assert sorted(message.body for message in delivered) == sorted(due)
    for message in delivered:
        due_ms = due[message.body]
        assert message.store_time_ms >= due_ms
        latest_ms = max([due_ms, *(end for start, end in down_ms if start <= due_ms <= end)])
        assert message.store_time_ms <= latest_ms + step_ms + 1
    assert rig.pending == 0
    rig.close()
