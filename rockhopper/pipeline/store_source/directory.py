"""Inspect a store directory: the files of the log, and how far a reader may read.

The log is below the root, or in the directory that the broker recorded for storePathCommitLog.

Nothing here takes the store's lock or writes. A broker (Rockhopper or RocketMQ) may be running on
the store. Then the log is valid up to where it was flushed, according to the checkpoint. Without a
broker it is valid up to its last record.
"""

import contextlib
import os
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from rockhopper.paths import expand_home
from rockhopper.pipeline.decoder import is_record
from rockhopper.pipeline.errors import PipelineError
from rockhopper.protocol.store.queue_layout import decode_checkpoint
from rockhopper.protocol.store.store_paths import (
    ABORT_FILE,
    CHECKPOINT_FILE,
    COMMIT_LOG_DIRECTORY,
    COMMIT_LOG_DIRECTORY_FILE,
    CONSUME_QUEUE_DIRECTORY,
    DELETED_TOPICS_FILE,
    INVENTORY_FILE,
    LOCK_FILE,
    OWN_DIRECTORY,
    PURGED_TOPICS_FILE,
    decode_checked_line,
    is_numbered_file,
)
from rockhopper.protocol.store.topic_ends import decode_ends, decode_former_ends

_PROBE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of the commit log."""

    path: str
    base_offset: int
    size_bytes: int
    starts_with_record: bool

    @property
    def end_offset(self) -> int:
        """The commit log offset after the file."""
        return self.base_offset + self.size_bytes


@dataclass(frozen=True, slots=True)
class Flushed:
    """How far the log of a running broker is known to be on disk; None means no limit."""

    offset: int | None = None
    time_ms: int | None = None
    """The store time of the newest message on disk, if no offset is known."""


@dataclass(frozen=True, slots=True)
class StoreDirectory:
    """The state of a store at one moment."""

    commit_log: Path
    segments: tuple[Segment, ...]
    is_live: bool
    """Whether a broker runs on the store."""
    flushed: Flushed
    deleted_topics: Mapping[str, int] = field(default_factory=dict)
    foreign_files: tuple[str, ...] = ()
    purged_topics: Mapping[str, int] = field(default_factory=dict)
    is_clean: bool = False
    """Whether the last broker shut down cleanly."""
    noted_end: int = 0
    """The highest log offset that a Rockhopper broker recorded as flushed."""

    @property
    def gone(self) -> dict[str, int]:
        """Topic -> log offset; its messages before this offset were deleted or purged."""
        found = dict(self.deleted_topics)
        for topic, end in self.purged_topics.items():
            found[topic] = max(end, found.get(topic, 0))
        return found

    @property
    def start_offset(self) -> int:
        """The start of the oldest file; 0 for an empty log."""
        return self.segments[0].base_offset if self.segments else 0

    @property
    def end_offset(self) -> int:
        """The end of the newest file; the log ends somewhere before it."""
        return self.segments[-1].end_offset if self.segments else 0

    @property
    def readable_end(self) -> int:
        """The end of the newest file, limited to what a running broker has flushed."""
        flushed = self.flushed.offset
        return self.end_offset if flushed is None else min(self.end_offset, flushed)


def open_store(path_option: str, commit_log_option: str | None = None) -> StoreDirectory:
    """Inspect the store at *path_option*, its root or the directory of its commit log.

    *commit_log_option* is as for ``find_commit_log``.

    Raises:
        PipelineError: there is no store.
    """
    try:
        root, commit_log = find_commit_log(path_option, commit_log_option)
    except PermissionError as error:
        raise _refusal(error) from None
    # Read before the files are listed: data that is flushed now is in files that exist now.
    is_live = root is not None and _is_live(root)
    flushed = _flushed(root) if root is not None and is_live else Flushed()
    try:
        segments, foreign = _segments(commit_log)
    except PermissionError as error:
        raise _refusal(error) from None
    if root is None:
        return StoreDirectory(commit_log, segments, is_live, flushed, {}, foreign, {}, False, 0)
    return StoreDirectory(
        commit_log,
        segments,
        is_live,
        flushed,
        _topic_ends(root, DELETED_TOPICS_FILE),
        foreign,
        _topic_ends(root, PURGED_TOPICS_FILE),
        not is_live and not (root / ABORT_FILE).exists(),
        _noted_end(root / OWN_DIRECTORY),
    )


def find_commit_log(
    path_option: str, commit_log_option: str | None = None
) -> tuple[Path | None, Path]:
    """Return the root of the store, or None if unknown, and the directory of its commit log.

    *commit_log_option* names that directory if it is not below the root (storePathCommitLog) and
    the store does not record it, because RocketMQ wrote the store.

    Raises:
        PipelineError: the path does not exist, or is not a store.
    """
    path = _existing_directory(path_option)
    elsewhere = _log_elsewhere(path, commit_log_option)
    if elsewhere is not None:
        return path, elsewhere
    if (path / COMMIT_LOG_DIRECTORY).is_dir():
        return path, path / COMMIT_LOG_DIRECTORY
    if (path / CONSUME_QUEUE_DIRECTORY).is_dir() or (path / OWN_DIRECTORY).is_dir():
        raise PipelineError(
            f"{path} is a store without its commit log, which its broker.conf may have elsewhere "
            "(storePathCommitLog): name that directory with the option commitLog, or make a link "
            f"to it, {path / COMMIT_LOG_DIRECTORY}"
        )
    is_log = path.name == COMMIT_LOG_DIRECTORY
    if is_log or any(is_numbered_file(entry.name) for entry in os.scandir(path) if entry.is_file()):
        root = path.parent
        known = (root / CHECKPOINT_FILE).is_file() or (root / OWN_DIRECTORY).is_dir()
        return (root if known else None), path
    raise _no_store(path)


def _existing_directory(path_option: str) -> Path:
    path = _local_path(path_option)
    if not path.exists():
        raise PipelineError(
            f"there is no directory {path}: set the option path to a store's root (storePathRootDir"
            " in broker.conf) or to its commitlog directory, as Spark's workers see it"
        )
    if not path.is_dir():
        raise PipelineError(
            f"{path} is a file: set the option path to the directory of the store that it is in"
        )
    return path


def _no_store(path: Path) -> PipelineError:
    inside = [
        str(entry) for entry in sorted(path.iterdir()) if (entry / COMMIT_LOG_DIRECTORY).is_dir()
    ]
    hint = f", {inside[0]} is one" if inside else ""
    return PipelineError(
        f"{path} is no store, it has no directory commitlog{hint}: set the option path to "
        "a store's root (storePathRootDir in broker.conf) or to its commitlog directory"
    )


def _log_elsewhere(root: Path, commit_log_option: str | None) -> Path | None:
    """Return the directory of a commit log that is not below its store's root."""
    if commit_log_option is not None:
        found = _local_path(commit_log_option)
        if not found.is_dir():
            raise PipelineError(
                f"there is no directory {found}: set the option commitLog to where "
                "storePathCommitLog of the store's broker.conf points, as Spark's workers see it"
            )
        return found
    try:
        noted = Path((root / OWN_DIRECTORY / COMMIT_LOG_DIRECTORY_FILE).read_text().rstrip("\n"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not noted.is_dir():
        raise PipelineError(
            f"the commit log of the store {root} is in {noted} (storePathCommitLog), and there is "
            "no such directory here: mount it, or name it with the option commitLog"
        )
    return noted


def _local_path(path_option: str) -> Path:
    parts = urlsplit(path_option)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    if "://" in path_option:
        raise PipelineError(
            f"the store {path_option} is not in a local directory: mount it on the workers, or "
            "read the topics over the network with the format rocketmq"
        )
    return expand_home(path_option)


def _refusal(error: PermissionError) -> PipelineError:
    return PipelineError(
        f"{error.filename} may not be read ({error.strerror}): run Spark as the broker's user, or "
        "set storeGroup on the broker to a group of Spark's user"
    )


def _segments(commit_log: Path) -> tuple[tuple[Segment, ...], tuple[str, ...]]:
    found: list[Segment] = []
    foreign: list[str] = []
    for entry in sorted(os.scandir(commit_log), key=lambda entry: entry.name):
        if entry.is_dir():
            continue
        if not is_numbered_file(entry.name):
            foreign.append(entry.name)
            continue
        base_offset = int(entry.name)
        try:
            size = entry.stat().st_size
            with open(entry.path, "rb") as file:
                head = file.read(_PROBE_BYTES)
        except FileNotFoundError:
            continue  # The broker deletes expired files.
        except PermissionError as error:
            raise _refusal(error) from None
        if size:
            starts = is_record(head, 0, base_offset)
            found.append(Segment(entry.path, base_offset, size, starts))
    return tuple(found), tuple(foreign)


def _is_live(root: Path) -> bool:
    try:
        process = (root / ABORT_FILE).read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return False
    # Opening and closing the lock file would release a lock that this process holds.
    if process == str(os.getpid()):
        return True
    return _is_locked(root / LOCK_FILE)


def _is_locked(path: Path) -> bool:
    """Return whether a process holds the record lock; True if that cannot be determined."""
    if not sys.platform.startswith("linux"):
        return True
    import fcntl

    # struct flock of 64-bit Linux: type, whence, start, length, process.
    layout = struct.Struct("hh4xqqi4x")
    try:
        with open(path, "rb") as file:
            asked = layout.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
            answer = layout.unpack(fcntl.fcntl(file, fcntl.F_GETLK, asked))
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return bool(answer[0] != fcntl.F_UNLCK)


def _flushed(root: Path) -> Flushed:
    theirs = _checkpoint(root / CHECKPOINT_FILE)
    if theirs[1]:
        return Flushed(time_ms=theirs[0] or None)
    # While Rockhopper runs, RocketMQ's file has no information about the queues.
    path = root / OWN_DIRECTORY / CHECKPOINT_FILE
    ours = _checkpoint(path)
    is_new = path.is_file() and not ours[0] and not theirs[0]
    if ours[5] or is_new:
        return Flushed(offset=ours[5])
    return Flushed(time_ms=ours[0] or theirs[0] or None)


def _checkpoint(path: Path) -> tuple[int, ...]:
    try:
        return decode_checkpoint(path.read_bytes())
    except OSError:
        return decode_checkpoint(b"")


def _noted_end(own: Path) -> int:
    flushed = _checkpoint(own / CHECKPOINT_FILE)[5]
    with contextlib.suppress(OSError, ValueError, KeyError):
        return max(flushed, int(decode_checked_line((own / INVENTORY_FILE).read_bytes())["logEnd"]))
    return flushed


def _topic_ends(root: Path, name: str) -> dict[str, int]:
    path = root / OWN_DIRECTORY / name
    ends: dict[str, int] = {}
    with contextlib.suppress(OSError, ValueError):
        ends |= decode_former_ends(path.with_suffix(".json").read_bytes())
    with contextlib.suppress(OSError):
        ends |= decode_ends(path.read_bytes())
    return ends
