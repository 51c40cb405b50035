"""The errors of the store.

StoreError
├── StoreLockedError      another process holds the store directory
├── UnfitFileSystemError  the file system lacks something that a store needs
├── OtherStoresError      no broker would serve the stores found
├── CorruptFileError      a file does not match its name, size or content
├── GeometryError         files were written with other sizes than the ones configured
├── DiskFullError         no space for another file; nothing was stored
├── StoreFailedError      an fsync failed: the content on disk is unknown until a restart reads it
│   └── DeposedError      no failure: its broker is no longer the leader
├── RecordTooLargeError   no commit log file could ever hold the record
├── StoreBusyError        too many messages wait for fsync or replication; try again
├── NotReplicatedError    the message is written, but not confirmed by all required replicas
├── TooManyOpenFilesError no file descriptor is free; an OSError as well
├── LogMismatchError      a follower received bytes that do not continue its log
├── QueueGapError         a consume queue received an offset beyond its end
└── QueueConflictError    a consume queue already holds another message at the offset

The message of each is a sentence for the operator: what, where, and what to do about it.
"""

from pathlib import Path


class StoreError(Exception):
    """The store refused or failed; the message says why."""


class OtherStoresError(StoreError):
    """No broker would serve the stores found; the message says what to do."""


class StoreLockedError(StoreError):
    """Another process holds the store directory."""

    def __init__(
        self,
        directory: Path,
        holder: str = "another process",
        *,
        setting: str = "storePathRootDir",
    ) -> None:
        super().__init__(
            f"the store in {directory} is in use by {holder}: stop that broker, or give this one "
            f"its own directory ({setting})"
        )
        self.directory = directory


class UnfitFileSystemError(StoreError):
    """The file system lacks something that a store needs."""

    def __init__(self, directory: Path, lack: str, error: OSError) -> None:
        super().__init__(
            f"the file system of {directory} has {lack} ({error.strerror}), but a store needs "
            "file locks, shared mappings and fsync of directories: put it on another file "
            "system, such as ext4 or XFS on a disk of this machine"
        )


class CorruptFileError(StoreError):
    """A file is damaged, or does not belong where it is."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class GeometryError(StoreError):
    """Files were written with other sizes than the configured ones."""


class DiskFullError(StoreError):
    """The disk has no space for another file; the message that needed it was not stored."""


class StoreFailedError(StoreError):
    """An fsync failed. It is never repeated: a second one may succeed without the lost pages."""


class RecordTooLargeError(StoreError):
    """No commit log file could hold the record."""


class StoreBusyError(StoreError):
    """Too many messages wait for fsync or replication, or one waited too long; try again."""


class DeposedError(StoreFailedError):
    """The broker is no longer the master; waiting messages are written here, perhaps only here.

    Not a failure of the disk: the store is closed, and reopened as a follower's.
    """


class NotReplicatedError(StoreError):
    """The message is in the master's log, but not all required replicas confirmed it in time."""


class TooManyOpenFilesError(StoreError, OSError):
    """No file descriptor is free: nothing was tried on the disk, and trying again is safe."""

    def __init__(self, number: int | None, reason: str) -> None:
        super().__init__(number, reason)

    def __str__(self) -> str:
        return str(self.strerror)


class LogMismatchError(StoreError):
    """Bytes of the master's log do not continue the follower's log; nothing was stored."""


class QueueGapError(StoreError):
    """Units before the given one are missing; the queue must be rebuilt from the log."""

    def __init__(self, topic: str, queue_id: int, expected_offset: int, given_offset: int) -> None:
        super().__init__(
            f"queue {queue_id} of topic {topic} ends at offset {expected_offset}, but the next "
            f"entry has offset {given_offset}: rebuild the queue from the commit log"
        )
        self.topic = topic
        self.queue_id = queue_id
        self.expected_offset = expected_offset
        self.given_offset = given_offset


class QueueConflictError(StoreError):
    """The queue and the commit log disagree about which message has an offset."""

    def __init__(
        self, topic: str, queue_id: int, queue_offset: int, held_offset: int, given_offset: int
    ) -> None:
        super().__init__(
            f"offset {queue_offset} in queue {queue_id} of topic {topic} is the message at "
            f"{held_offset} of the commit log, not the one at {given_offset}: rebuild the queue "
            "from the commit log"
        )
        self.topic = topic
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.held_commit_log_offset = held_offset
        self.given_commit_log_offset = given_offset
