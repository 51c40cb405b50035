"""The installed version of Rockhopper."""

import os
import sys
from functools import cache

DISTRIBUTION = "rockhopper-mq"


@cache
def own_version() -> str:
    """Return the installed version; "unknown" in a folder that was never installed."""
    return _find_in_names() or _find_in_metadata()


def _find_in_names() -> str | None:
    """Return the version in the name of a folder of metadata; None if there is no such folder.

    Importing importlib.metadata, which finds other forms too, takes longer than starting Python.
    """
    prefix, suffix = DISTRIBUTION.replace("-", "_") + "-", ".dist-info"
    for folder in sys.path:
        try:
            names = os.listdir(folder or os.curdir)
        except OSError:
            continue
        for name in names:
            if name.startswith(prefix) and name.endswith(suffix):
                return name[len(prefix) : -len(suffix)]
    return None


def _find_in_metadata() -> str:
    from importlib import metadata

    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "unknown"
