"""Standard streams that are closed (``2>&-``, some supervisors) or accept no more output.

The next file that a process opens gets the number of a closed stream, and printed text would be
written to it.
"""

import contextlib
import errno
import os
import sys
from collections.abc import Iterator

_WRITE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
_DESCRIPTORS = {0: "stdin", 1: "stdout", 2: "stderr"}


def open_standard_streams() -> None:
    """Open /dev/null as each closed descriptor from 0 to 2; call it before anything else."""
    while True:
        descriptor = os.open(os.devnull, os.O_RDWR)
        if descriptor not in _DESCRIPTORS:
            os.close(descriptor)
            break
        os.set_inheritable(descriptor, True)
    for descriptor, name in _DESCRIPTORS.items():
        if getattr(sys, name) is None:
            mode = "r" if descriptor == 0 else "w"
            stream = open(descriptor, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


@contextlib.contextmanager
def use_standard_streams(program: str) -> Iterator[None]:
    """Open closed streams; exit with code 1 and one sentence if the output cannot be written.

    Raises:
        SystemExit: a stream failed, as on a full disk. Errors of named files are not caught.
    """
    open_standard_streams()
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno not in _WRITE_ERRORS:
            raise
        abandon_output()
        with contextlib.suppress(OSError):
            print(f"{program}: reading or writing failed: {error.strerror}", file=sys.stderr)
        sys.exit(1)


def abandon_output() -> None:
    """Discard further standard output: Python flushes it again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
