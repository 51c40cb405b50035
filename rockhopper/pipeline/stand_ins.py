"""Directories that stand in for the home of a program: links to most of it, some differs."""

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
    """A directory for *home*, made once by *fill*, in the user's cache if that can be written to.

    One that is there counts if it *is_whole*.
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
    # Another process may make the same one: it is made aside and moved into place whole.
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
