"""StoreReading: all queries of an open store, none of which changes it."""

import os
from collections.abc import Iterator
from functools import partial

from rockhopper.broker.settings.store_config import StoreConfig
from rockhopper.broker.store.dispatch import Dispatch
from rockhopper.broker.store.opening import OpenedStore
from rockhopper.broker.store.queues.batch_consume_queue import BatchConsumeQueue
from rockhopper.broker.store.queues.consume_queue import ConsumeQueue
from rockhopper.broker.store.reading.get_result import GetResult, GetStatus
from rockhopper.broker.store.reading.message_reader import MessageReader, ReadLimits
from rockhopper.broker.store.reading.property_stage import MessageFilter
from rockhopper.broker.store.reading.record_search import KeySearch, TagSearch
from rockhopper.broker.store.recovering.entry_repair import EntryRepair, Flag, RecordPlaces
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.store.message_codec import check_record, decode_message
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT_SIZE_BYTES


class StoreReading:
    """Messages by queue, offset, key and time; the bounds of queues and log."""

    def __init__(
        self, config: StoreConfig, opened: OpenedStore, dispatch: Dispatch, long_search: Flag
    ) -> None:
        """*long_search* is set if the search for the record of a wrong entry takes long."""
        self._opened = opened
        self._log = opened.commit_log
        self._queues = opened.queues
        self.places = RecordPlaces(opened.commit_log, opened.queues, lambda: dispatch.offset)
        self.mender = EntryRepair(opened.commit_log, self.places, opened.delay_ms, long_search)
        self.reader = MessageReader(
            opened.commit_log,
            self.places,
            self.mender,
            ReadLimits(
                _count_memory_bytes() * config.in_memory_ratio_max // 100,
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
        if not with_gone and self._opened.has_gone(topic):
            record_at = partial(self._record_if_there, topic)
        search = KeySearch(topic, key, count_max, begin_ms, end_ms, record_at, self._is_visible)
        return search, iter(()) if self._opened.index is None else search.steps(self._opened.index)

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
        return b"" if self._opened.is_gone(topic, log_offset) else self.reader.record(log_offset)

    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return (min, max) queue offset. Creates nothing.

        For a queue that does not exist, both are the offset of its first message: 0, unless a
        former topic of that name had messages in it.
        """
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            first = self._opened.next_queue_offset(topic, queue_id)
            return first, first
        return max(queue.min_offset, 0), queue.max_offset

    def has_messages(self, topic: str) -> bool:
        """Return whether any queue of this topic has a message that has not expired."""
        ranges = (self.queue_range(topic, queue_id) for queue_id in self.queue_ids(topic))
        return any(low < high for low, high in ranges)

    def has_first_message(self, topic: str, queue_id: int) -> bool:
        """Return whether no message of a queue of this topic has expired."""
        return self.queue_range(topic, queue_id)[0] <= self._opened.former_end(topic, queue_id)

    def queue_end_at(self, topic: str, queue_id: int, log_offset: int) -> int:
        """Return the end that a queue had when the commit log ended at *log_offset*."""
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return self._opened.next_queue_offset(topic, queue_id)
        found = queue.find_unit(log_offset)
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
    def earliest_time_ms(self) -> int:
        """The store time of the oldest message in the log, −1 if it is empty."""
        log_offset = self._log.min_offset
        head = self._log.record_at(log_offset)
        return self._store_time_of(log_offset, len(head)) if head else -1

    def queue_ids(self, topic: str) -> list[int]:
        """Return the ids of the queues of *topic* that hold or held messages."""
        return sorted(self._queues.queues_of(topic))

    def topics(self) -> list[str]:
        """Return the topics that have queues with messages, or had."""
        return self._queues.topics()


def _count_memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
