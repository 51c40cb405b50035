"""The objects of a backup: small files by what they hold, each once, compressed."""

import hashlib
import os
import zlib
from collections.abc import Callable
from pathlib import Path

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import CorruptFileError

_TRIES = 50


class Objects:
    """The directory of them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def put(self, data: bytes) -> str:
        """Keep *data*, durably; return its name. Raises OSError."""
        name = hashlib.sha256(data).hexdigest()
        path = self._directory / name
        if not path.exists():
            disk.write_atomically(path, zlib.compress(data, 1))
        return name

    def get(self, name: str) -> bytes:
        """What was kept. Raises CorruptFileError, OSError."""
        path = self._directory / name
        try:
            data = zlib.decompress(path.read_bytes())
        except zlib.error as error:
            raise CorruptFileError(
                path, f"this object of the backup is damaged ({error})"
            ) from None
        if hashlib.sha256(data).hexdigest() != name:
            raise CorruptFileError(path, "this object of the backup is not what was put there")
        return data

    def keep_only(self, names: set[str]) -> int:
        """Delete all others; how many they were. Raises OSError."""
        others = [path for path in self._directory.iterdir() if path.name not in names]
        return disk.remove_files(others)


def snapshot(find: Callable[[], list[Path]]) -> dict[Path, bytes]:
    """What the files that *find* finds hold, all at one time as far as files were replaced.

    Tables are replaced and journals begun anew by their broker; a copy counts if none was between
    its begin and its end. What is only appended to may be longer by then.

    Raises:
        OSError: a file cannot be read, or they are replaced all the time.
    """
    for _ in range(_TRIES):
        before = _identities(find())
        try:
            found = {path: path.read_bytes() for path in before}
        except FileNotFoundError:
            continue
        if _identities(find()) == before:
            return found
    raise OSError("the tables are replaced faster than they can be copied: try again")


def _identities(paths: list[Path]) -> dict[Path, tuple[int, int]]:
    found = {}
    for path in paths:
        try:
            status = os.stat(path)
        except FileNotFoundError:
            continue
        found[path] = status.st_ino, status.st_dev
    return found
