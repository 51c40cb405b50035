"""The ``abort`` file: it exists while a broker runs, so finding one means the last run was cut off.

It holds the process id as text. It is written right after the lock is taken and is durable before
anything else is changed; RocketMQ writes it last, which leaves a window in which a crash passes
for a clean stop.
"""

import os
from pathlib import Path

from rockhopper.broker.store.files.disk import remove_files, write_atomically


def was_left_behind(path: Path) -> bool:
    """Whether the last run did not stop cleanly; ask before ``create``."""
    return path.exists()


def create(path: Path) -> None:
    """Mark the store as in use, durably."""
    write_atomically(path, str(os.getpid()).encode())


def remove(path: Path) -> None:
    """Mark the store as stopped cleanly, durably; the last step of closing it."""
    remove_files([path])
