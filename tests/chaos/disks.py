"""Disks in files: an ext4 file system whose image can be cloned instantly while it is in use.

``reflink/`` is xfs with reflink=1, in a file of the workshop, mounted on a loop device. In it,
``disk-0.img`` is ext4, mounted on its own loop device, where a broker writes. ``disk-0-cut-7.img``
is a ``cp --reflink`` of it: the disk as it was at that moment.
"""

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from tests.chaos.workshop import clear, run

RESERVED_BYTES = 8 << 30
"""The size of the reflink file system, which is sparse: it uses only the bytes that are written."""
DISK_BYTES = 192 << 20


class ReflinkDisk:
    """A file system for images that are cloned."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._numbers = itertools.count()

    @classmethod
    @contextlib.contextmanager
    def made(cls, directory: Path) -> Iterator["ReflinkDisk"]:
        """Create and mount one in *directory*."""
        image, point = directory / "reflink.img", directory / "reflink"
        _make_sparse(image, RESERVED_BYTES)
        run("mkfs.xfs", "-q", "-m", "reflink=1", image)
        point.mkdir()
        run("mount", "-o", "loop", image, point)
        try:
            yield cls(point)
        finally:
            clear(point)
            image.unlink(missing_ok=True)

    @contextlib.contextmanager
    def ext4(self, size_bytes: int = DISK_BYTES) -> Iterator["Ext4Disk"]:
        """Create and mount a new disk."""
        disk = self.formatted(size_bytes)
        with disk.mounted():
            yield disk

    def formatted(self, size_bytes: int = DISK_BYTES) -> "Ext4Disk":
        """Create a new disk without mounting it."""
        disk = Ext4Disk(self._root, next(self._numbers))
        _make_sparse(disk.image, size_bytes)
        run("mkfs.ext4", "-q", "-F", "-m", "0", disk.image)
        return disk

    @property
    def root(self) -> Path:
        """The directory of the images, below the disks: a sync here syncs none of them."""
        return self._root


class Ext4Disk:
    """An image and its mount point."""

    def __init__(self, root: Path, number: int) -> None:
        self._root = root
        self._number = number
        self._cuts = itertools.count()
        self.image = root / f"disk-{number}.img"
        self.point = root / f"disk-{number}"

    @contextlib.contextmanager
    def mounted(self) -> Iterator[Path]:
        """Mount the disk, and unmount it at the end."""
        self.point.mkdir()
        try:
            run("mount", "-o", "loop", self.image, self.point)
            yield self.point
        finally:
            clear(self.point)
            self.image.unlink(missing_ok=True)

    def cut(self) -> "Ext4Disk":
        """Return the disk as it would be if the power failed now."""
        clone = Ext4Disk(self._root, self._number)
        name = f"disk-{self._number}-cut-{next(self._cuts)}"
        clone.image, clone.point = self._root / f"{name}.img", self._root / name
        run("cp", "--reflink=always", self.image, clone.image)
        return clone


def _make_sparse(path: Path, size_bytes: int) -> None:
    with path.open("xb") as file:
        os.ftruncate(file.fileno(), size_bytes)
