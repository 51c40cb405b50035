"""Which files this process holds open, whatever else it has open."""

import os
from pathlib import Path


def open_files_in(directory: Path) -> list[str]:
    """The files below *directory* that are open or mapped, one entry for each descriptor."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:
            continue
        if target.startswith(f"{directory}/"):
            found.append(target)
    return found
