"""A process that has no file descriptor free."""

import contextlib
import os
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def no_descriptor_free() -> Iterator[None]:
    """Let nothing be opened in this process, but in place of what is closed meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    with contextlib.ExitStack() as gaps:
        while (filler := os.dup(0)) < highest:
            gaps.callback(os.close, filler)
        os.close(filler)
        resource.setrlimit(resource.RLIMIT_NOFILE, (filler, hard))
        gaps.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        yield
