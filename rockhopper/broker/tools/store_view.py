"""A read-only view of a store directory, stopped or running."""

import fcntl
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.settings.config_file import build_config, parse_properties
from rockhopper.broker.settings.delay_levels import DelayLevels
from rockhopper.broker.settings.store_config import StoreConfig
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import checkpoint as checkpoints
from rockhopper.broker.store.index.index import load_geometry
from rockhopper.broker.store.log.log_scan import record_at
from rockhopper.broker.store.recovering import inventory
from rockhopper.broker.store.recovering.inventory import Inventory
from rockhopper.broker.store.recovering.log_walk import Hole, LogWalk
from rockhopper.broker.store.recovering.opening_checks import check_store_finished
from rockhopper.broker.tools import log_files
from rockhopper.broker.tools.queue_files import FoundWitnesses, QueueDirectories
from rockhopper.protocol.store.expected import Record
from rockhopper.protocol.store.queue_layout import IndexGeometry
from rockhopper.protocol.store.store_paths import (
    COMMIT_LOG_DIRECTORY_FILE,
    DELETED_TOPICS_FILE,
    PURGED_TOPICS_FILE,
)
from rockhopper.protocol.store.topic_ends import decode_ends, decode_former_ends
from rockhopper.protocol.store.walking import Found

_FLOCK = struct.Struct("hhqqi4x")
_SEVERAL = "storePathCommitLog", "readOnlyCommitLogStorePaths"


class NoStoreError(Exception):
    """The directory has no store; the message contains the remedy."""


def load_config(root: Path, path: Path | None) -> tuple[BrokerConfig, list[Path]]:
    """Load the settings of a store, and the directories of its log if it has several.

    Raises:
        SettingError: a value is invalid.
        OSError: the file cannot be read.
    """
    texts = parse_properties(path.read_bytes()) if path is not None else {}
    named = [texts.pop(key, "") for key in _SEVERAL]
    directories = [Path(part.strip()) for text in named for part in text.split(",") if part.strip()]
    if len(directories) == 1:
        texts["storePathCommitLog"] = str(directories[0])
    texts["storePathRootDir"] = str(root)
    return build_config(texts), directories


def holder_of(lock: Path) -> int | None:
    """Return the process that holds the store's lock, 0 if unknown; None if it is free.

    It queries the lock and does not take it.
    """
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        kind, _, _, _, process = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else max(process, 0)


