"""Retention: which files are deleted, by age of the last message, hour, and disk use.

The decisions are pure functions. RetentionService applies them every ``interval_ms``: commit log
files first, then the consume queues and the index follow the new minimum. Unconsumed messages are
not protected, as in RocketMQ.

A file's age counts from the store time of its last message, by the wall clock (TrustedTime).
RocketMQ uses the file's modification time, which a copy or a late flush renews. It is used here
only if no message is found, or if its store time is in the future because a clock was wrong. If the
modification time is in the future too, the file is as old as the one after it. A time that is too
early does no harm: a file is deleted only after those before it.

Disk use is in percent of the used and usable space, on the fuller of the disks of commit log and
consume queues:

    above warning_percent          the store rejects messages; files are deleted whatever their age
    above clean_forcibly_percent   files are deleted whatever their age
    above used_percent_max         expired files are deleted at any hour
    otherwise                      expired files are deleted in the hours of deleteWhen

Messages are accepted again once the use is down to the lower of warning_percent and
clean_forcibly_percent.

A disk also counts as full, whatever its use, if the log needs its next file and there is no space
for it. Expired files are then deleted at any hour, and messages are accepted again once the file is
made.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import structlog

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.mapped_file import MappedFile
from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue
from rockhopper.broker.store.index.index import MessageIndex
from rockhopper.broker.store.log.commit_log import NextFile
from rockhopper.broker.store.log.log_scan import last_store_time_ms
from rockhopper.broker.store.queues.queue_table import ConsumeQueueTable
from rockhopper.broker.store.recovering import log_identity
from rockhopper.broker.store.trusted_time import TrustedTime
from rockhopper.tasks import complete_in_thread, end_task, keep_running

log = structlog.get_logger("broker.store")

# A full disk is checked this often, so that producers need not wait for the next round.
FULL_DISK_INTERVAL_MS = 1000
UNKNOWN_PERCENT = -1
LOWERING_MS_MIN = 60_000


CLEAN_FORCIBLY_PERCENT_MAX = 85
WARNING_PERCENT_MAX = 90


class RetentionSettings(NamedTuple):
    """How long messages are kept; broker/settings/broker_config.py names RocketMQ's keys."""

    reserved_ms: int = 72 * 3_600_000
    delete_when: str = "04"
    interval_ms: int = 10_000
    delete_interval_ms: int = 100
    batch_max: int = 10
    used_percent_max: int = 75
    clean_forcibly_percent: int = 85
    warning_percent: int = 90
    clean_forcibly: bool = True

    def clamped(self) -> "RetentionSettings":
        """Return a copy with the percentages limited to RocketMQ's bounds."""
        return self._replace(
            used_percent_max=min(max(self.used_percent_max, 10), 95),
            clean_forcibly_percent=min(
                max(self.clean_forcibly_percent, 30), CLEAN_FORCIBLY_PERCENT_MAX
            ),
            warning_percent=min(max(self.warning_percent, 35), WARNING_PERCENT_MAX),
        )


class DiskVerdict(NamedTuple):
    """The measures that the use of the disks requires."""

    is_full: bool
    is_pressed: bool
    is_pressed_hard: bool


