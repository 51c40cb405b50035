"""The paths and file names of a store directory, as RocketMQ lays it out; features name their own.

    <root>/lock                    held by the one process that uses the store (lock_file.py)
    <root>/abort                   exists while a broker runs, and after it was killed
    <root>/UNFINISHED              exists while a tool makes the store, and after it was killed
    <root>/checkpoint              how far everything is known to be on disk (checkpoint.py)
    <root>/commitlog/              files named by the 20-digit offset of their first byte; or
                                   elsewhere (storePathCommitLog)
    <root>/consumequeue/<topic>/<queue id>/        the same, 20-byte units
    <root>/batchconsumequeue/<topic>/<queue id>/   the same, 46-byte units
    <root>/consumequeue_ext/<topic>/<queue id>/    read, never written
    <root>/index/                  files named by local creation time, yyyyMMddHHmmssSSS
    <root>/timerwheel, timerlog/   timer messages
    <root>/config/                 JSON tables
    <root>/rockhopper/             ours: RocketMQ ignores it

RocketMQ refuses to start if a directory of numbered files holds anything else: our own files are
under <root>/rockhopper.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rockhopper.broker.settings.store_config import StoreConfig
from rockhopper.protocol.store import table_changes
from rockhopper.protocol.store.store_paths import (
    ABORT_FILE,
    BATCH_CONSUME_QUEUE_DIRECTORY,
    CHECKPOINT_FILE,
    COMMIT_LOG_DIRECTORY,
    CONSUME_QUEUE_DIRECTORY,
    CONSUME_QUEUE_EXT_DIRECTORY,
    INDEX_DIRECTORY,
    LOCK_FILE,
    OWN_DIRECTORY,
)


def file_name(offset: int) -> str:
    """Return the name of the file whose first byte is at *offset*."""
    return f"{offset:020d}"


@dataclass(frozen=True)
class StoreLayout:
    """Paths below *root*; the commit log may be elsewhere (storePathCommitLog).

    The settings contain both paths, so ``from_config`` makes the layout from them; an open store
    has it as ``layout``.
    """

    root: Path
    commit_log_directory: Path | None = None

    @classmethod
    def from_config(cls, config: StoreConfig) -> "StoreLayout":
        """Return the layout of the store that *config* describes."""
        return cls(config.root, config.commit_log_directory)

    @property
    def lock(self) -> Path:
        """The lock file."""
        return self.root / LOCK_FILE

    @property
    def abort(self) -> Path:
        """The abort file."""
        return self.root / ABORT_FILE

    @property
    def unfinished(self) -> Path:
        """Marks a store whose restore or repair is not complete."""
        return self.root / "UNFINISHED"

    @property
    def checkpoint(self) -> Path:
        """The checkpoint file."""
        return self.root / CHECKPOINT_FILE

    @property
    def own_checkpoint(self) -> Path:
        """The checkpoint that is valid after a crash of Rockhopper."""
        return self.own / CHECKPOINT_FILE

    @property
    def commit_log(self) -> Path:
        """The directory of commit log files."""
        return self.commit_log_directory or self.root / COMMIT_LOG_DIRECTORY

    @property
    def consume_queues(self) -> Path:
        """The directory of consume queues."""
        return self.root / CONSUME_QUEUE_DIRECTORY

    @property
    def batch_consume_queues(self) -> Path:
        """The directory of the queues of BatchCQ topics."""
        return self.root / BATCH_CONSUME_QUEUE_DIRECTORY

    @property
    def consume_queue_exts(self) -> Path:
        """The directory of consume queue extensions."""
        return self.root / CONSUME_QUEUE_EXT_DIRECTORY

    @property
    def index(self) -> Path:
        """The directory of index files."""
        return self.root / INDEX_DIRECTORY

    @property
    def timer_wheel(self) -> Path:
        """The timer wheel."""
        return self.root / "timerwheel"

    @property
    def timer_log(self) -> Path:
        """The directory of timer log files."""
        return self.root / "timerlog"

    @property
    def config(self) -> Path:
        """The directory of JSON tables."""
        return self.root / "config"

    @cached_property
    def own(self) -> Path:
        """The directory of our own files, unknown to RocketMQ."""
        return self.root / OWN_DIRECTORY

    @property
    def topic_ids(self) -> Path:
        """The ids that distinguish topics of the same name."""
        return self.own / "topic-ids.json"

    @property
    def topic_ends(self) -> Path:
        """Where the queues of deleted and emptied topics ended."""
        return self.own / "topic-ends.json"

    @property
    def log_history(self) -> Path:
        """The epochs of the commit log."""
        return self.own / "log-history.json"

    @property
    def quarantine(self) -> Path:
        """The bytes that recovery cut off."""
        return self.own / "quarantine"

    @property
    def index_to_rebuild(self) -> Path:
        """The name of the first index file to be rebuilt."""
        return self.own / "index-to-rebuild"

    @property
    def deleted_queues(self) -> Path:
        """The directories of deleted queues, until their files are deleted."""
        return self.own / "deleted-queues"

    @property
    def offset_journal(self) -> Path:
        """The directory of offsets committed since consumerOffset.json was saved."""
        return self.own / "offsets"

    def table_changes(self, file: Path) -> Path:
        """Return the directory of changes to a table since its file was written."""
        return self.own / table_changes.DIRECTORY / file.name

    @property
    def remembered_subscriptions(self) -> Path:
        """The subscriptions of consumer groups."""
        return self.own / "groups" / "subscriptions.json"

    def consume_queue(self, topic: str, queue_id: int) -> Path:
        """Return the directory of one consume queue."""
        return queue_directory(self.consume_queues, topic, queue_id)

    def batch_consume_queue(self, topic: str, queue_id: int) -> Path:
        """Return the directory of one queue of a BatchCQ topic."""
        return queue_directory(self.batch_consume_queues, topic, queue_id)

    def consume_queue_ext(self, topic: str, queue_id: int) -> Path:
        """Return the directory of one consume queue's extension."""
        return queue_directory(self.consume_queue_exts, topic, queue_id)


def queue_directory(parent: Path, topic: str, queue_id: int) -> Path:
    """Return the directory of one queue below *parent*.

    Raises:
        ValueError: the name would lead out of *parent*; names are validated earlier, elsewhere.
    """
    if topic in ("", ".", "..") or "/" in topic or "\\" in topic or "\0" in topic or queue_id < 0:
        raise ValueError(f"no directory can be named after queue {queue_id} of topic {topic!r}")
    return parent / topic / str(queue_id)
