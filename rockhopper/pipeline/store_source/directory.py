"""A store directory as a reader sees it: which files make up the log, and how far they count.

The log is below the root, or where the broker noted that storePathCommitLog has put it.

Nothing here takes the store's lock or writes. A broker may be running on the store, ours or
RocketMQ: then the log counts up to where it was flushed, which the checkpoint says. Without one it
counts up to its last record.
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
from rockhopper.protocol.store.checked_line import decode
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
        """The commit log offset behind the file."""
        return self.base_offset + self.size_bytes


@dataclass(frozen=True, slots=True)
class Flushed:
    """How far the log of a running broker is known to be on disk; None where nothing limits."""

    offset: int | None = None
    time_ms: int | None = None
    """Store time of the newest message on disk, where no offset is known."""


@dataclass(frozen=True, slots=True)
class StoreDirectory:
    """What was found at one moment."""

    commit_log: Path
    segments: tuple[Segment, ...]
    is_live: bool
    """Whether a broker runs on the store."""
    flushed: Flushed
    deleted_topics: Mapping[str, int] = field(default_factory=dict)
    foreign_files: tuple[str, ...] = ()
    purged_topics: Mapping[str, int] = field(default_factory=dict)
    is_clean: bool = False
    """Whether the last broker on it has stopped, and not been killed."""
    noted_end: int = 0
    """Up to where the log has once been on disk, as far as a Rockhopper has noted that."""

    @property
    def gone(self) -> dict[str, int]:
        """Topic -> the log offset in front of which its messages were deleted or purged with it."""
        found = dict(self.deleted_topics)
        for topic, end in self.purged_topics.items():
            found[topic] = max(end, found.get(topic, 0))
        return found

    @property
    def start_offset(self) -> int:
        """Where the oldest file starts; 0 for an empty log."""
        return self.segments[0].base_offset if self.segments else 0

    @property
    def end_offset(self) -> int:
        """The end of the newest file; the log ends somewhere in front of it."""
        return self.segments[-1].end_offset if self.segments else 0

    @property
    def readable_end(self) -> int:
        """The same, no further than a running broker has flushed."""
        flushed = self.flushed.offset
        return self.end_offset if flushed is None else min(self.end_offset, flushed)


def open_store(path_option: str, commit_log_option: str | None = None) -> StoreDirectory:
    """Look at the store at *path_option*, its root or the directory of its commit log.

    *commit_log_option* is as for ``find_commit_log``.

    Raises:
        PipelineError: there is none.
    """
    try:
        root, commit_log = find_commit_log(path_option, commit_log_option)
    except PermissionError as error:
        raise _refusal(error) from None
    # Asked before the files are listed: what is flushed now is in files that are there now.
    is_live = root is not None and _is_live(root)
    flushed = _flushed(root) if root is not None and is_live else Flushed()
    try:
        segments, foreign = _segments(commit_log)
    except PermissionError as error:
        raise _refusal(error) from None
    return StoreDirectory(
        commit_log,
        segments,
        is_live,
        flushed,
        {} if root is None else _topic_ends(root, DELETED_TOPICS_FILE),
        foreign,
        {} if root is None else _topic_ends(root, PURGED_TOPICS_FILE),
        root is not None and not is_live and not (root / ABORT_FILE).exists(),
        0 if root is None else _noted_end(root / OWN_DIRECTORY),
    )


def find_commit_log(
    path_option: str, commit_log_option: str | None = None
) -> tuple[Path | None, Path]:
    """The root of the store, if it is known, and the directory of its commit log.

    *commit_log_option* names the latter where it lies elsewhere (storePathCommitLog) and the store
    does not say so, because RocketMQ wrote it.

    Raises:
        PipelineError: no such path, or not that of a store.
    """
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
    elsewhere = _log_elsewhere(path, commit_log_option)
    if elsewhere is not None:
        return path, elsewhere
    if (path / COMMIT_LOG_DIRECTORY).is_dir():
        return path, path / COMMIT_LOG_DIRECTORY
    if any((path / name).is_dir() for name in (CONSUME_QUEUE_DIRECTORY, OWN_DIRECTORY)):
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
    inside = [
        str(entry) for entry in sorted(path.iterdir()) if (entry / COMMIT_LOG_DIRECTORY).is_dir()
    ]
    hint = f", {inside[0]} is one" if inside else ""
    raise PipelineError(
        f"{path} is no store, it has no directory commitlog{hint}: set the option path to "
        "a store's root (storePathRootDir in broker.conf) or to its commitlog directory"
    )


def _log_elsewhere(root: Path, commit_log_option: str | None) -> Path | None:
    """The directory of a commit log that is not below its store's root."""
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
            continue  # The broker deletes files that have expired.
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
    # Opening the lock file and closing it again would release a lock of this very process.
    if process == str(os.getpid()):
        return True
    return _is_locked(root / LOCK_FILE)


def _is_locked(path: Path) -> bool:
    """Whether somebody holds the record lock; where that cannot be asked, the answer is yes."""
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
    # While a Rockhopper runs, RocketMQ's file says nothing of the queues.
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
        return max(flushed, int(decode((own / INVENTORY_FILE).read_bytes())["logEnd"]))
    return flushed


def _topic_ends(root: Path, name: str) -> dict[str, int]:
    path = root / OWN_DIRECTORY / name
    ends: dict[str, int] = {}
    with contextlib.suppress(OSError, ValueError):
        ends |= decode_former_ends(path.with_suffix(".json").read_bytes())
    with contextlib.suppress(OSError):
        ends |= decode_ends(path.read_bytes())
    return ends
