"""RepeatedLines: events that repeat too often are counted, and logged as one line a minute.

Unknown peers can make the broker log: each bad connection is a line, and a loop of them fills a
disk in a day. So each event has a maximum of lines a minute: ``PEER_LINES_MAX`` if it names a
``peer``, else ``LINES_MAX``. Lines beyond it are counted; at the end of the minute the last of them
is logged with ``repeated=N``.

Example: 500 connections that speak no known protocol arrive within a minute. The log has five lines
``closed a connection peer=… reason=…``, and at the end of the minute ``closed a connection peer=…
reason=… repeated=495``, with peer and reason of the last one.
"""

import threading
import time
from collections.abc import Callable

import structlog
from structlog.typing import EventDict, WrappedLogger

WINDOW_S = 60.0
TIMER_MARGIN_S = 0.1
PEER_LINES_MAX = 5
LINES_MAX = 300
# Events are constants of the code. Names made at run time must not fill this table.
EVENTS_MAX = 2000


class _RepeatWindow:
    """The lines of one event since its first one."""

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.count = 0
        self.held_back_count = 0
        self.last_held_back: tuple[str, EventDict] | None = None
        """Level and fields."""


def _start_timer(delay_s: float, function: Callable[[], None]) -> None:
    timer = threading.Timer(delay_s, function)
    timer.daemon = True
    timer.start()


class RepeatedLines:
    """A structlog processor, which must come first: later ones turn a line into text."""

    def __init__(
        self,
        now_s: Callable[[], float] = time.monotonic,
        call_later: Callable[[float, Callable[[], None]], None] = _start_timer,
    ) -> None:
        self._now_s = now_s
        self._call_later = call_later
        self._windows: dict[tuple[str, str], _RepeatWindow] = {}
        self._lock = threading.RLock()

    def __len__(self) -> int:
        """How many events are counted now."""
        return len(self._windows)

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        """Return the line, or hold it back.

        Raises:
            DropEvent: structlog's signal to drop the line; it is counted.
        """
        if method == "debug" or "repeated" in event:
            return event
        name = getattr(logger, "name", "")
        lines_max = PEER_LINES_MAX if "peer" in event else LINES_MAX
        with self._lock:
            window = self._window(name, str(event.get("event")))
            window.count += 1
            if window.count <= lines_max:
                return event
            if not window.held_back_count:
                # A timer that fires early would leave the window as it is.
                left_s = window.began_s + WINDOW_S - self._now_s() + TIMER_MARGIN_S
                self._call_later(max(left_s, 0.0), self.summarize)
            window.held_back_count += 1
            window.last_held_back = method, dict(event)
        raise structlog.DropEvent

    def summarize(self, *, all_of_them: bool = False) -> None:
        """Log how many lines were held back, for each event whose minute is over."""
        due: list[tuple[str, str, EventDict]] = []
        with self._lock:
            now_s = self._now_s()
            for (name, event), window in list(self._windows.items()):
                left_s = window.began_s + WINDOW_S - now_s
                if left_s > 0 and not all_of_them:
                    continue
                del self._windows[name, event]
                if window.last_held_back is not None:
                    method, fields = window.last_held_back
                    # The traceback of one of many shows nothing about the others.
                    fields.pop("exc_info", None)
                    due.append((name, method, {**fields, "repeated": window.held_back_count}))
        for name, method, fields in due:
            getattr(structlog.get_logger(name), method)(**fields)

    def _window(self, name: str, event: str) -> _RepeatWindow:
        now_s = self._now_s()
        window = self._windows.get((name, event))
        if window is None or (now_s >= window.began_s + WINDOW_S and not window.held_back_count):
            if len(self._windows) >= EVENTS_MAX:
                name, event = "", ""
                window = self._windows.get((name, event))
                if window is not None:
                    return window
            window = self._windows[name, event] = _RepeatWindow(now_s)
        return window
