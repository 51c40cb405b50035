"""The first file of a copied log, which begins where the master's log does, not at 0."""

from pathlib import Path

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import GeometryError
from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue
from rockhopper.protocol.store.store_paths import is_numbered_file


def has_log(directory: Path) -> bool:
    """Return whether *directory* holds files of a commit log."""
    return directory.is_dir() and any(is_numbered_file(path.name) for path in directory.iterdir())


def begin_at(directory: Path, file_size_bytes: int, offset: int) -> None:
    """Make the first file of a log that begins at *offset*; durable on return.

    For a directory without a log, in a store that no process has open.

    Raises:
        GeometryError: no file of that size begins there.
        OSError: the disk is full, or another failure; nothing is left behind.
    """
    if offset % file_size_bytes:
        raise GeometryError(
            f"a log with files of {file_size_bytes} bytes cannot start at {offset}: set "
            "mappedFileSizeCommitLog to the size of the master's files"
        )
    disk.make_directories_durably(directory)
    files = MappedFileQueue(directory, file_size_bytes)
    files.append_file(offset).sync(0)
    files.close()
