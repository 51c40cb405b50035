"""A process without a free file descriptor."""

import contextlib
import os
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def no_descriptor_free() -> Iterator[None]:
    """Prevent new descriptors inside the block, except in place of closed ones."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    with contextlib.ExitStack() as gaps:
        while (filler := os.dup(0)) < highest:
            gaps.callback(os.close, filler)
        os.close(filler)
        resource.setrlimit(resource.RLIMIT_NOFILE, (filler, hard))
        gaps.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        yield
