"""Retention: which files may go and when, what a full disk does, and who follows."""

import asyncio
import errno
import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.mapped_file import MappedFile
from rockhopper.broker.store.log.commit_log import NextFile
from rockhopper.broker.store.recovering import log_identity
from rockhopper.broker.store.retention import (
    UNKNOWN_PERCENT,
    DiskSpace,
    FileTime,
    RetentionService,
    RetentionSettings,
    expired_count,
    is_cleaning_hour,
    judge_disks,
    last_time_ms,
    used_percent,
)
from rockhopper.broker.store.trusted_time import TrustedTime
from tests.support.hang import HANG_S
from tests.support.held_call import HeldCall
from tests.support.store_directories import T0, LogWriter, Recovered, recover
from tests.support.turns import until

HOUR_MS = 3_600_000
DEFAULTS = RetentionSettings()
AT_ONCE = RetentionSettings(reserved_ms=HOUR_MS, delete_interval_ms=0)
# 04:30 in UTC, a day on which nothing of the test stores has expired yet.
NIGHT_MS = 1_795_148_999_000 + 86_400_000


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


# Decisions.


@pytest.mark.parametrize(
    ("used", "usable", "percent"),
    [(0, 100, 0), (75, 25, 75), (751, 249, 76), (1, 10**12, 1), (100, 0, 100), (0, 0, -1)],
)
def test_use_is_rounded_up(used: int, usable: int, percent: int) -> None:
    assert used_percent(used, usable) == percent


@pytest.mark.parametrize(
    ("percents", "was_full", "verdict"),
    [
        ([10, 10], False, (False, False, False)),
        ([75, 10], False, (False, False, False)),
        ([76, 10], False, (False, True, False)),
        ([10, 76], False, (False, True, False)),
        ([85, 10], False, (False, True, False)),
        ([86, 10], False, (False, True, True)),
        ([90, 10], False, (False, True, True)),
        ([91, 10], False, (True, True, True)),
        ([10, 91], False, (True, True, True)),
        ([86, 10], True, (True, True, True)),
        ([85, 10], True, (False, True, False)),
        ([UNKNOWN_PERCENT, 10], False, (False, True, False)),
        ([UNKNOWN_PERCENT, UNKNOWN_PERCENT], True, (False, True, False)),
    ],
)
def test_disks_are_judged_by_the_fuller_one(
    percents: list[int], was_full: bool, verdict: tuple[bool, bool, bool]
) -> None:
    assert judge_disks(percents, DEFAULTS, was_full=was_full) == verdict


def test_percentages_are_kept_within_rocketmqs_bounds() -> None:
    wild = RetentionSettings(
        used_percent_max=1, clean_forcibly_percent=99, warning_percent=10
    ).clamped()
    assert (wild.used_percent_max, wild.clean_forcibly_percent, wild.warning_percent) == (
        10,
        85,
        35,
    )
    assert DEFAULTS.clamped() == DEFAULTS


@pytest.mark.parametrize(
    ("delete_when", "expected"),
    [("04", True), ("4", True), ("03", False), ("03;04", True), (" 02 ; 4 ", True), ("", False)],
)
def test_the_cleaning_hour_is_one_of_several(delete_when: str, expected: bool) -> None:
    assert is_cleaning_hour(delete_when, NIGHT_MS) is expected


@pytest.mark.parametrize(
    ("ages_h", "regardless", "expected"),
    [
        ([], False, 0),
        ([73, 72, 71], False, 2),
        ([71, 73], False, 0),
        ([1, 1, 1], True, 3),
        ([100] * 15, False, 10),
        ([1] * 15, True, 10),
    ],
)
def test_expired_files_go_oldest_first_and_ten_at_a_time(
    ages_h: list[int], regardless: bool, expected: int
) -> None:
    times = [T0 - age * HOUR_MS for age in ages_h]
    assert expired_count(times, T0, DEFAULTS, regardless_of_age=regardless) == expected


# The service.


@dataclass
class Disk:
    """What the service asks and tells; percentages by directory name."""

    used: dict[str, int] = field(default_factory=dict)
    told: list[str | None] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    def usage(self, path: Path) -> tuple[int, int]:
        self.asked.set()
        percent = self.used.get(path.name, 10)
        if percent < 0:
            raise OSError("no such disk")
        return percent, 100 - percent


class Growth(NextFile):
    """Makes the next file of a log, or fails as the disk does."""

    def __init__(self) -> None:
        self.tries = 0
        self.failure: OSError | None = OSError(errno.ENOSPC, "no room")

    def make(self) -> Future[MappedFile]:
        self.tries += 1
        made: Future[MappedFile] = Future()
        if self.failure is None:
            made.set_result(MappedFile("made", 0, 1))
        else:
            made.set_exception(self.failure)
        return made


