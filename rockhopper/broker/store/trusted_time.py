"""The time that deletions go by: the wall clock's, without what it was set forward by lately.

A step of STEP_MS_MIN or more counts when it has stood for as long as messages are kept, and never
if it is taken back before: what a wrong clock deletes does not come back with the right one. By
then all that was stored before the step has truly reached the age at which it may go.

So that a restart neither trusts nor forgets a step, the time is noted in
``<root>/rockhopper/trusted-time.json``, a checked line:

    {"time": <milliseconds since 1970>, "held": <how long a step has stood by then, in ms>}
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
    """Ask it more often than every STEP_MS_MIN, in one thread; ``note`` is for any other."""

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
        """When the store was written last, for one that has no note yet; 0: unknown."""
        self._ahead_ms: int | None = None
        self._seen_ms = 0
        self._held_ms = 0
        self._stepped_ahead_ms: int | None = None
        """How far the wall clock that is not trusted yet is ahead of the monotonic one."""
        self._noted_ms: int | None = None

    def __call__(self, reserved_ms: int) -> int:
        """Milliseconds since 1970, where messages are kept for *reserved_ms*."""
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
        """Keep the time for the next start, if it has not been lately. Blocks.

        Raises:
            OSError: the former note is still in place.
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
