"""A store as kill -9 leaves it: a copy of a store in use."""

import shutil
from pathlib import Path

# While a thread saves a table, the incomplete file has another name.
_BEING_SAVED = shutil.ignore_patterns("*.tmp")


def copy_killed(root: Path, to: Path) -> Path:
    """Copy the store in *root* to *to*, as the next process finds it after a kill now."""
    shutil.copytree(root, to, ignore=_BEING_SAVED)
    return to
