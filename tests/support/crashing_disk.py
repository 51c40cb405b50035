"""A directory tree that, after a simulated power cut, loses everything that was not fsynced."""

import os
import shutil
import stat
from pathlib import Path

import pytest

from rockhopper.broker.store.files import disk


class PowerCutError(Exception):
    """The machine stopped here."""


class CrashingDisk:
    """Replaces the calls that sync files, and remembers what a disk would hold.

    The model is the strict reading of POSIX: bytes survive if their file was synced after they were
    written, through a mapping or not. Names (creations, renames, deletions) survive if their
    directory was synced. The initial contents of the tree are durable.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._root = root
        self._names: dict[int, dict[str, int]] = {}  # directory inode -> name -> inode
        self._bytes: dict[int, bytes] = {}  # file inode -> content
        self._pins: dict[int, int] = {}  # inode -> descriptor, so that no inode is reused
        self.syncs_before_cut: int | None = None
        self.sync_count = 0
        self._adopt(root)
        monkeypatch.setattr(os, "fsync", self.sync)
        monkeypatch.setattr(os, "fdatasync", self.sync)
        monkeypatch.setattr(disk, "sync_file_system", self.sync_all)

    def sync(self, descriptor: int) -> None:
        """Make a file's bytes, or a directory's names, durable."""
        self._count()
        self._remember(descriptor)

    def sync_all(self, _: int) -> bool:
        """Make the whole tree durable, as the sync of its file system does."""
        self._count()
        self._adopt(self._root)
        return True

    def _count(self) -> None:
        if self.syncs_before_cut is not None and self.sync_count >= self.syncs_before_cut:
            raise PowerCutError
        self.sync_count += 1

    def _remember(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        inode = status.st_ino
        if inode not in self._pins:
            self._pins[inode] = os.dup(descriptor)
        path = f"/proc/self/fd/{descriptor}"
        if stat.S_ISDIR(status.st_mode):
            entries = list(os.scandir(path))
            self._names[inode] = {entry.name: entry.inode() for entry in entries}
            for entry in entries:
                if entry.is_dir():
                    self._know_directory(entry)
        else:
            self._bytes[inode] = Path(path).read_bytes()

    def _know_directory(self, entry: "os.DirEntry[str]") -> None:
        """Record a directory as durable by name, even if nothing in it is durable yet."""
        if entry.inode() not in self._pins:
            self._pins[entry.inode()] = os.open(entry.path, os.O_RDONLY)

    def _adopt(self, directory: Path) -> None:
        for path in (directory, *directory.rglob("*")):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                self._remember(descriptor)
            finally:
                os.close(descriptor)

    def crash(self) -> None:
        """Simulate the power cut: restore only durable data. Close all open files first."""
        root_inode = self._root.stat().st_ino
        for path in tuple(self._root.iterdir()):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        self._restore(self._root, root_inode)
        self._adopt(self._root)
        self.syncs_before_cut = None

    def _restore(self, directory: Path, inode: int) -> None:
        for name, child in self._names.get(inode, {}).items():
            path = directory / name
            if child in self._names or self._is_directory(child):
                path.mkdir()
                self._restore(path, child)
            else:
                path.write_bytes(self._bytes.get(child, b""))

    def _is_directory(self, inode: int) -> bool:
        pin = self._pins.get(inode)
        return pin is not None and stat.S_ISDIR(os.fstat(pin).st_mode)

    def cut_after(self, syncs: int) -> None:
        """Raise PowerCutError from the sync after the next *syncs* ones."""
        self.sync_count = 0
        self.syncs_before_cut = syncs

    def close(self) -> None:
        """Release the inodes."""
        for descriptor in list(self._pins.values()):
            os.close(descriptor)
        self._pins.clear()
