"""A store as kill -9 leaves it: a copy of one that is still in use."""

import shutil
from pathlib import Path

# A table that a thread just saves has a name of its own until it is whole.
_BEING_SAVED = shutil.ignore_patterns("*.tmp")


def copy_killed(root: Path, to: Path) -> Path:
    """What a store in *root* looks like to the next process when this one is killed now."""
    shutil.copytree(root, to, ignore=_BEING_SAVED)
    return to
