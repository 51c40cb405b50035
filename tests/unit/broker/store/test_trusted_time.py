"""The time that deletions go by, when the clock is set, and over restarts."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.trusted_time import FILE_NAME, NOTE_INTERVAL_MS, TrustedTime

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
RESERVED_MS = 3 * DAY_MS
START_MS = 1_795_148_999_000


@dataclass
class Machine:
    """A wall clock that is set, a monotonic one that begins anew with each boot, and a disk."""

    directory: Path
    wall_ms: int = START_MS
    monotonic_ms: int = 5

    def start(self, written_ms: int = 0) -> TrustedTime:
        trusted = TrustedTime(self.directory, lambda: self.wall_ms, lambda: self.monotonic_ms)
        trusted.written_ms = written_ms
        return trusted

    def pass_time(self, passed_ms: int) -> None:
        self.wall_ms += passed_ms
        self.monotonic_ms += passed_ms


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "own")


def test_a_clock_that_is_slewed_or_set_back_is_followed(machine: Machine) -> None:
    trusted = machine.start()
    for step_ms in (0, HOUR_MS - 1, HOUR_MS - 1, -DAY_MS):
        machine.wall_ms += step_ms
        assert trusted(RESERVED_MS) == machine.wall_ms


def test_a_step_counts_when_it_has_stood_for_as_long_as_messages_are_kept(
    machine: Machine,
) -> None:
    trusted = machine.start()
    assert trusted(RESERVED_MS) == START_MS
    machine.wall_ms += 10 * DAY_MS
    with capture_logs() as lines:
        assert trusted(RESERVED_MS) == START_MS
        machine.pass_time(RESERVED_MS - 1)
        assert trusted(RESERVED_MS) == START_MS + RESERVED_MS - 1
        machine.pass_time(1)
        assert trusted(RESERVED_MS) == machine.wall_ms
    assert [line["by_s"] for line in lines] == [10 * 24 * 3600]


def test_another_step_is_waited_for_anew(machine: Machine) -> None:
    trusted = machine.start()
    trusted(0)
    for _ in range(3):
        machine.wall_ms += DAY_MS
        trusted(0)
        machine.pass_time(DAY_MS - 1)
        assert trusted(0) < machine.wall_ms - HOUR_MS
    machine.pass_time(1)
    assert trusted(0) == machine.wall_ms


def test_a_step_that_is_taken_back_never_counts(machine: Machine) -> None:
    trusted = machine.start()
    trusted(RESERVED_MS)
    machine.wall_ms += 10 * DAY_MS
    trusted(RESERVED_MS)
    machine.pass_time(DAY_MS)
    trusted(RESERVED_MS)
    machine.wall_ms -= 10 * DAY_MS
    assert trusted(RESERVED_MS) == machine.wall_ms


def test_a_restart_with_a_wrong_clock_goes_on_from_what_was_noted(machine: Machine) -> None:
    trusted = machine.start()
    trusted(RESERVED_MS)
    trusted.note()
    machine.wall_ms += 10 * DAY_MS
    machine.monotonic_ms = 3
    again = machine.start(written_ms=machine.wall_ms)
    assert again(RESERVED_MS) == START_MS
    machine.pass_time(RESERVED_MS - 1)
    again(RESERVED_MS)
    again.note()
    machine.monotonic_ms = 1
    third = machine.start()
    assert third(RESERVED_MS) == START_MS + RESERVED_MS - 1
    machine.pass_time(1)
    assert third(RESERVED_MS) == machine.wall_ms


def test_a_store_without_a_note_was_written_when_its_checkpoint_says(machine: Machine) -> None:
    assert machine.start(written_ms=START_MS - DAY_MS)(RESERVED_MS) == START_MS - DAY_MS
    assert machine.start(written_ms=START_MS + DAY_MS)(RESERVED_MS) == START_MS
    assert machine.start()(RESERVED_MS) == START_MS


def test_a_store_that_was_written_long_ago_waits_as_long_for_its_first_step(
    machine: Machine,
) -> None:
    trusted = machine.start(written_ms=START_MS - DAY_MS)
    trusted(RESERVED_MS)
    machine.pass_time(RESERVED_MS - 1)
    assert trusted(RESERVED_MS) == machine.wall_ms - DAY_MS
    machine.pass_time(1)
    assert trusted(RESERVED_MS) == machine.wall_ms


def test_a_damaged_note_is_none(machine: Machine) -> None:
    machine.directory.mkdir()
    (machine.directory / FILE_NAME).write_bytes(b"{}\n0\n")
    with capture_logs() as lines:
        assert machine.start()(RESERVED_MS) == START_MS
    assert len(lines) == 1


def test_a_step_seen_while_the_time_is_saved_is_saved_next(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted = machine.start()
    trusted(RESERVED_MS)
    trusted.note()
    machine.pass_time(NOTE_INTERVAL_MS)
    trusted(RESERVED_MS)
    write = disk.write_atomically
    saved: list[bytes] = []

    def write_slowly(path: Path, content: bytes) -> None:
        if not saved:
            machine.wall_ms += DAY_MS
            trusted(RESERVED_MS)
        saved.append(content)
        write(path, content)

    monkeypatch.setattr(disk, "write_atomically", write_slowly)
    trusted.note()
    trusted.note()
    assert len(saved) == 2


def test_the_time_is_noted_now_and_then_and_with_each_step(machine: Machine) -> None:
    trusted = machine.start()
    path = machine.directory / FILE_NAME
    trusted.note()
    assert not path.exists()

    def is_noted() -> bool:
        trusted(RESERVED_MS)
        before = path.read_bytes() if path.exists() else b""
        trusted.note()
        return path.read_bytes() != before

    noted = []
    for passed_ms, step_ms in ((0, 0), (NOTE_INTERVAL_MS - 1, 0), (1, 0), (1, DAY_MS)):
        machine.pass_time(passed_ms)
        machine.wall_ms += step_ms
        noted.append(is_noted())
    assert noted == [True, False, True, True]
