"""The files of a commit log, looked at from outside: nothing is made, mended or deleted.

A log may be divided over several directories, as RocketMQ allows (storePathCommitLog with ``,``
between). What is wrong with a file itself is noted in ``problems``, and the file read as it is.
"""

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rockhopper.broker.store.files.mapped_file import MappedFile
from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue
from rockhopper.broker.store.log.fast_encoding import whole_end
from rockhopper.broker.store.log.log_scan import is_zero
from rockhopper.protocol.store.store_paths import is_numbered_file

# A record may be half written when its size is seen; no write takes so long.
_SETTLING_S = 0.05
_SETTLING_STEPS = 20


class FileProblem(NamedTuple):
    """What is wrong with a file as a whole."""

    path: Path
    reason: str


def find(directories: Sequence[Path]) -> tuple[MappedFileQueue, list[FileProblem]]:
    """The files there are, oldest first, and what is wrong with some of them. Raises OSError."""
    found: list[tuple[int, int, Path]] = []
    problems: list[FileProblem] = []
    for directory in directories:
        for path in sorted(directory.iterdir()) if directory.is_dir() else ():
            with contextlib.suppress(FileNotFoundError):
                if path.is_dir():
                    continue
                if not is_numbered_file(path.name):
                    problems.append(FileProblem(path, "a file of this name does not belong here"))
                elif size_bytes := path.stat().st_size:
                    found.append((int(path.name), size_bytes, path))
                else:
                    problems.append(FileProblem(path, "the file is empty"))
    found.sort()
    sizes = [size_bytes for _, size_bytes, _ in found]
    usual_bytes = max(set(sizes), key=sizes.count, default=0)
    for _, size_bytes, path in found:
        if size_bytes != usual_bytes:
            reason = f"the file has {size_bytes} bytes, those beside it {usual_bytes}"
            problems.append(FileProblem(path, reason))
    files = MappedFileQueue(directories[0], usual_bytes)
    files.files = [MappedFile(path, base, size_bytes) for base, size_bytes, path in found]
    return files, problems


def end_at(files: MappedFileQueue, end: int) -> None:
    """Have the log end at *end*, whatever its files hold behind."""
    files.files = [
        MappedFile(file.path, file.base_offset, min(file.size_bytes, end - file.base_offset))
        if file.end_offset > end
        else file
        for file in files.files
        if file.base_offset < end
    ]


def written_end(files: MappedFileQueue, known_end: int) -> int:
    """The same of a log that somebody writes to: what is in front of it is whole on return."""
    end = stated_end(files, known_end)
    for _ in range(_SETTLING_STEPS):
        time.sleep(_SETTLING_S / _SETTLING_STEPS)
        if stated_end(files, end) > end:
            break  # The next pass of the broker has begun, so the one before is written.
    return end


def stated_end(files: MappedFileQueue, known_end: int) -> int:
    """Where the records end by the sizes that they state, at *known_end* at least."""
    last = last_written(files)
    if last is None:
        return known_end
    position = min(max(known_end - last.base_offset, 0), last.size_bytes)
    return max(known_end, last.base_offset + whole_end(last.mapping, position, last.size_bytes))


def last_written(files: MappedFileQueue) -> MappedFile | None:
    """The newest file with anything at its begin: brokers make the next one ahead of need."""
    for file in reversed(files.files):
        if not is_zero(file.mapping, 0):
            return file
    return files.files[0] if files.files else None
