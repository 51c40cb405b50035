"""StoreReading: all queries of an open store, none of which changes it."""

from collections.abc import Iterator
from functools import partial
from mmap import mmap

from rockhopper.broker.settings.store_config import StoreConfig
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.dispatch import Dispatch
from rockhopper.broker.store.index.find_by_key import KeySearch
from rockhopper.broker.store.index_scrubbing import IndexScrub
from rockhopper.broker.store.opening import OpenedStore
from rockhopper.broker.store.queues.batch_consume_queue import BatchConsumeQueue
from rockhopper.broker.store.queues.consume_queue import ConsumeQueue
from rockhopper.broker.store.reading.find_by_tag import TagSearch
from rockhopper.broker.store.reading.get_result import GetResult, GetStatus
from rockhopper.broker.store.reading.message_reader import MessageReader, ReadLimits
from rockhopper.broker.store.reading.property_stage import MessageFilter
from rockhopper.broker.store.recovering.entry_repair import EntryRepair
from rockhopper.broker.store.recovering.lookups import find_unit
from rockhopper.broker.store.recovering.record_places import RecordPlaces
from rockhopper.broker.store.scrubbing import Wake
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.store.message_codec import check_record, decode_message
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT_SIZE_BYTES


class StoreReading:
    """Messages by queue, offset, key and time; the bounds of queues and log."""

    _dispatch: Dispatch

    def __init__(self, config: StoreConfig, opened: OpenedStore) -> None:
        self.opened = opened
        """The files, and the result of recovery."""
        self._log = opened.commit_log
        self._queues = opened.queues
        self._index = opened.index
        self.places = RecordPlaces(opened.commit_log, opened.queues, lambda: self.dispatched_offset)
        self._scrub_wake = Wake()
        self.mender = EntryRepair(
            opened.commit_log, self.places, opened.tags_codes.compute_code, self._scrub_wake
        )
        self._index_scrub = (
            None if opened.index is None else IndexScrub(opened.index, opened.layout)
        )
        self.reader = MessageReader(
            opened.commit_log,
            self.places,
            self.mender,
            ReadLimits(
                opened.memory_bytes,
                config.transfer_count_in_memory_max,
                config.transfer_bytes_in_memory_max,
                config.transfer_count_on_disk_max,
                config.transfer_bytes_on_disk_max,
                config.filter_message_size_max // CONSUME_QUEUE_UNIT_SIZE_BYTES,
            ),
            opened.resolve_ext,
        )

    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        subscription: MessageFilter | None = None,
    ) -> GetResult:
        """Read messages of a queue; with *subscription* None all of them match."""
        queue = self._queues.get(topic, queue_id)
        if isinstance(queue, ConsumeQueue):
            return self.reader.get(queue, offset, count_max, subscription)
        if isinstance(queue, BatchConsumeQueue):
            return self.reader.get_batch(queue, offset, count_max, subscription)
        return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)

    def newest_of_log(self) -> tuple[mmap, int, int] | None:
        """Return the mapping of the file that is written to, and its [start, end)."""
        return self._log.newest()

    def log_around(self, log_offset: int) -> tuple[mmap, int, int] | None:
        """Return the mapping of the file that holds an offset, and its [start, end).

        It may be closed in the next iteration of the loop.

        Raises:
            OSError, StoreError: it cannot be mapped.
        """
        return self._log.mapped(log_offset)

    def consume_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return a queue with one unit for each of its own messages; None for any other."""
        queue = self._queues.get(topic, queue_id)
        return queue if isinstance(queue, ConsumeQueue) and not queue.is_light else None

    def get_bulk(
        self, topic: str, queue_id: int, offset: int, count_max: int, size_max: int
    ) -> GetResult:
        """Read many messages of a queue at once: up to *count_max*, or *size_max* bytes.

        BatchCQ queues return them under the limits of ordinary reads.
        """
        queue = self._queues.get(topic, queue_id)
        if isinstance(queue, ConsumeQueue):
            return self.reader.get_bulk(queue, offset, count_max, size_max)
        return self.get_message(topic, queue_id, offset, count_max)

    @property
    def tested_count(self) -> int:
        """How many messages property filters have read since the start."""
        return self.reader.tested_count

    @property
    def damaged_count(self) -> int:
        """How many damaged messages were found since the start."""
        return self.reader.damaged_count

    @property
    def mended_count(self) -> int:
        """How many entries of queues and index were repaired since the start."""
        scrub = self._index_scrub
        return self.mender.mended_count + (0 if scrub is None else scrub.mended_count)

    @property
    def index_fault_count(self) -> int:
        """How many faults of the index and its keys were logged but not repaired in place."""
        return 0 if self._index_scrub is None else self._index_scrub.fault_count

    @property
    def dispatched_offset(self) -> int:
        """The offset up to which messages are in their queues."""
        return self._dispatch.offset

    def claimed_at(self, log_offset: int) -> bytes:
        """Return the bytes at *log_offset* by their stated size; empty if they cannot be a record.

        They are not verified; the caller must do that.
        """
        return self._log.record_at(log_offset)

    def message_at(self, commit_log_offset: int) -> bytes:
        """Return the verified record at a commit log offset; empty if there is none."""
        return self.reader.record(commit_log_offset)

    def query(
        self,
        topic: str,
        key: str,
        count_max: int,
        begin_ms: int,
        end_ms: int,
    ) -> list[bytes]:
        """Return all results of ``search_key``, including messages deleted with the topic."""
        search, steps = self.search_key(topic, key, count_max, begin_ms, end_ms, with_gone=True)
        for _ in steps:
            pass
        return search.newest_first

    def search_key(
        self,
        topic: str,
        key: str,
        count_max: int,
        begin_ms: int,
        end_ms: int,
        *,
        with_gone: bool = False,
    ) -> tuple[KeySearch, Iterator[None]]:
        """Return a search for the newest messages of *topic* with *key*, and its steps.

        Unless *with_gone*, messages that were deleted or purged with the topic are left out.
        """
        record_at = self.reader.record
        if not with_gone and self.opened.has_gone(topic):
            record_at = partial(self._record_if_there, topic)
        search = KeySearch(topic, key, count_max, begin_ms, end_ms, record_at, self._is_visible)
        return search, iter(()) if self._index is None else search.steps(self._index)

    def search_tag(
        self, topic: str, tag: str, count_max: int, begin_ms: int, end_ms: int
    ) -> tuple[TagSearch, Iterator[None]]:
        """Return a search for the newest messages of *topic* with *tag*, and its steps.

        BatchCQ queues have no tags. Deleted or purged messages are left out.
        """

        def bounds(queue: ConsumeQueue) -> tuple[int, int]:
            low = queue.offset_by_time(begin_ms, False, self._store_time_of)
            high = queue.offset_by_time(end_ms, True, self._store_time_of)
            return low, min(high + 1, queue.max_offset)

        record_at = partial(self._record_if_there, topic)
        search = TagSearch(topic, tag, count_max, begin_ms, end_ms, record_at, self._is_visible)
        queues = [self._queues.get(topic, queue_id) for queue_id in self.queue_ids(topic)]
        return search, search.steps(
            [queue for queue in queues if isinstance(queue, ConsumeQueue)], bounds
        )

    def _is_visible(self, message: StoredMessage) -> bool:
        queue = self._queues.get(message.topic, message.queue_id)
        return queue is None or not queue.hides(message.queue_offset)

    def _record_if_there(self, topic: str, log_offset: int) -> bytes:
        return b"" if self.opened.is_gone(topic, log_offset) else self.reader.record(log_offset)

    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return (min, max) queue offset. Creates nothing.

        For a queue that does not exist, both are the offset of its first message: 0, unless a
        former topic of that name had messages in it.
        """
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            first = self.opened.next_queue_offset(topic, queue_id)
            return first, first
        return max(queue.min_offset, 0), queue.max_offset

    def has_messages(self, topic: str) -> bool:
        """Return whether any queue of this topic has a message that has not expired."""
        ranges = (self.queue_range(topic, queue_id) for queue_id in self.queue_ids(topic))
        return any(low < high for low, high in ranges)

    def has_first_message(self, topic: str, queue_id: int) -> bool:
        """Return whether no message of a queue of this topic has expired."""
        return self.queue_range(topic, queue_id)[0] <= self.opened.former_end(topic, queue_id)

    def queue_end_at(self, topic: str, queue_id: int, log_offset: int) -> int:
        """Return the end that a queue had when the commit log ended at *log_offset*."""
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return self.opened.next_queue_offset(topic, queue_id)
        found = find_unit(queue, log_offset)
        return queue.max_offset if found is None else found[0]

    def has_queue(self, topic: str, queue_id: int) -> bool:
        """Return whether the queue exists, that is, has ever had a message."""
        return self._queues.get(topic, queue_id) is not None

    def queue_units(self, topic: str, queue_id: int, offset: int, count: int) -> bytes:
        """Return up to *count* packed units of a queue from *offset* on; none for BatchCQ."""
        queue = self._queues.get(topic, queue_id)
        return queue.read_units(offset, count) if isinstance(queue, ConsumeQueue) else b""

    def records_bytes(self, topic: str, queue_id: int) -> int:
        """Return the bytes of a queue's records in the log; an estimate for long queues."""
        queue = self._queues.get(topic, queue_id)
        return 0 if queue is None else queue.records_bytes()

    def set_read_ahead(self, *, enabled: bool) -> None:
        """Allow or forbid read-ahead in the commit log until the next start."""
        self.opened.set_read_ahead(enabled=enabled)

    def offset_by_time(self, topic: str, queue_id: int, time_ms: int, *, upper: bool) -> int:
        """Return the queue offset for a store time; 0 for a queue that does not exist."""
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return 0
        return queue.offset_by_time(time_ms, upper, self._store_time_of)

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the store time of one message, −1 if it does not exist."""
        result = self.get_message(topic, queue_id, queue_offset, 1)
        if result.status is not GetStatus.FOUND:
            return -1
        return decode_message(result.body).store_time_ms

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """Return the store time of a queue's oldest message, −1 if it has none."""
        return self.store_time(topic, queue_id, self.queue_range(topic, queue_id)[0])

    def properties_from(self, offset: int) -> Iterator[bytes]:
        """Yield the stored properties of each record from a commit log offset on.

        For reading the newest part of the log before requests are served.
        """
        return self.opened.properties_from(offset)

    def records_from(self, log_offset: int) -> Iterator[bytes]:
        """Yield the records from *log_offset* on.

        *log_offset* is where a record starts, or where a file's last one ends.
        """
        commit_log = self._log
        while log_offset < commit_log.written_offset:
            record = commit_log.record_at(log_offset)
            if record:
                yield record
                log_offset += len(record)
            else:
                log_offset = commit_log.next_file_offset(log_offset)

    def _store_time_of(self, commit_log_offset: int, size_bytes: int) -> int:
        record = self._log.read(commit_log_offset, commit_log_offset + size_bytes)
        check = check_record(record, 0, len(record), commit_log_offset, False)
        return check.store_time_ms if check.is_ok else -1

    @property
    def store_time_ms(self) -> int:
        """The store time of the messages of this pass."""
        return self._log.store_time_ms

    @property
    def min_commit_log_offset(self) -> int:
        """The offset of the oldest byte of the log."""
        return self._log.min_offset

    @property
    def max_commit_log_offset(self) -> int:
        """The end of the log."""
        return self._log.written_offset

    @property
    def flushed_offset(self) -> int:
        """The offset up to which the log is known to be durable."""
        return self._log.flushed_offset

    @property
    def earliest_time_ms(self) -> int:
        """The store time of the oldest message in the log, −1 if it is empty."""
        log_offset = self._log.min_offset
        head = self._log.record_at(log_offset)
        return self._store_time_of(log_offset, len(head)) if head else -1

    @property
    def layout(self) -> StoreLayout:
        """Paths of the store directory."""
        return self.opened.layout

    def queue_ids(self, topic: str) -> list[int]:
        """Return the ids of the queues of *topic* that hold or held messages."""
        return sorted(self._queues.queues_of(topic))
