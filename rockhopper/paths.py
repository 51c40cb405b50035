"""Paths that begin with ~, and the home directory, where there may be none.

A container may run under a number that /etc/passwd does not list, without HOME. Python raises a
RuntimeError for that, which nobody expects of a path.
"""

import errno
import os
from pathlib import Path


def expand_home(path: str | os.PathLike[str]) -> Path:
    """Replace ~ or ~user at the beginning of *path*.

    Raises:
        OSError: there is no such home directory; *filename* is the path.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        reason = "no home directory is known: HOME is not set, or there is no such user"
        raise OSError(errno.ENOENT, reason, str(path)) from None
