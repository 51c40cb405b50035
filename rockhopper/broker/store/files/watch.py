"""StoreWatch: checks that the files of the store are still where they were.

If the lock file is deleted, a second broker can open the store. If the directory of the commit log
is deleted or moved, the broker keeps writing to files that nobody will find. Neither makes a write
or an fsync fail. So now and then the inodes behind the names are compared with the first ones seen.
A check costs three calls of ``stat``.
"""

import os
from collections.abc import Callable
from pathlib import Path

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue

Identity = tuple[int, int]


class StoreWatch:
    """Checks the lock file and the commit log of an open store; for one thread."""

    def __init__(
        self, layout: StoreLayout, files: MappedFileQueue, is_locked: Callable[[], bool]
    ) -> None:
        """*files* are those of the commit log, whose directory exists."""
        self._layout = layout
        self._files = files
        self._is_locked = is_locked
        self._directory = _identity_at(layout.commit_log)
        self._newest: tuple[Path | None, Identity | None] = (None, None)

    def what_is_lost(self) -> str | None:
        """Return a sentence that says what is missing and what to do; None if all is well."""
        if not self._is_locked():
            return (
                f"{self._layout.lock} was deleted or replaced, and with it the lock that keeps "
                f"other brokers out: make sure that no other broker runs on {self._layout.root}, "
                "then restart"
            )
        if not self._is_log_in_place():
            return (
                f"the commit log in {self._layout.commit_log} was deleted, moved, replaced or "
                "truncated: restore it (is its disk still mounted?), then restart"
            )
        return None

    def _is_log_in_place(self) -> bool:
        if _identity_at(self._layout.commit_log) != self._directory:
            return False
        newest = self._files.files[-1].path
        status = _status(newest)
        if status is None or status.st_size < self._files.file_size_bytes:
            return False
        identity = status.st_dev, status.st_ino
        if newest != self._newest[0]:
            self._newest = newest, identity
        return identity == self._newest[1]


def _identity_at(path: Path) -> Identity | None:
    status = _status(path)
    return None if status is None else (status.st_dev, status.st_ino)


def _status(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None
