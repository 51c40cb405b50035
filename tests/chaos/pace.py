"""Pace: how slow this machine is now, measured beside the broker on the broker's disk.

A promise in milliseconds holds only on a machine that runs ready processes at once and syncs at
once. The delay that the machine adds to a process is added to the promise.

The thread overwrites blocks that the file already has. Syncing it therefore waits for the disk, as
the broker does, but syncs nothing of the broker: neither data nor the file system's journal.
"""

import os
import threading
import time
from collections import deque
from pathlib import Path
from typing import Self

INTERVAL_S = 0.05
REMEMBERED = 400
BLOCK = bytes(4096)


class Pace:
    """A thread that sleeps, writes and syncs, and notes how much longer than expected it took."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "pace"
        self._delays_s: deque[float] = deque([0.0], maxlen=REMEMBERED)
        self._under_way_s: float | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._measure, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._file.unlink(missing_ok=True)

    @property
    def worst_s(self) -> float:
        """The longest delay of the last 20 seconds, including one that still lasts."""
        began_s = self._under_way_s
        lasting_s = 0.0 if began_s is None else time.monotonic() - began_s - INTERVAL_S
        return max(lasting_s, *tuple(self._delays_s))

    def _measure(self) -> None:
        with self._file.open("wb", buffering=0) as file:
            file.write(BLOCK)
            os.fsync(file.fileno())
            while True:
                self._under_way_s = began_s = time.monotonic()
                if self._stop.wait(INTERVAL_S):
                    return
                os.pwrite(file.fileno(), BLOCK, 0)
                os.fdatasync(file.fileno())
                self._delays_s.append(time.monotonic() - began_s - INTERVAL_S)
