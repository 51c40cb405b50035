"""ReplicaStore: the message store as replication sees it, across every close and reopen."""

from typing import Protocol

import structlog

from rockhopper.broker.replication.roles.setting_aside import set_aside
from rockhopper.broker.replication.shipping.replica_log import AwayError
from rockhopper.broker.settings.store_config import FlushDiskType, StoreConfig
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.log import log_start
from rockhopper.broker.store.message_store import MessageStore

log = structlog.get_logger("broker.ha")


class StoreOwner(Protocol):
    """Opens and closes the store of a replica."""

    async def reopen(self, *, cut_at: int | None = None, begin_at: int | None = None) -> None:
        """Close the store, and open it again with a log that was cut, or begins anew."""


class ReplicaStore:
    """The ReplicaLog of a broker. Belongs to the event loop."""

    def __init__(self, config: StoreConfig, owner: StoreOwner) -> None:
        self._layout = StoreLayout.from_config(config)
        self._file_size_bytes = config.commit_log_file_size_bytes
        self._is_sync = config.flush_disk_type is FlushDiskType.SYNC
        self._owner = owner
        self._store: MessageStore | None = None
        self._ends = 0, 0, 0, 0
        self.is_following = False
        """Whether a master's bytes may be appended."""

    def opened(self, store: MessageStore) -> None:
        """Adopt the store that was opened as a follower's."""
        self._store, self.is_following = store, True

    def closing(self) -> None:
        """Remember the ends of the log before the store is closed."""
        self._ends = (
            self.start_offset,
            self.end_offset,
            self.next_offset,
            self.acknowledgeable_offset,
        )
        self._store, self.is_following = None, False

    @property
    def start_offset(self) -> int:
        """See ReplicaLog."""
        return self._ends[0] if self._store is None else self._store.log.min_offset

    @property
    def end_offset(self) -> int:
        """See ReplicaLog."""
        return self._ends[1] if self._store is None else self._store.log.written_offset

    @property
    def next_offset(self) -> int:
        """See ReplicaLog."""
        return self._ends[2] if self._store is None else self._store.log.received_offset

    @property
    def acknowledgeable_offset(self) -> int:
        """See ReplicaLog."""
        if self._store is None:
            return self._ends[3]
        return self._store.log.flushed_offset if self._is_sync else self.end_offset

    @property
    def is_away(self) -> bool:
        """See ReplicaLog."""
        return self._store is None or not self.is_following

    def read(self, offset: int, size_bytes_max: int) -> bytes:
        """See ReplicaLog."""
        if self._store is None:
            return b""
        file_end = offset - offset % self._file_size_bytes + self._file_size_bytes
        return self._store.log.read_written(offset, min(offset + size_bytes_max, file_end))

    def append(self, offset: int, data: bytes) -> None:
        """See ReplicaLog."""
        if self._store is None or self.is_away:
            raise AwayError("this replica's log cannot take a master's bytes now")
        self._store.append_raw(offset, data)
        if self._is_sync:
            self._store.flush_service.request()

    def drop_torn(self) -> None:
        """See ReplicaLog."""
        if self._store is None or self.is_away:
            return
        try:
            self._store.log.drop_torn()
        except StoreError as error:
            log.error("an incomplete record stays at the end of the log", reason=str(error))

    async def cut(self, end_offset: int) -> None:
        """See ReplicaLog: the truncated part goes to the quarantine."""
        await self._owner.reopen(cut_at=end_offset)

    async def begin_at(self, offset: int) -> None:
        """See ReplicaLog: the previous store is set aside as a whole."""
        await self._owner.reopen(begin_at=offset)

    def replace(self, offset: int) -> None:
        """Set the closed store aside, and let a new one begin at *offset*."""
        layout = self._layout
        if log_start.has_log(layout.commit_log):
            kept = set_aside(layout)
            log.warning("replacing this replica's store with the master's", kept_as=str(kept))
        log_start.begin_at(layout.commit_log, self._file_size_bytes, offset)
