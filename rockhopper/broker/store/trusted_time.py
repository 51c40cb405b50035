"""The time used for deletions: the wall clock, ignoring a recent step forward.

A step of STEP_MS_MIN or more counts once it has lasted for as long as messages are kept, and never
if it is taken back before: files that a wrong clock deletes do not come back with the right one. By
then all messages stored before the step have really reached the age at which they expire.

So that a restart neither trusts nor forgets a step, the time is saved in
``<root>/rockhopper/trusted-time.json``, a checked line:

    {"time": <milliseconds since 1970>, "held": <how long a step has lasted by then, in ms>}

Example: messages are kept for 72 hours, and the clock jumps ahead by a year. Nothing expires by the
new time. If the clock is corrected within 72 hours, nothing was deleted too early; otherwise the
new time counts from then on.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from rockhopper.broker.store.files import checked_line, disk

log = structlog.get_logger("broker.store")

FILE_NAME = "trusted-time.json"
STEP_MS_MIN = 3_600_000
STEP_HELD_MS_MIN = 24 * 3_600_000
NOTE_INTERVAL_MS = 600_000


class TrustedTime:
    """Call it more often than every STEP_MS_MIN, in one thread; ``note`` may run in any other."""

    def __init__(
        self,
        directory: Path,
        wall_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._path = directory / FILE_NAME
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms
        self.written_ms = 0
        """When the store was written last, for one without a saved time; 0: unknown."""
        self._ahead_ms: int | None = None
        self._seen_ms = 0
        self._held_ms = 0
        self._stepped_ahead_ms: int | None = None
        """How far the untrusted wall clock is ahead of the monotonic one."""
        self._noted_ms: int | None = None

    def __call__(self, reserved_ms: int) -> int:
        """Return milliseconds since 1970; messages are kept for *reserved_ms*."""
        monotonic_ms = self._monotonic_ms()
        ahead_ms = self._wall_ms() - monotonic_ms
        if self._ahead_ms is None:
            self._ahead_ms = self._first_ms(monotonic_ms + ahead_ms) - monotonic_ms
        elif self._stepped_ahead_ms is not None:
            self._held_ms += monotonic_ms - self._seen_ms
        self._seen_ms = monotonic_ms
        if ahead_ms - self._ahead_ms < STEP_MS_MIN:
            if self._stepped_ahead_ms is not None:
                log.info(
                    "the clock was set back to the right time: no file was deleted by the wrong "
                    "time"
                )
            self._trust(ahead_ms)
        elif self._stepped_ahead_ms is None or ahead_ms - self._stepped_ahead_ms >= STEP_MS_MIN:
            if self._stepped_ahead_ms is not None:
                self._held_ms = 0
            self._stepped_ahead_ms, self._noted_ms = ahead_ms, None
            log.warning(
                "the clock is hours ahead of the time that this broker counted: it was set "
                "forward, or the broker was suspended. Retention uses the old time until the new "
                "one has held for as long as messages are kept",
                by_s=(ahead_ms - self._ahead_ms) // 1000,
            )
        elif self._held_ms >= max(reserved_ms, STEP_HELD_MS_MIN):
            self._trust(ahead_ms)
        return monotonic_ms + self._ahead_ms

    def note(self) -> None:
        """Save the time for the next start, unless it was saved recently. Blocks.

        Raises:
            OSError: the former time is still in place.
        """
        if self._ahead_ms is None or (
            self._noted_ms is not None and self._seen_ms - self._noted_ms < NOTE_INTERVAL_MS
        ):
            return
        noted_ms, seen_ms = self._noted_ms, self._seen_ms
        document = {"time": seen_ms + self._ahead_ms, "held": self._held_ms}
        disk.make_directories_durably(self._path.parent)
        disk.write_atomically(self._path, checked_line.encode(document))
        if self._noted_ms == noted_ms:
            self._noted_ms = seen_ms

    def _trust(self, ahead_ms: int) -> None:
        if self._stepped_ahead_ms is not None:
            self._stepped_ahead_ms = self._noted_ms = None
        self._ahead_ms, self._held_ms = ahead_ms, 0

    def _first_ms(self, wall_ms: int) -> int:
        noted = checked_line.load(
            self._path, _values_of, "the saved store time is damaged and ignored"
        )
        if noted is not None:
            time_ms, self._held_ms = noted
            return time_ms
        return self.written_ms or wall_ms


def _values_of(document: Any) -> tuple[int, int]:
    return int(document["time"]), int(document["held"])
