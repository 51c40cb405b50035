"""The files of a commit log, looked at from outside: nothing is made, mended or deleted.

A log may be divided over several directories, as RocketMQ allows (storePathCommitLog with ``,``
between). What is wrong with a file itself is noted in ``problems``, and the file read as it is.
"""

import contextlib
import time
from collections import Counter
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
    is_refused: bool = True
    """Whether no broker opens the log as long as it is there."""


def find(directories: Sequence[Path]) -> tuple[MappedFileQueue, list[FileProblem]]:
    """The files there are, oldest first, and what is wrong with some of them. Raises OSError."""
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
    counts = Counter(size_bytes for _, size_bytes, _ in found)
    usual_bytes = max(counts, key=lambda size_bytes: (counts[size_bytes], size_bytes), default=0)
    files = MappedFileQueue(directories[0], usual_bytes)
    for base, size_bytes, path in found:
        if base % usual_bytes:
            reason = f"no file begins there where each has {usual_bytes} bytes: it is passed over"
            problems.append(FileProblem(path, reason))
            continue
        if size_bytes != usual_bytes:
            reason = f"the file has {size_bytes} bytes, those beside it {usual_bytes}"
            problems.append(FileProblem(path, reason))
        files.files.append(MappedFile(path, base, size_bytes))
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
