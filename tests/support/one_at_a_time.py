"""A lock between processes, for things that two test workers would build in the same place."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def one_at_a_time(directory: Path) -> Iterator[None]:
    """Wait until no other process is in this block with the same existing directory."""
    with (directory / ".building").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