class WatchedSpace(DiskSpace):
    """Notes each reason to reject messages, and each time that it ends."""

    told: list[str | None] | None = None

    @property
    def full_reason(self) -> str | None:
        return self._reason

    @full_reason.setter
    def full_reason(self, reason: str | None) -> None:
        self._reason = reason
        if self.told is not None:
            self.told.append(reason)


@dataclass
class Retained:
    """A store of messages an hour apart, each log file about twenty of them, and its service."""

    log: LogWriter
    store: Recovered
    disk: Disk
    now_ms: int
    wall_ms: int
    stepped_ms: int
    """By how much the wall clock was set forward."""
    settings: RetentionSettings
    service: RetentionService
    growth: Growth

    @property
    def files(self) -> list[str]:
        return sorted(os.listdir(self.log.root / "commitlog"))


@pytest.fixture
def retain(tmp_path: Path) -> Callable[..., Retained]:
    def make(settings: RetentionSettings = AT_ONCE, count: int = 80) -> Retained:
        log = LogWriter(tmp_path / "store")
        for number in range(count):
            log.time_ms = T0 + number * HOUR_MS
            log.append(f"Topic{'AB'[number % 2]}")
        store = recover(log.root, index_shape=(16, 40))
        disk, growth = Disk(), Growth()
        service = RetentionService(
            store.layout,
            store.files,
            store.queues,
            store.index,
            growth,
            lambda: retained.settings,
            now_ms=lambda: retained.now_ms,
            wall_ms=lambda: retained.wall_ms + retained.stepped_ms,
        )
        service.is_started = True
        service.space = space = WatchedSpace(store.layout, lambda: retained.settings.clamped())
        space.told = disk.told
        space.disk_usage = disk.usage
        service.trusted_ms = TrustedTime(
            store.layout.own,
            lambda: retained.wall_ms + retained.stepped_ms,
            lambda: retained.wall_ms,
        )
        retained = Retained(
            log, store, disk, log.time_ms, log.time_ms, 0, settings, service, growth
        )
        return retained

    return make


def last_hour_of(retained: Retained, file_number: int) -> int:
    """The store time of the last message in a log file."""
    end = (file_number + 1) * 4096
    index = max(n for n, r in enumerate(retained.log.written) if r.offset < end)
    return T0 + index * HOUR_MS


async def test_files_go_by_the_time_of_their_last_message(
    retain: Callable[..., Retained],
) -> None:
    retained = retain()
    assert len(retained.files) == 4
    retained.disk.used["commitlog"] = 80
    retained.now_ms = last_hour_of(retained, 0) + HOUR_MS - 1
    assert await retained.service.run_once() == 0
    retained.now_ms += 1
    assert await retained.service.run_once() == 1
    assert retained.files == [f"{n * 4096:020d}" for n in (1, 2, 3)]


async def test_what_is_changed_meanwhile_counts_from_the_next_round(
    retain: Callable[..., Retained],
) -> None:
    retained = retain(AT_ONCE._replace(reserved_ms=1000 * HOUR_MS, delete_when="23"))
    retained.now_ms = last_hour_of(retained, 0) + HOUR_MS
    assert await retained.service.run_once() == 0
    retained.settings = AT_ONCE._replace(used_percent_max=10)
    retained.disk.used["commitlog"] = 11
    assert await retained.service.run_once() == 1
    assert retained.service.space.used_percents[0] == 11


async def test_a_file_without_messages_goes_by_its_own_time(
    retain: Callable[..., Retained],
) -> None:
    retained = retain()
    first = retained.log.path_of(0)
    first.write_bytes(bytes(4096))
    os.utime(first, (T0 / 1000, T0 / 1000))
    retained.disk.used["commitlog"] = 80
    retained.now_ms = T0 + HOUR_MS - 1
    assert await retained.service.run_once() == 0
    retained.now_ms += 1
    assert await retained.service.run_once() == 1


async def test_a_follower_keeps_what_its_master_has_and_no_more(
    retain: Callable[..., Retained],
) -> None:
    retained = retain()
    retained.disk.used["commitlog"] = 80
    retained.now_ms = last_hour_of(retained, 2) + HOUR_MS
    retained.service.delete_before = 2 * 4096 - 1
    assert await retained.service.run_once() == 1
    assert await retained.service.run_once() == 0
    retained.service.delete_before = 1 << 40
    assert await retained.service.run_once() == 2
    assert retained.files == [f"{3 * 4096:020d}"]


