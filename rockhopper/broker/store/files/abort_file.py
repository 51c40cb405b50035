"""The ``abort`` file exists while a broker runs: found at a start, it means an unclean stop.

The file holds the process id as text. The broker writes it right after it takes the lock, and makes
it durable before it changes anything else. RocketMQ writes it last, which leaves a window in which
a crash looks like a clean stop.
"""

import os
from pathlib import Path

from rockhopper.broker.store.files.disk import remove_files, write_atomically


def was_left_in_use(path: Path) -> bool:
    """Return whether the last run did not stop cleanly. Call it before ``mark_in_use``."""
    return path.exists()


def mark_in_use(path: Path) -> None:
    """Mark the store as in use, durably."""
    write_atomically(path, str(os.getpid()).encode())


def mark_stopped(path: Path) -> None:
    """Mark the store as stopped cleanly, durably. This is the last step of closing a store."""
    remove_files([path])
