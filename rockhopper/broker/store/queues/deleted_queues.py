"""The files of deleted queues: moved aside at once, and deleted later.

A topic may have thousands of queues, each with a file. So the directory of all of them is moved to
``<store>/rockhopper/deleted-queues``, and its files are deleted there; after a crash, at the next
start. Files that are not a queue's stay there.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import structlog

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.mapped_file import MappedFile

log = structlog.get_logger("broker.store")


class DeletedQueues:
    """The remains of deleted queues: open files, and the directories that hold them."""

    def __init__(self, files: Iterable[MappedFile] = (), directories: Iterable[Path] = ()) -> None:
        self._files = list(files)
        self._directories = list(directories)

    def __add__(self, other: "DeletedQueues") -> "DeletedQueues":
        return DeletedQueues(self._files + other._files, self._directories + other._directories)

    def remove(self) -> None:
        """Close the files and delete them. Blocks, and may run in any thread.

        Raises:
            OSError: some are left for the next start.
        """
        for file in self._files:
            file.close()
        for directory in self._directories:
            _remove(directory)


def move_queues_aside(topic_directory: Path, aside: Path) -> Path | None:
    """Move the directory of a topic's queues below *aside*, durably; None if it does not exist.

    If that fails, its files are deleted where they are.

    Raises:
        OSError: neither is possible.
    """
    try:
        return _move_queues_aside(topic_directory, aside)
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning(
            "deleting the queues of a topic slowly: their directory cannot be moved",
            directory=str(topic_directory),
            reason=str(error),
        )
        _remove(topic_directory)
        return None


def _move_queues_aside(topic_directory: Path, aside: Path) -> Path:
    disk.make_directories_durably(aside)
    taken = {entry.name for entry in os.scandir(aside)}
    number = len(taken)
    while str(number) in taken:
        number += 1
    target = aside / str(number)
    disk.move(topic_directory, target)
    return target


def remove_queues_aside(aside: Path) -> None:
    """Delete what an earlier process moved aside. Raises OSError."""
    for directory in _list_numbered(aside):
        _remove(directory)


def _remove(topic_directory: Path) -> None:
    for directory in _list_numbered(topic_directory):
        for path in _list_numbered(directory):
            path.unlink(missing_ok=True)
        _remove_directory_if_empty(directory)
    if not _remove_directory_if_empty(topic_directory):
        log.warning(
            "unknown files are left in a deleted topic's directory", directory=str(topic_directory)
        )


def _remove_directory_if_empty(directory: Path) -> bool:
    with contextlib.suppress(OSError):
        directory.rmdir()
    return not directory.exists()


def _list_numbered(directory: Path) -> Iterator[Path]:
    try:
        names = sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        if name.isdecimal():
            yield directory / name
