"""The lock of a store, for a job that changes its files; a broker takes the same lock.

It is an exclusive record lock on the first byte of the file ``lock``, like RocketMQ's. The
operating system releases it when this process ends, or when this process closes any descriptor of
that file. So no code in this process may open the file while the lock is held.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rockhopper.pipeline.errors import PipelineError
from rockhopper.protocol.store.store_paths import LOCK_FILE


@contextmanager
def lock_store(root: Path) -> Iterator[None]:
    """Hold the lock of the store in *root*.

    Raises:
        PipelineError: a broker, or another job, holds it.
    """
    descriptor = os.open(root / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError:
            raise make_in_use_error(root) from None
        yield
    finally:
        os.close(descriptor)


def make_in_use_error(root: Path) -> PipelineError:
    """Return the error for a store in use by a broker."""
    return PipelineError(
        f"a broker runs on the store {root}: stop it first, or rebuild into another directory "
        "with --output (output)"
    )