class StoreView:
    """The files of one store on disk."""

    def __init__(self, root: Path, config_path: Path | None = None) -> None:
        """Inspect *root*; *config_path* is its broker.conf, for settings not shown by the files.

        Raises:
            NoStoreError: there is no store.
            StoreError: the store is unfinished.
            SettingError: the configuration is invalid.
            OSError: something cannot be read.
        """
        if not root.is_dir():
            raise NoStoreError(f"{root} is not a directory: name the directory in storePathRootDir")
        self.config, directories = load_config(root, config_path)
        self.layout = StoreLayout.from_config(self.config.store)
        check_store_finished(self.layout)
        self.log_directories = directories or [_read_noted_log(self.layout)]
        if len(directories) < 2:
            store = replace(self.config.store, commit_log_directory=self.log_directories[0])
            self.layout = StoreLayout.from_config(store)
        self.holder = holder_of(self.layout.lock)
        self.is_clean = self.holder is None and not self.layout.abort.exists()
        self.checkpoint = checkpoints.load_newest(self.layout)
        self.noted: Inventory | None = inventory.load(self.layout)
        self.queues = QueueDirectories(self.layout)
        self.levels = DelayLevels(self.config.live.delay_levels)
        self.deleted = _ends(self.layout.own / DELETED_TOPICS_FILE)
        self.purged = _ends(self.layout.own / PURGED_TOPICS_FILE)
        self.holes: list[Hole] = []
        self.load_log()
        if not self.log.files and not self.layout.config.is_dir():
            if below := [each.name for each in sorted(root.iterdir()) if _is_store(each)]:
                raise NoStoreError(
                    f"{root} is not a store, but contains stores, as with 'brokers': name one "
                    f"of them: {', '.join(below)}"
                )
            raise NoStoreError(
                f"{root} is not a store: it has neither a commit log nor tables; name the "
                "directory in storePathRootDir, and pass --config if the log is elsewhere"
            )

    @property
    def is_live(self) -> bool:
        """Whether a broker had the store open at the first inspection."""
        return self.holder is not None

    def state(self) -> str:
        """Return the state of the store as text."""
        if self.is_live:
            process = f" by process {self.holder}" if self.holder else ""
            return f"in use{process}: read up to offset {self.end} while the broker runs"
        return "stopped cleanly" if self.is_clean else "not stopped cleanly: killed, or a power cut"

    def load_log(self) -> None:
        """Find the files of the log, and its end if a broker is writing to it."""
        self.log, self.problems = log_files.find(self.log_directories)
        noted_end = self.noted.log_end if self.noted is not None else 0
        self.proven_end = max(self.checkpoint.flushed_offset, noted_end)
        self.end = self.log.next_base_offset
        self._log_end: int | None = None
        if self.is_live:
            self.end = log_files.find_written_end(self.log, self.proven_end)
            log_files.end_at(self.log, self.end)

    @property
    def lost_end(self) -> int:
        """The end of the log before its newest files were lost; 0 if none are missing."""
        return self.proven_end if self.proven_end > self.log.next_base_offset else 0

    @property
    def missing(self) -> list[tuple[int, int]]:
        """The ranges of the log whose files are missing."""
        newest = [(self.log.next_base_offset, self.lost_end)] if self.lost_end else []
        return self.log.gaps + newest

    def log_end(self) -> int:
        """Return the end of the log; read at most its last file."""
        last = log_files.last_written(self.log)
        if self.is_live or last is None:
            return self.end
        if self._log_end is not None:
            return self._log_end
        files = [file for file in self.log.files if file.base_offset >= last.base_offset]
        walk = LogWalk(files, last.base_offset, proven_end=self.proven_end, check_crc=False)
        for _ in walk.records(lambda found: True):
            pass
        self._log_end = walk.end
        return walk.end

    @property
    def geometry(self) -> IndexGeometry | None:
        """The sizes with which the index files were created; None if unknown."""
        noted = load_geometry(self.layout)
        store = self.config.store
        configured = IndexGeometry(store.index_slot_count, store.index_entry_count_max)
        sizes = {path.stat().st_size for path in self.index_files()}
        return noted or (configured if sizes <= {configured.file_size_bytes} else None)

    def index_files(self) -> list[Path]:
        """Return the files of the index, oldest first."""
        directory = self.layout.index
        found = directory.iterdir() if directory.is_dir() else ()
        return sorted(path for path in found if path.name.isdecimal())

    def record_at(self, offset: int) -> Record | None:
        """Return the sound record at a log offset, or None."""
        try:
            return record_at(self.log, offset)
        except FileNotFoundError:
            return None

    def is_gone(self, topic: str, log_offset: int) -> bool:
        """Return whether a topic was deleted or purged after the record at an offset."""
        return log_offset < max(self.deleted.get(topic, 0), self.purged.get(topic, 0))

    def is_in_hole(self, start: int, end: int) -> bool:
        """Return whether a range of the log touches damage, found now or at broker starts."""
        known = self.noted.holes if self.noted is not None else ()
        return any(
            hole_start < end and start < hole_end
            for hole_start, hole_end in (*((hole.start, hole.end) for hole in self.holes), *known)
        )

    def records(
        self,
        start: int = 0,
        take: Callable[[Found], bool] | None = None,
        *,
        check_crc: bool = True,
    ) -> Iterator[tuple[Record, bool]]:
        """Yield every record from *start* on, and whether its body is damaged.

        *take* is as in LogWalk. Afterwards ``holes`` has the ranges without records, and ``end`` is
        the end of the log. Files that retention deletes in the meantime are left out.
        """
        self.holes = []
        while True:
            walk = LogWalk(
                self.log.files,
                start,
                proven_end=self.proven_end,
                quiet_from=self.proven_end if self.is_clean else None,
                check_crc=check_crc,
                witnesses=FoundWitnesses(self.queues, self.record_at),
            )
            walk.holes = self.holes
            try:
                for record in walk.records(take):
                    yield record, walk.is_damaged
            except FileNotFoundError as error:
                if not self.is_live:
                    raise
                start = int(Path(error.filename).name)
                end = self.end
                self.load_log()
                self.end = end
                log_files.end_at(self.log, end)
                start = max(start, self.log.min_offset)
                continue
            self.end = walk.end
            if self.lost_end > walk.end:
                self.holes.append(
                    Hole(walk.end, self.lost_end, "the newest commit log files are missing")
                )
                self.end = self.lost_end
            return


def _is_store(root: Path) -> bool:
    layout = StoreLayout.from_config(StoreConfig(root=root))
    return layout.commit_log.is_dir() or layout.config.is_dir()


def _read_noted_log(layout: StoreLayout) -> Path:
    try:
        noted = Path((layout.own / COMMIT_LOG_DIRECTORY_FILE).read_text().strip())
    except (FileNotFoundError, UnicodeDecodeError):
        return layout.commit_log
    return noted if noted.is_absolute() else layout.commit_log


def _ends(path: Path) -> dict[str, int]:
    try:
        return decode_ends(path.read_bytes())
    except FileNotFoundError:
        pass
    try:
        return decode_former_ends(path.with_suffix(".json").read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