async def test_a_clock_that_was_wrong_deletes_nothing(retain: Callable[..., Retained]) -> None:
    retained = retain(AT_ONCE._replace(reserved_ms=72 * HOUR_MS))
    retained.now_ms = retained.wall_ms = T0 + 79 * HOUR_MS
    retained.service.ask()
    assert await retained.service.run_once() == 0
    retained.stepped_ms = 240 * HOUR_MS
    # Store times follow each step forward, and do not come back.
    retained.now_ms += 240 * HOUR_MS
    with capture_logs() as lines:
        for _ in range(2):
            retained.service.ask()
            assert await retained.service.run_once() == 0
    assert [line["by_s"] for line in lines if "set forward" in line["event"]] == [240 * 3600]
    retained.stepped_ms = 0
    retained.service.ask()
    assert await retained.service.run_once() == 0


@pytest.mark.parametrize(
    ("times", "expected_ms"),
    [
        ([(5, 9), (7, 7)], 5),
        ([(50, 9), (7, 7)], 9),
        ([(50, 90), (50, 12), (13, 13)], 12),
        ([(50, 90), (13, 13)], 13),
        ([(50, 90), (60, 60)], 20),
    ],
)
def test_a_time_that_has_not_come_is_limited_by_the_files_behind(
    times: list[tuple[int, int]], expected_ms: int
) -> None:
    assert last_time_ms(itertools.starmap(FileTime, times), 20) == expected_ms


async def test_what_a_wrong_clock_stamped_goes_when_its_neighbours_go(
    retain: Callable[..., Retained],
) -> None:
    retained = retain()
    first_ms = last_hour_of(retained, 0)
    os.utime(retained.log.path_of(0), (T0 / 1000, (first_ms - 10 * HOUR_MS) / 1000))
    retained.wall_ms = first_ms - 9 * HOUR_MS
    retained.disk.used["commitlog"] = 80
    assert await retained.service.run_once() == 1


async def test_without_pressure_files_go_at_night_only(retain: Callable[..., Retained]) -> None:
    retained = retain()
    # What is counted from went ahead of the clock on the wall, which was set back.
    retained.now_ms = NIGHT_MS + 100 * 24 * HOUR_MS
    retained.wall_ms = retained.now_ms - 10 * HOUR_MS
    assert await retained.service.run_once() == 0
    retained.wall_ms = retained.now_ms - 24 * HOUR_MS
    assert await retained.service.run_once() == 3


async def test_an_administrator_may_have_expired_files_deleted_at_any_hour(
    retain: Callable[..., Retained],
) -> None:
    retained = retain()
    retained.now_ms = NIGHT_MS + 100 * 24 * HOUR_MS + 10 * HOUR_MS
    retained.service.ask()
    assert await retained.service.run_once() == 3
    assert await retained.service.run_once() == 0


async def test_the_newest_file_never_goes(retain: Callable[..., Retained]) -> None:
    retained = retain()
    retained.disk.used["commitlog"] = 95
    retained.now_ms += 10_000 * HOUR_MS
    assert await retained.service.run_once() == 3
    assert await retained.service.run_once() == 0
    assert retained.files == [f"{3 * 4096:020d}"]


async def test_a_filling_disk_takes_files_that_have_not_expired(
    retain: Callable[..., Retained],
) -> None:
    retained = retain(AT_ONCE._replace(reserved_ms=10_000 * HOUR_MS))
    retained.disk.used["consumequeue"] = 85
    assert await retained.service.run_once() == 0
    retained.disk.used["consumequeue"] = 86
    with capture_logs() as logs:
        assert await retained.service.run_once() == 3
    levels = [line["log_level"] for line in logs if line["event"] == "a commit log file is deleted"]
    assert levels == ["warning"] * 3


async def test_a_filling_disk_takes_nothing_early_when_that_is_forbidden(
    retain: Callable[..., Retained],
) -> None:
    settings = AT_ONCE._replace(reserved_ms=10_000 * HOUR_MS, clean_forcibly=False)
    retained = retain(settings)
    retained.disk.used["commitlog"] = 99
    assert await retained.service.run_once() == 0


