"""Read the files of a commit log from outside: nothing is created, repaired or deleted.

A log may be spread over several directories, as RocketMQ allows (storePathCommitLog with ``,``
between). Problems of a file as a whole go to ``problems``, and the file is read as it is.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rockhopper.broker.store.files.mapped_file import MappedFile
from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue
from rockhopper.broker.store.log.log_scan import is_zero
from rockhopper.protocol.store.fast_walking import whole_end
from rockhopper.protocol.store.store_paths import is_numbered_file

# A record may be half written when its size is read; no write takes longer than this.
_SETTLING_S = 0.05
_SETTLING_STEPS = 20


class FileProblem(NamedTuple):
    """A problem of a file as a whole."""

    path: Path
    reason: str
    is_refused: bool = True
    """Whether brokers refuse to open the log because of this file."""


def find(directories: Sequence[Path]) -> tuple[MappedFileQueue, list[FileProblem]]:
    """Return the files, oldest first, and their problems. Raises OSError."""
    found, problems = _list_files(directories)
    counts = Counter(size_bytes for _, size_bytes, _ in found)
    usual_bytes = max(counts, key=lambda size_bytes: (counts[size_bytes], size_bytes), default=0)
    files = MappedFileQueue(directories[0], usual_bytes)
    for base, size_bytes, path in found:
        if base % usual_bytes:
            reason = (
                f"no file can start at this offset if each has {usual_bytes} bytes: it is skipped"
            )
            problems.append(FileProblem(path, reason))
            continue
        if size_bytes != usual_bytes:
            reason = f"the file has {size_bytes} bytes, but the others have {usual_bytes}"
            problems.append(FileProblem(path, reason))
        files.files.append(MappedFile(path, base, size_bytes))
    return files, problems


def _list_files(
    directories: Sequence[Path],
) -> tuple[list[tuple[int, int, Path]], list[FileProblem]]:
    """Return the first offset, size and path of each file with data, and the other files."""
    found: list[tuple[int, int, Path]] = []
    empty: list[Path] = []
    problems: list[FileProblem] = []
    for directory in directories:
        for path in sorted(directory.iterdir()) if directory.is_dir() else ():
            with contextlib.suppress(FileNotFoundError):
                if path.is_dir():
                    continue
                if not is_numbered_file(path.name):
                    reason = "a file of this name does not belong here"
                    problems.append(FileProblem(path, reason, path.name.isdecimal()))
                elif size_bytes := path.stat().st_size:
                    found.append((int(path.name), size_bytes, path))
                else:
                    empty.append(path)
    found.sort()
    last = found[-1][0] if found else 0
    problems += (FileProblem(path, "the file is empty", int(path.name) < last) for path in empty)
    return found, problems


def end_at(files: MappedFileQueue, end: int) -> None:
    """Make the log end at *end*, whatever its files hold after it."""
    files.files = [
        MappedFile(file.path, file.base_offset, min(file.size_bytes, end - file.base_offset))
        if file.end_offset > end
        else file
        for file in files.files
        if file.base_offset < end
    ]


def find_written_end(files: MappedFileQueue, known_end: int) -> int:
    """Return the end of a log that a broker is writing; all records before it are complete."""
    end = find_stated_end(files, known_end)
    for _ in range(_SETTLING_STEPS):
        time.sleep(_SETTLING_S / _SETTLING_STEPS)
        if find_stated_end(files, end) > end:
            break  # The broker has begun its next write, so the previous one is complete.
    return end


def find_stated_end(files: MappedFileQueue, known_end: int) -> int:
    """Return the end of the records by their stated sizes, at least *known_end*."""
    last = last_written(files)
    if last is None:
        return known_end
    position = min(max(known_end - last.base_offset, 0), last.size_bytes)
    return max(known_end, last.base_offset + whole_end(last.mapping, position, last.size_bytes))


def last_written(files: MappedFileQueue) -> MappedFile | None:
    """Return the newest file that is not empty at its start: brokers create files in advance."""
    for file in reversed(files.files):
        if not is_zero(file.mapping, 0):
            return file
    return files.files[0] if files.files else None
