"""Add missing entries to the index, from the records of the commit log."""

import structlog

from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue
from rockhopper.broker.store.index.index import MessageIndex
from rockhopper.broker.store.log.log_scan import record_at, record_start
from rockhopper.broker.store.recovering.inventory import Inventory
from rockhopper.protocol.store.expected import Record, expect_keys
from rockhopper.protocol.store.walking import TIMED_KEY

log = structlog.get_logger("broker.store")

_PACKED_KEYS_MAX = 128 * TIMED_KEY.size


def index_start(index: MessageIndex, log_files: MappedFileQueue, noted: Inventory | None) -> int:
    """Empty an index that belongs to another log; return the offset where indexing continues."""
    index.discard_from(log_files.next_base_offset)
    if _lacks_the_first_message(index, log_files) or not _fits_the_log(index, log_files):
        log.warning("the index does not match the commit log and is rebuilt")
        index.clear()
    end = index.end_commit_log_offset
    if noted is not None and noted.index_end == end:
        return noted.log_end  # No message before that end has further keys.
    return log_files.min_offset if end < 0 else record_start(log_files, end)


def _lacks_the_first_message(index: MessageIndex, log_files: MappedFileQueue) -> bool:
    log_min = log_files.min_offset
    first = record_at(log_files, log_min)
    begin = index.begin_commit_log_offset
    return begin > log_min and first is not None and bool(expect_keys(first))


def _fits_the_log(index: MessageIndex, log_files: MappedFileQueue) -> bool:
    newest = record_at(log_files, index.end_commit_log_offset)
    return newest is None or set(index.hashes_at_end()) <= set(expect_keys(newest))


class IndexCatchUp:
    """Indexes records from where *index* ends."""

    def __init__(self, index: MessageIndex) -> None:
        self._index = index
        self._packed_keys = bytearray()
        self.put_count = 0
        # Records before it are in the index.
        self.from_offset = index.end_commit_log_offset

    def place(self, record: Record) -> None:
        """Index a record that is not before ``from_offset``; ``finish`` completes it.

        Raises:
            OSError: the index cannot grow.
        """
        hashes = expect_keys(record)
        offset = record.offset
        if offset == self.from_offset:
            # The last run may have ended after only some of this message's keys were written.
            for key_hash in self._index.hashes_at_end():
                if key_hash in hashes:
                    hashes.remove(key_hash)
        for key_hash in hashes:
            self._packed_keys += TIMED_KEY.pack(key_hash, offset, record.store_time_ms)
        if len(self._packed_keys) >= _PACKED_KEYS_MAX:
            self.finish()

    def ends_within(self, start: int, end: int) -> bool:
        """Return whether the index has only some of the records from *start* up to *end*."""
        return start <= self.from_offset < end

    def place_keys(self, packed_keys: bytes, start: int) -> None:
        """Index the records after *start*, unless they are indexed already.

        Call it only if ``ends_within`` is false for these records.

        Raises:
            OSError: the index cannot grow.
        """
        if start > self.from_offset:
            self._packed_keys += packed_keys
            self.finish()

    def finish(self) -> None:
        """Write the collected keys.

        Raises:
            OSError: the index cannot grow.
        """
        packed_keys, self._packed_keys = self._packed_keys, bytearray()
        if packed_keys:
            self._index.put_timed(packed_keys)
            self.put_count += len(packed_keys) // TIMED_KEY.size
