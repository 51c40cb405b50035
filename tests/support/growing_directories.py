"""Directories in which another process is creating and deleting files."""

import os
from pathlib import Path


def count_files(directory: Path, part: str) -> int:
    """Count the files under *directory* with *part* in their name; deleted files do not count."""
    return sum(part in name for _, _, names in os.walk(directory) for name in names)
