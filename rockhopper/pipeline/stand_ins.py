"""Directories that replace the home of a program: mostly links, with a few different files."""

import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from rockhopper.paths import expand_home


def stand_in(
    kind: str, home: Path, fill: Callable[[Path], None], is_whole: Callable[[Path], bool]
) -> Path:
    """Return a directory for *home*; *fill* creates it once.

    It is in the user's cache if that is writable. An existing directory is reused if it *is_whole*.
    """
    name = f"{kind}-{re.sub('[^A-Za-z0-9]+', '-', str(home)).strip('-')[-120:]}"
    try:
        cache = expand_home(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "rockhopper-mq"
        cache.mkdir(parents=True, exist_ok=True)
        return _made(cache, name, fill, is_whole)
    except OSError:
        return _made(Path(tempfile.mkdtemp(prefix="rockhopper-")), name, fill, is_whole)


def _made(
    directory: Path, name: str, fill: Callable[[Path], None], is_whole: Callable[[Path], bool]
) -> Path:
    made = directory / name
    if is_whole(made):
        return made
    # Another process may create the same directory: create it under another name, then rename it.
    aside = Path(tempfile.mkdtemp(prefix=f".{name[:40]}-", dir=directory))
    fill(aside)
    try:
        aside.rename(made)
    except OSError:
        if is_whole(made):
            shutil.rmtree(aside, ignore_errors=True)
        else:
            shutil.rmtree(made, ignore_errors=True)
            aside.rename(made)
    return made
