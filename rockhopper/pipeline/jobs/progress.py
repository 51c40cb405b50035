"""Show the progress of a job: a bar on a terminal, otherwise a line now and then."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

_LINE_EVERY_S = 10.0


class JobProgress:
    """One step at a time, each with a label and an optional total.

    One thread updates it, while rich draws in its own thread; it is thread-safe enough for that.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        is_wanted: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Show nothing without *stream*, or if *is_wanted* is false."""
        self._stream = stream if is_wanted else None
        self._clock = clock
        self._is_terminal = self._stream is not None and self._stream.isatty()
        self._bar: Bar | None = None
        self._task: Any = None
        self._label = ""
        self._total: int | None = None
        self._done = 0
        self._next_line_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def step(self, label: str, total: int | None = None) -> None:
        """Start a new step; the previous one is done."""
        self._label, self._total, self._done = label, total, 0
        self._next_line_at = self._clock() + _LINE_EVERY_S
        if self._is_terminal:
            bar = self._bar or self._make_bar()
            if self._task is not None:
                bar.remove_task(self._task)
            self._task = bar.add_task(label, total=total)
        else:
            self._line(label)

    def reach(self, done: int, note: str = "") -> None:
        """Set how much of the step is done."""
        self._done = done
        label = f"{self._label} ({note})" if note else self._label
        if self._bar is not None:
            self._bar.update(self._task, completed=done, description=label)
        elif self._clock() >= self._next_line_at:
            self._next_line_at = self._clock() + _LINE_EVERY_S
            of = f" of {self._total:,}" if self._total is not None else ""
            self._line(f"{label}: {done:,}{of}")

    def advance(self, count: int = 1, note: str = "") -> None:
        """Add to the amount that is done."""
        self.reach(self._done + count, note)

    def say(self, text: str) -> None:
        """Print a text that stays on the screen."""
        if self._bar is not None:
            self._bar.console.print(text, highlight=False, markup=False)
        else:
            self._line(text)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
            self._task = None

    def _line(self, text: str) -> None:
        if self._stream is not None:
            print(text, file=self._stream, flush=True)

    def _make_bar(self) -> "Bar":
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
        )
        from rich.progress import Progress as Bar

        self._bar = Bar(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(file=self._stream),
            transient=True,
        )
        self._bar.start()
        return self._bar
