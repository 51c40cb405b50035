"""Paths from users and from data: ~, and names that must stay below a directory.

There may be no home directory: a container may run under a number that /etc/passwd does not list,
without HOME. Python raises a RuntimeError for that, which callers do not expect of a path.
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


def check_relative(name: str) -> str:
    """Return *name* if it is the relative path of a file below its directory.

    For names from data, as in a manifest, which another party may have written.

    Raises:
        ValueError: it is not; the message says so.
    """
    parts = name.replace(os.sep, "/").split("/")
    if any(part in ("", ".", "..") for part in parts) or "\0" in name or Path(name).drive:
        raise ValueError(f"{name!r} is not the path of a file below its directory")
    return name


def check_inside(root: Path, name: str) -> Path:
    """Return the path of *name* below *root*; symbolic links must not lead out either.

    Raises:
        ValueError: it leads elsewhere; the message says so.
    """
    path = root / check_relative(name)
    if not path.resolve().is_relative_to(root.resolve()):
        raise ValueError(f"{name!r} leads out of its directory, by a symbolic link")
    return path
