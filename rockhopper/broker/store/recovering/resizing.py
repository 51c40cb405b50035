"""Restore the size of numbered files that differ in size from the others.

An interrupted copy, a repaired file system or an editor may leave files too short or too long.
Their names still show where their bytes belong, so the store need not be refused: the original file
is copied to the quarantine, then it is cut or extended with zeros in place. Its lost bytes are
damage like any other: a hole in the log, or units that are restored from the log.

The sizes of the files, the size saved in the inventory and the configured size vote for the right
size; the numbers in the names must be multiples of it. On a tie nothing is changed, and loading the
files fails.

A crash in the middle leaves the copy, and a file that the next start finds and repairs. All queues
with resized files must be compared with the log. Until that is done, ``rockhopper/resized-queues``
lists their directories below the root, one a line.
"""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import structlog

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import disk
from rockhopper.protocol.store.store_paths import is_numbered_file

log = structlog.get_logger("broker.store")

_RESIZED_FILE = "resized-queues"
# The votes of a file, the inventory and the settings for a size.
_VOTES_OF_FILE, _VOTES_OF_NOTE, _VOTES_OF_SETTING = 2, 3, 1


class FoundFile(NamedTuple):
    """A numbered file as it was found."""

    base_offset: int
    size_bytes: int
    path: Path


def find(directory: Path) -> list[FoundFile]:
    """Return the numbered files of *directory*, oldest first; none without a directory."""
    try:
        entries = [entry for entry in os.scandir(directory) if is_numbered_file(entry.name)]
    except FileNotFoundError:
        return []
    return sorted(
        FoundFile(int(entry.name), entry.stat().st_size, Path(entry.path))
        for entry in entries
        if entry.is_file()
    )


def common_size(
    found: Iterable[FoundFile], unit_size_bytes: int, noted_bytes: int, configured_bytes: int
) -> int | None:
    """Return the size that the files *found* should have; None if nothing decides it."""
    found = list(found)
    votes = Counter({configured_bytes: _VOTES_OF_SETTING})
    votes[noted_bytes] += _VOTES_OF_NOTE
    for file in found:
        votes[file.size_bytes] += _VOTES_OF_FILE
    fitting = [
        size
        for size, _ in votes.most_common()
        if size > 0
        and size % unit_size_bytes == 0
        and not any(file.base_offset % size for file in found)
    ]
    if not fitting or (len(fitting) > 1 and votes[fitting[0]] == votes[fitting[1]]):
        return None
    return fitting[0]


def odd_files(queues: Iterable[Sequence[FoundFile]], size_bytes: int) -> list[FoundFile]:
    """Return the files of *queues*, each oldest first, that have another size.

    An empty last file is not returned: it was being made when the last run was killed.
    """
    return [
        file
        for files in queues
        for file in files
        if file.size_bytes != size_bytes and (file.size_bytes or file is not files[-1])
    ]


def resize_log_files(
    layout: StoreLayout, noted_bytes: int, configured_bytes: int, reached: int
) -> None:
    """Bring the files of the commit log to one size; it is known to have ended at *reached*.

    An empty file after that is left alone: it was being made when the last run was killed.

    Raises:
        OSError: the disk is full or failing; every file has its old content.
    """
    found = find(layout.commit_log)
    if found and found[-1].size_bytes == 0 and found[-1].base_offset >= reached:
        found.pop()
    if len(found) == 1 and found[0].base_offset + found[0].size_bytes < reached:
        # It was longer, and there is no other file to show the right length.
        noted_bytes = noted_bytes or configured_bytes
    size_bytes = common_size(found, 1, noted_bytes, configured_bytes)
    for file in found:
        if size_bytes is not None and file.size_bytes != size_bytes:
            _resize(layout, file, size_bytes, "commitlog")


def resize_queue_files(
    layout: StoreLayout, kinds: Iterable[tuple[Path, int, int, int]]
) -> set[Path]:
    """Bring the files of all queues to one size for each kind; return the resized queues.

    A kind is the directory of its topics, and the sizes of a unit, as saved and as configured. The
    returned queues are not to be trusted. They are returned again at the next start, unless
    ``forget_resized`` was called.

    Raises:
        OSError: the disk is full or failing; the next start continues.
    """
    wrong: list[tuple[FoundFile, int]] = []
    for parent, *sizes in kinds:
        found = [find(path) for path in parent.glob("*/*") if path.is_dir()]
        size_bytes = common_size((file for each in found for file in each), *sizes)
        if size_bytes is not None:
            wrong += [(file, size_bytes) for file in odd_files(found, size_bytes)]
    if not wrong:
        return set()
    resized = list_resized_before(layout) | {file.path.parent for file, _ in wrong}
    names = sorted(str(path.relative_to(layout.root)) for path in resized)
    disk.make_directories_durably(layout.own)
    disk.write_atomically(layout.own / _RESIZED_FILE, "\n".join(names).encode())
    for file, size_bytes in wrong:
        _resize(layout, file, size_bytes, str(file.path.parent.relative_to(layout.root)))
    return resized


def list_resized_before(layout: StoreLayout) -> set[Path]:
    """Return the queues that an earlier start resized but did not rebuild."""
    try:
        names = (layout.own / _RESIZED_FILE).read_text().split("\n")
    except FileNotFoundError:
        return set()
    return {layout.root / name for name in names}


def forget_resized(layout: StoreLayout) -> None:
    """Record that all queues have been rebuilt, durably."""
    disk.remove_files([layout.own / _RESIZED_FILE])


def _resize(layout: StoreLayout, file: FoundFile, size_bytes: int, kind: str) -> None:
    kept_as = None
    if file.size_bytes:
        target = layout.quarantine / kind / file.path.name
        kept_as = str(disk.copy_aside(file.path, target))
    disk.set_size(file.path, size_bytes)
    log.error(
        "a commit log file had a different size than the others and was resized; the part it "
        "lacks counts as damaged",
        path=str(file.path),
        size_bytes=file.size_bytes,
        right_size_bytes=size_bytes,
        kept_as=kept_as,
    )
