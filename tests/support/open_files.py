"""The files in a directory that this process holds open."""

import os
from pathlib import Path


def open_files_in(directory: Path) -> list[str]:
    """Return the open files below *directory*, one entry for each descriptor, or mapping only."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:
            continue
        if target.startswith(f"{directory}/"):
            found.append(target)
    with open("/proc/self/maps") as maps:
        mapped = {line.split(maxsplit=5)[-1].strip() for line in maps}
    return found + sorted(path for path in mapped - set(found) if path.startswith(f"{directory}/"))