async def test_a_full_disk_is_told_once_and_again_when_there_is_room(
    retain: Callable[..., Retained],
) -> None:
    retained = retain(AT_ONCE._replace(reserved_ms=10_000 * HOUR_MS, clean_forcibly=False))
    for percent in (89, 91, 95, 86, 85, 86):
        retained.disk.used["commitlog"] = percent
        await retained.service.run_once()
        if percent in (91, 95, 86) and retained.disk.told and retained.disk.told[-1] is not None:
            assert retained.service.space.is_full
    assert len(retained.disk.told) == 2
    reason, room = retained.disk.told
    assert reason is not None
    assert "91 % full" in reason
    assert room is None
    assert not retained.service.space.is_full


async def test_where_a_full_disk_begins_low_it_ends_there(retain: Callable[..., Retained]) -> None:
    retained = retain(AT_ONCE._replace(warning_percent=50, clean_forcibly=False))
    for percent in (51, 50):
        retained.disk.used["commitlog"] = percent
        await retained.service.run_once()
    reason, room = retained.disk.told
    assert (reason or "").endswith(
        "refused above 50 %: free space, or lower fileReservedTime; they are accepted again at 50 %"
    )
    assert room is None


async def test_a_log_that_cannot_grow_is_a_full_disk_until_its_next_file_is_made(
    retain: Callable[..., Retained],
) -> None:
    retained = retain()
    growth = retained.growth
    service, told = retained.service, retained.disk.told
    with capture_logs() as logs:
        for _ in range(2):
            service.log_cannot_grow("no room for a file")
        assert told == ["no room for a file"]
        # Nothing is tried on a disk that has less than a file to give.
        await service.run_once()
        assert growth.tries == 0
        service.space.disk_usage = lambda path: (6 * 4096, 4 * 4096)
        await service.run_once()
        assert (growth.tries, service.space.is_full, len(told)) == (1, True, 1)
        growth.failure = None
        await service.run_once()
        assert not service.space.is_full
        await service.run_once()
    assert (growth.tries, told) == (2, ["no room for a file", None])
    assert [line["event"] for line in logs if "grow" in line["event"]] == [
        "the commit log cannot grow",
        "the commit log can grow again",
    ]


async def test_a_disk_that_lacks_room_for_a_file_is_full_by_its_use_as_well(
    retain: Callable[..., Retained],
) -> None:
    retained = retain(AT_ONCE._replace(clean_forcibly=False))
    growth = retained.growth
    service, told = retained.service, retained.disk.told
    service.log_cannot_grow("no room for a file")
    retained.disk.used["commitlog"] = 91
    await service.run_once()
    retained.disk.used["commitlog"] = 10
    await service.run_once()
    assert [reason and reason[:9] for reason in told] == ["no room f", "the disk ", "no room f"]
    service.space.disk_usage = lambda path: (91 * 4096, 9 * 4096)
    growth.failure = None
    await service.run_once()
    assert told[-1] is not None
    assert "91 % full" in told[-1]
    assert service.space.is_full


async def test_a_log_that_cannot_grow_lets_expired_files_go_at_any_hour_and_no_others(
    retain: Callable[..., Retained],
) -> None:
    retained = retain()
    retained.now_ms = last_hour_of(retained, 0) + HOUR_MS
    retained.service.log_cannot_grow("no room for a file")
    assert await retained.service.run_once() == 1
    assert await retained.service.run_once() == 0
    retained.now_ms = last_hour_of(retained, 1) + HOUR_MS
    assert await retained.service.run_once() == 1


async def test_a_disk_of_unknown_use_counts_as_filling_but_not_as_full(
    retain: Callable[..., Retained],
) -> None:
    retained = retain()
    retained.disk.used["commitlog"] = -1
    retained.now_ms += 10_000 * HOUR_MS
    assert await retained.service.run_once() == 3
    assert retained.disk.told == []


async def test_a_directory_that_is_not_there_yet_is_on_its_parents_disk(
    retain: Callable[..., Retained],
) -> None:
    retained = retain(AT_ONCE._replace(clean_forcibly=False, reserved_ms=10_000 * HOUR_MS))
    shutil.rmtree(retained.log.root / "consumequeue")
    retained.disk.used["store"] = 91
    await retained.service.run_once()
    assert retained.service.space.is_full


async def test_queues_and_index_follow_the_commit_log(retain: Callable[..., Retained]) -> None:
    retained = retain()
    index_files = len(os.listdir(retained.log.root / "index"))
    retained.disk.used["commitlog"] = 80
    retained.now_ms = last_hour_of(retained, 1) + HOUR_MS
    assert await retained.service.run_once() == 2
    store = retained.store
    first_left = min(r.offset for r in retained.log.written if r.offset >= 8192)
    for topic in ("TopicA", "TopicB"):
        queue = store.queues.get(topic, 0)
        assert queue is not None
        entry = queue.entry(queue.min_offset)
        assert entry is not None
        assert entry[0] - first_left < 400
        assert all(body is not None for body in store.bodies(topic, 0).values())
        assert f"{0:020d}" not in os.listdir(queue.directory)
    assert len(os.listdir(retained.log.root / "index")) < index_files
    assert store.index.begin_commit_log_offset > 0
    assert recover(retained.log.root, index_shape=(16, 40)).report.indexed_count == 0