def used_percent(used_bytes: int, usable_bytes: int) -> int:
    """Return the use in percent, rounded up; ``UNKNOWN_PERCENT`` for a disk without a size."""
    total_bytes = used_bytes + usable_bytes
    return -(-used_bytes * 100 // total_bytes) if total_bytes > 0 else UNKNOWN_PERCENT


def judge_disks(
    percents: Sequence[int], settings: RetentionSettings, *, was_full: bool
) -> DiskVerdict:
    """Judge the use of the disks; an unknown one counts as over used_percent_max."""
    fullest = max(percents)
    return DiskVerdict(
        is_full=fullest > settings.warning_percent
        or (was_full and fullest > settings.clean_forcibly_percent),
        is_pressed=fullest > settings.used_percent_max or UNKNOWN_PERCENT in percents,
        is_pressed_hard=fullest > settings.clean_forcibly_percent,
    )


def is_cleaning_hour(delete_when: str, now_ms: int) -> bool:
    """Return whether the local hour is one of *delete_when*, hours separated by ``;``."""
    hour = time.localtime(now_ms / 1000).tm_hour
    return any(part.strip().isdigit() and int(part) == hour for part in delete_when.split(";"))


def expired_count(
    last_times_ms: Iterable[int],
    now_ms: int,
    settings: RetentionSettings,
    *,
    regardless_of_age: bool,
) -> int:
    """Return how many files to delete, by the last times of all but the newest, oldest first."""
    count = 0
    for last_time_ms in last_times_ms:
        is_expired = now_ms - last_time_ms >= settings.reserved_ms
        if count == settings.batch_max or not (is_expired or regardless_of_age):
            break
        count += 1
    return count


class FileTime(NamedTuple):
    """When a file of the commit log got its last message."""

    stored_ms: int
    """According to that message itself."""
    written_ms: int
    """According to the file system."""


def last_time_ms(times: Iterable[FileTime], now_ms: int) -> int:
    """Return when the first of some consecutive files got its last message."""
    for each in times:
        for each_ms in each:
            if each_ms <= now_ms:
                return each_ms
    return now_ms


class ReservedTime:
    """How long the log is kept, even if the setting changes while the broker runs.

    A longer time applies at once. A shorter time applies once all features have handled older
    messages that are still needed: timers append them again, transactions are checked. Belongs to
    the loop's thread.
    """

    def __init__(self, wanted_ms: Callable[[], int], now_ms: Callable[[], int]) -> None:
        """*wanted_ms* returns the present setting."""
        self._wanted_ms = wanted_ms
        self._now_ms = now_ms
        self._kept_ms = wanted_ms()
        self._lowered_to_ms = self._kept_ms
        self._lowered_at_ms = 0
        self.has_taken_care: list[Callable[[int], bool]] = []
        """Each returns whether a shorter time may apply that was requested at a given time."""

    def __call__(self) -> int:
        """Return how old the last message of a file must be, in ms, for it to be deleted."""
        wanted_ms, now_ms = self._wanted_ms(), self._now_ms()
        if wanted_ms >= self._kept_ms:
            self._kept_ms = self._lowered_to_ms = wanted_ms
        elif wanted_ms != self._lowered_to_ms:
            self._lowered_to_ms, self._lowered_at_ms = wanted_ms, now_ms
        elif now_ms - self._lowered_at_ms >= LOWERING_MS_MIN and self._is_taken_care_of():
            self._kept_ms = wanted_ms
        return self._kept_ms

    def _is_taken_care_of(self) -> bool:
        # All are called, so that all begin.
        answers = [done(self._lowered_at_ms) for done in self.has_taken_care]
        return all(answers)


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _disk_usage(path: Path) -> tuple[int, int]:
    usage = disk.read_usage(path)
    return usage.used_bytes, usage.free_bytes


class DiskSpace:
    """The use of the disks of commit log and consume queues, and whether it leaves room to write.

    A disk is full by its use, or because the log cannot grow. Messages are rejected while either is
    true. Belongs to the event loop's thread.
    """

    def __init__(self, layout: StoreLayout, settings: Callable[[], RetentionSettings]) -> None:
        self._directories = layout.commit_log, layout.consume_queues
        self._settings = settings
        self.disk_usage = _disk_usage
        """Returns the used and usable bytes of the disk that holds a path."""
        self.used_percents = (UNKNOWN_PERCENT, UNKNOWN_PERCENT)
        """The use of the disks of commit log and consume queues at the last check."""
        self.full_reason: str | None = None
        """Why messages are rejected for lack of space; None while they are not."""
        self._full: str | None = None
        self._no_room: str | None = None

    @property
    def is_full(self) -> bool:
        """Whether messages are rejected for lack of space."""
        return self.full_reason is not None

    @property
    def is_growth_blocked(self) -> bool:
        """Whether the commit log could not get its next file, and does not have it yet."""
        return self._no_room is not None

    def note_no_room(self, reason: str) -> None:
        """Reject messages until the next file of the commit log is made."""
        self._no_room = reason
        log.error("the commit log cannot grow", reason=reason)
        self.full_reason = self._full or reason

    def note_growth(self) -> None:
        """The next file of the commit log is made."""
        self._no_room = None
        log.info("the commit log can grow again")
        self.full_reason = self._full

    def may_hold(self, size_bytes: int) -> bool:
        """Return whether a file of that size may fit on the disk of the commit log.

        Raises:
            OSError: the use of the disk is unknown.
        """
        _, usable_bytes = self.disk_usage(self._directories[0])
        return usable_bytes >= size_bytes

    def check(self) -> DiskVerdict:
        """Look at the disks; reject messages, or accept them again."""
        commit_log, consume_queues = self._directories
        percents = self.used_percents = (
            self._compute_used_percent(commit_log),
            self._compute_used_percent(consume_queues),
        )
        verdict = judge_disks(percents, self._settings(), was_full=self._full is not None)
        if verdict.is_full != (self._full is not None):
            self._note_use(max(percents), is_full=verdict.is_full)
        return verdict

    def _compute_used_percent(self, path: Path) -> int:
        # A directory that is made with its first file is on its parent's disk.
        for existing in (path, *path.parents):
            if existing.exists():
                try:
                    return used_percent(*self.disk_usage(existing))
                except OSError as error:
                    log.warning("disk use is unknown", path=str(existing), reason=str(error))
                    break
        return UNKNOWN_PERCENT

    def _note_use(self, percent: int, *, is_full: bool) -> None:
        settings = self._settings()
        if not is_full:
            self._full = None
            log.info("the disk has room again", used_percent=percent)
            self.full_reason = self._no_room
            return
        again = min(settings.clean_forcibly_percent, settings.warning_percent)
        self._full = (
            f"the disk is {percent} % full, and messages are refused above "
            f"{settings.warning_percent} %: free space, or lower fileReservedTime; they are "
            f"accepted again at {again} %"
        )
        log.error("the disk is full", used_percent=percent, refused_above=settings.warning_percent)
        self.full_reason = self._full


class RetentionService:
    """Deletes expired files and watches the disk. Belongs to the event loop's thread."""

    def __init__(
        self,
        layout: StoreLayout,
        commit_log_files: MappedFileQueue,
        queues: ConsumeQueueTable,
        index: MessageIndex | None,
        next_file: NextFile,
        settings: Callable[[], RetentionSettings],
        *,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
    ) -> None:
        """*settings* may return other values in the next round.

        *now_ms* is the clock of store times, which never goes back, even after the wall clock
        showed a wrong time. So a message's age is limited by *wall_ms*, which also decides the
        hour of the day.
        """
        self._layout = layout
        self._files = commit_log_files
        self._queues = queues
        self._index = index
        self._settings_now = settings
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self.trusted_ms = TrustedTime(layout.own, wall_ms, _monotonic_ms)
        """The upper bound of the time by which the age of messages counts."""
        self._next_file = next_file
        self.is_started = False
        """Whether it works; before, an age counts by the store's clock, and no disk is full."""
        self.space = DiskSpace(layout, lambda: self._settings)
        self.delete_before: int | None = None
        """On a follower: files that end at or before this offset are deleted, and no others."""
        self._followed_min_offset = commit_log_files.min_offset
        self._last_times: dict[int, FileTime] = {}
        self._to_delete: list[MappedFile] = []
        self._is_start_noted = True
        self._task: asyncio.Task[None] | None = None
        self.asked = asyncio.Event()

    def ask(self) -> None:
        """Delete expired files now, whatever deleteWhen says."""
        self.asked.set()

    @property
    def _settings(self) -> RetentionSettings:
        return self._settings_now().clamped()

    def counted_ms(self) -> int:
        """Return the time by which the age of messages counts, in milliseconds since 1970."""
        if not self.is_started:
            return self._now_ms()
        return self._counted_ms(self.trusted_ms(self._settings.reserved_ms))

    def _counted_ms(self, trusted_ms: int) -> int:
        return min(self._now_ms(), trusted_ms)

    def log_cannot_grow(self, reason: str) -> None:
        """Treat the disk as full until the next file of the commit log is made."""
        if self.is_started and not self.space.is_growth_blocked:
            self.space.note_no_room(reason)
            self.ask()

    def expire_before(self, min_offset: int) -> None:
        """From now on, let only files before *min_offset* expire."""
        if self.is_started:
            self.delete_before = min_offset

    async def start(self) -> None:
        """Check the disk, and continue to do so in a task."""
        self.is_started = True
        self.counted_ms()
        self.space.check()
        self._task = keep_running(self._run, "retention")

    async def stop(self) -> None:
        """End the task; a deletion that has begun is completed."""
        if self._task is not None:
            end_task(self._task)
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run(self) -> None:
        while True:
            pause_ms = self._settings.interval_ms
            if self.space.is_full:
                pause_ms = min(pause_ms, FULL_DISK_INTERVAL_MS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_ms / 1000):
                    await self.asked.wait()
            try:
                await self.run_once()
            except OSError as error:
                log.error("expired files could not be deleted", reason=str(error))

    async def run_once(self) -> int:
        """Do one round and return how many commit log files were deleted.

        Raises:
            OSError: a file could not be deleted; the next round tries again.
        """
        trusted_ms = self.trusted_ms(self._settings.reserved_ms)
        with contextlib.suppress(OSError):
            await complete_in_thread(self.trusted_ms.note)
        await self._delete_detached()
        if not self._is_start_noted:
            await complete_in_thread(self._note_start)
        verdict = self.space.check()
        deleted = 0
        is_time = self.asked.is_set() or is_cleaning_hour(
            self._settings.delete_when, self._wall_ms()
        )
        self.asked.clear()
        is_pressed = verdict.is_pressed or self.space.is_growth_blocked
        if self.delete_before is not None or is_pressed or is_time:
            hard = verdict.is_pressed_hard and self._settings.clean_forcibly
            deleted = await self._delete_commit_log_files(trusted_ms, regardless_of_age=hard)
        if self.space.is_growth_blocked:
            await self._grow()
        if self._files.min_offset != self._followed_min_offset:
            await self._follow(self._files.min_offset)
        return deleted

    async def _grow(self) -> None:
        """Make the next file of the commit log if there may be space for it."""
        with contextlib.suppress(OSError):
            # Others need the rest of the disk: do not fill it just to see that it is too small.
            if self.space.may_hold(self._files.file_size_bytes):
                await asyncio.shield(asyncio.wrap_future(self._next_file.make()))
                self.space.note_growth()

    async def _delete_commit_log_files(self, trusted_ms: int, *, regardless_of_age: bool) -> int:
        candidates = self._files.files[:-1]
        if self.delete_before is not None:
            count = sum(file.end_offset <= self.delete_before for file in candidates)
        else:
            now_ms = self._counted_ms(trusted_ms)
            times = (
                last_time_ms(map(self._last_time, candidates[number:]), now_ms)
                for number in range(len(candidates))
            )
            count = expired_count(
                times,
                now_ms,
                self._settings,
                regardless_of_age=regardless_of_age,
            )
        for number, file in enumerate(candidates[:count]):
            if number:
                await asyncio.sleep(self._settings.delete_interval_ms / 1000)
            self._to_delete += self._files.detach_first(1)
            self._last_times.pop(file.base_offset, None)
            tell = log.warning if regardless_of_age else log.info
            tell(
                "a commit log file is deleted",
                path=str(file.path),
                regardless_of_age=regardless_of_age,
            )
            await self._delete_detached()
        return count

    async def _delete_detached(self) -> None:
        """Delete files from disk that are no longer in the log: a gigabyte can take a while."""
        while self._to_delete:
            await complete_in_thread(self._delete, self._to_delete[0])
            self._to_delete.pop(0)

    def _delete(self, file: MappedFile) -> None:
        self._note_start(file)
        file.delete()
        disk.sync_directory(file.path.parent)
        if not self._is_start_noted:
            self._note_start()

    def _note_start(self, leaving: MappedFile | None = None) -> None:
        """Record where the log begins; if the disk is full, a later round retries."""
        self._is_start_noted = False
        with contextlib.suppress(OSError):
            log_identity.save_start(self._layout, self._files.min_offset, leaving)
            self._is_start_noted = True

    def _last_time(self, file: MappedFile) -> FileTime:
        """Return the times of a full file, which no longer changes."""
        known = self._last_times.get(file.base_offset)
        if known is None:
            written_ms = int(file.path.stat().st_mtime * 1000)
            stored_ms = last_store_time_ms(file)
            known = FileTime(written_ms if stored_ms is None else stored_ms, written_ms)
            self._last_times[file.base_offset] = known
        return known

    async def _follow(self, commit_log_min: int) -> None:
        """Delete the files of queues and index whose records the commit log no longer has."""
        deleted = 0
        for queue in self._queues:
            deleted += queue.delete_expired(commit_log_min)
            await asyncio.sleep(0)
        if self._index is not None:
            deleted += self._index.delete_expired(commit_log_min)
        self._followed_min_offset = commit_log_min
        log.info(
            "queues and index trimmed to the commit log", min_offset=commit_log_min, files=deleted
        )
