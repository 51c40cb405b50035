"""The objects of a backup: small files named by their contents, stored once, compressed."""

import hashlib
import os
import zlib
from collections.abc import Callable
from pathlib import Path

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import CorruptFileError

_TRIES = 50


class Objects:
    """The directory of the objects."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def store_object(self, data: bytes) -> str:
        """Store *data* durably; return its name. Raises OSError."""
        name = hashlib.sha256(data).hexdigest()
        path = self._directory / name
        if not path.exists():
            disk.write_atomically(path, zlib.compress(data, 1))
        return name

    def get(self, name: str) -> bytes:
        """Return a stored object. Raises CorruptFileError, OSError."""
        path = self._directory / name
        try:
            data = zlib.decompress(path.read_bytes())
        except zlib.error as error:
            raise CorruptFileError(
                path, f"this object of the backup is damaged ({error})"
            ) from None
        if hashlib.sha256(data).hexdigest() != name:
            raise CorruptFileError(path, "this object of the backup differs from what was written")
        return data

    def keep_only(self, names: set[str]) -> int:
        """Delete all other objects; return their number. Raises OSError."""
        others = [path for path in self._directory.iterdir() if path.name not in names]
        return disk.remove_files(others)


def snapshot(find: Callable[[], list[Path]]) -> dict[Path, bytes]:
    """Return the contents of the files that *find* returns, in one consistent state.

    Brokers replace tables and start new journals. A copy counts only if no file was replaced while
    it was made. Files that are only appended to may have grown by its end.

    Raises:
        OSError: a file cannot be read, or files are replaced all the time.
    """
    for _ in range(_TRIES):
        before = _identities(find())
        try:
            found = {path: path.read_bytes() for path in before}
        except FileNotFoundError:
            continue
        if _identities(find()) == before:
            return found
    raise OSError("the tables change faster than they can be copied: try again")


def _identities(paths: list[Path]) -> dict[Path, tuple[int, int]]:
    found = {}
    for path in paths:
        try:
            status = os.stat(path)
        except FileNotFoundError:
            continue
        found[path] = status.st_ino, status.st_dev
    return found