async def test_a_file_that_cannot_be_deleted_is_tried_again(
    retain: Callable[..., Retained], monkeypatch: pytest.MonkeyPatch
) -> None:
    retained = retain()
    retained.disk.used["commitlog"] = 80
    retained.now_ms = last_hour_of(retained, 0) + HOUR_MS
    first = retained.store.files.files[0]
    with monkeypatch.context() as patch:

        def fail(path: Path, missing_ok: bool = False) -> None:
            raise OSError("the disk is failing")

        patch.setattr(Path, "unlink", fail)
        with pytest.raises(OSError, match="failing"):
            await retained.service.run_once()
    assert retained.store.files.min_offset == 4096
    assert first.path.exists()
    await retained.service.run_once()
    assert not first.path.exists()
    assert retained.store.files.min_offset == 4096


async def test_a_disk_without_room_for_the_note_of_the_logs_start_holds_up_no_deletion(
    retain: Callable[..., Retained], monkeypatch: pytest.MonkeyPatch
) -> None:
    retained = retain()
    log_identity.save_identity(retained.store.layout, retained.store.files)
    retained.disk.used["commitlog"] = 80
    retained.now_ms = last_hour_of(retained, 1) + HOUR_MS
    with monkeypatch.context() as patch:

        def fail(path: Path, data: bytes, backup: bytes | None = None) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        patch.setattr(disk, "write_atomically", fail)
        assert await retained.service.run_once() == 2
        assert f"{0:020d}" not in os.listdir(retained.log.root / "consumequeue/TopicA/0")
    await retained.service.run_once()
    with capture_logs() as logs:
        log_identity.check_identity(retained.store.layout, retained.store.files)
    assert logs == []


async def test_the_task_looks_at_once_and_ends_when_told(retain: Callable[..., Retained]) -> None:
    retained = retain(AT_ONCE._replace(interval_ms=1))
    retained.disk.used["commitlog"] = 91
    await retained.service.start()
    assert retained.service.space.is_full
    retained.disk.used["commitlog"] = 10
    retained.disk.asked.clear()
    await retained.disk.asked.wait()
    await retained.service.stop()
    assert retained.disk.told[-1] is None


async def test_it_ends_when_told_at_the_moment_it_is_asked(retain: Callable[..., Retained]) -> None:
    retained = retain(AT_ONCE._replace(interval_ms=3_600_000))
    for turns in range(4):
        await retained.service.start()
        await until(lambda: bool(retained.service.asked._waiters))
        retained.service.ask()
        for _ in range(turns):
            await asyncio.sleep(0)
        stopping = asyncio.create_task(retained.service.stop())
        await asyncio.wait([stopping], timeout=HANG_S)
        assert stopping.done(), turns


@pytest.mark.parametrize("step", ["note_time", "note_start", "delete"])
async def test_a_stop_waits_for_the_thread_of_each_step(
    retain: Callable[..., Retained], step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    retained = retain(AT_ONCE._replace(interval_ms=3_600_000))
    service = retained.service
    held = HeldCall()
    if step == "note_time":
        monkeypatch.setattr(service.trusted_ms, "note", held)
    elif step == "note_start":
        service._is_start_noted = False
        monkeypatch.setattr(service, "_note_start", held)
    else:
        retained.now_ms = last_hour_of(retained, 1) + HOUR_MS
        monkeypatch.setattr(service, "_delete", held)
    await service.start()
    service.ask()
    assert await held.is_awaited_by(service.stop())


def test_the_space_of_a_disk_is_judged_without_files(tmp_path: Path) -> None:
    space = DiskSpace(StoreLayout(tmp_path), RetentionSettings)
    space.disk_usage = lambda path: (91, 9)
    assert space.check().is_full
    assert space.is_full
    assert space.used_percents == (91, 91)
    assert (space.may_hold(9), space.may_hold(10)) == (True, False)
    space.note_no_room("no room for a file")
    space.disk_usage = lambda path: (10, 90)
    assert not space.check().is_full
    assert (space.is_growth_blocked, space.full_reason) == (True, "no room for a file")
    space.note_growth()
    assert (space.is_growth_blocked, space.is_full) == (False, False)
