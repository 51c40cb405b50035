"""The lock of a store, for a job that changes its files: a broker takes the same before it reads.

It is an exclusive record lock on the first byte of the file ``lock``, as RocketMQ takes it. The
system drops it when this process ends, and also when this process closes any descriptor of that
file, so nobody here may open the file in between.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rockhopper.pipeline.errors import PipelineError
from rockhopper.protocol.store.store_paths import LOCK_FILE


@contextmanager
def locked_store(root: Path) -> Iterator[None]:
    """Hold the lock of the store in *root*.

    Raises:
        PipelineError: a broker, or another job, has it.
    """
    descriptor = os.open(root / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError:
            raise in_use(root) from None
        yield
    finally:
        os.close(descriptor)


def in_use(root: Path) -> PipelineError:
    """What to say when a broker runs on the store."""
    return PipelineError(
        f"a broker runs on the store {root}: stop it first, or rebuild into another directory "
        "with --output (output)"
    )
