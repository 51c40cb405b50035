"""A progress bar on standard error, for long work that a person watches."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_SHOW_AFTER_S = 0.7
_SHOW_EVERY_S = 0.1


class ProgressBar:
    """Counts finished work; the bar appears once the work has taken a while."""

    def __init__(self, label: str, total: int | None, *, is_wanted: bool = True) -> None:
        """`total` is None while unknown. Pass `is_wanted=False` if the output scrolls."""
        self.done = 0
        self._label = label
        self.total = total
        self._is_wanted = is_wanted and sys.stderr.isatty()
        self._show_at = time.monotonic() + _SHOW_AFTER_S
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, count: int = 1) -> None:
        """Add to the count."""
        self.done += count
        if self._is_wanted and (now := time.monotonic()) >= self._show_at:
            self._show_at = now + _SHOW_EVERY_S
            self._show()

    def _show(self) -> None:
        if self._bar is None or self._task is None:
            self._bar, self._task = self._make_bar()
        self._bar.update(self._task, completed=self.done, total=self.total)
        self._bar.refresh()

    def _make_bar(self) -> "tuple[Progress, TaskID]":
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            auto_refresh=False,
        )
        bar.start()
        return bar, bar.add_task(self._label, total=self.total, completed=self.done)
