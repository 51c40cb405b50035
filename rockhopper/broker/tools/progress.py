"""Show the progress of a tool: a bar on a terminal's standard error, nothing elsewhere."""

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress


class Bar:
    """A bar from *start* to *end*; ``set_position`` moves it. It shows nothing without a terminal.

    Without *end* it shows only the activity and the elapsed time.
    """

    def __init__(self, what: str, start: int = 0, end: int | None = None) -> None:
        self._what = what
        self._start = start
        self._total = None if end is None else max(end - start, 1)
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                DownloadColumn,
                Progress,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
                TransferSpeedColumn,
            )

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=None),
                *(
                    (TimeElapsedColumn(),)
                    if self._total is None
                    else (DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
                ),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.add_task(self._what, total=self._total)
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def set_position(self, position: int) -> None:
        """Set the current position."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=position - self._start)
