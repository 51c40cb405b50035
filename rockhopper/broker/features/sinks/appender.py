"""Appends the messages of a batch to the log, and finds those that it already contains.

Each message gets the property RH_SINK: ``<sink key>:<batch id>:<number within the batch>``. With
it, a broker that was killed during a batch finds the last message that it appended. All messages of
a run have the same property: the number of the run's first message, followed by ``+``.
"""

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Set
from itertools import chain, takewhile
from pathlib import Path

import structlog

from rockhopper.broker.features.sinks.runs import messages_of, plain_count
from rockhopper.broker.features.sinks.staged_parts import items
from rockhopper.broker.kernel.tables.topics import TopicConfig, TopicTable
from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.store.files.errors import RecordTooLargeError, StoreError
from rockhopper.broker.store.log.encoding import OWN_PROPERTIES
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.put import Redirect
from rockhopper.broker.store.queues.queue_tail import QueueTail
from rockhopper.protocol.bodies.sinks import SinkMessage, SinkRun
from rockhopper.protocol.message_ids import UniqueIds
from rockhopper.protocol.properties import (
    PROPERTY_INNER_BASE,
    PROPERTY_INNER_NUM,
    PROPERTY_POP_CK,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_UNIQUE_KEY,
    PROPERTY_WAIT,
    decode_properties,
)
from rockhopper.protocol.store.queue_layout import (
    CONSUME_QUEUE_UNIT,
    CONSUME_QUEUE_UNIT_SIZE_BYTES,
)

log = structlog.get_logger("broker.sinks")

PROPERTY_SINK = "RH_SINK"
_NAME = PROPERTY_SINK.encode()
# Properties that only the broker may set, or that would change the kind of the message.
REFUSED_PROPERTIES = frozenset(
    {
        *OWN_PROPERTIES,
        PROPERTY_INNER_BASE,
        PROPERTY_INNER_NUM,
        PROPERTY_POP_CK,
        PROPERTY_REAL_QUEUE_ID,
        PROPERTY_REAL_TOPIC,
        PROPERTY_TRANSACTION_PREPARED,
        PROPERTY_WAIT,
    }
)
SLICE_COUNT_MAX = 256
SLICE_BYTES_MAX = 1 << 20
# The first message of a queue counts as this many messages: it may need a new file, which takes a
# millisecond to create and allocate.
FIRST_OF_QUEUE_COUNT = 64
_Offsets = list[int] | bytes
"""Places in the commit log; of a run, its packed consume queue units."""
_MARK = re.compile(r"([0-9a-f]+:\d+):(\d+)(\+?)").fullmatch


class BatchAppender:
    """Appends batches to one store. Belongs to the event loop."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        stats: BrokerStats,
        redirect: Redirect,
        unique_ids: UniqueIds,
        *,
        store_host: bytes,
        suffix: bytes,
    ) -> None:
        """*redirect* returns the topic and queue in which a delayed message waits.

        *suffix* holds the properties that the broker adds to every message.
        """
        self._store = store
        self._topics = topics
        self._stats = stats
        self._redirect = redirect
        self._unique_ids = unique_ids
        self._store_host = store_host
        self._suffix = suffix
        self.deleted: set[str] = set()
        """Topics deleted while a batch is appended; they may have been created again."""

    def missing(self, topics: Set[str]) -> list[str]:
        """Return those of *topics* that do not exist."""
        return sorted(name for name in topics if name not in self._topics)

    def count_appended(self, batch: str, from_offset: int) -> int:
        """Return the number of messages of *batch* in the log from an offset on."""
        count = 0
        of_runs: Counter[int] = Counter()
        for properties in self._store.opened.properties_from(from_offset):
            if _NAME not in properties:
                continue
            found = _MARK(decode_properties(properties).get(PROPERTY_SINK, ""))
            if found is not None and found[1] == batch:
                first, earlier = int(found[2]), 0
                if found[3]:
                    earlier = of_runs[first]
                    of_runs[first] += 1
                count = max(count, first + earlier + 1)
        return count

    def append(self, batch: str, paths: list[Path], start: int) -> Iterator[int]:
        """Append the messages from number *start* on, slice by slice; yield the progress.

        It holds back the target queues from consumers. Messages of a deleted topic are dropped, as
        if the topic had been deleted after the batch.

        Raises:
            StoreError, OSError: the log has the messages up to the last yielded number, and no
            later ones.
        """
        store = self._store
        number = count = size_bytes = 0
        done = start
        placed: list[tuple[int, _Offsets]] = []
        """For this slice: the number of messages, and their places (none if they were dropped)."""
        held: set[QueueTail] = set()
        dropped: Counter[str] = Counter()
        try:
            for item, size in _from(start, paths):
                number += size
                count += size
                if number > start:
                    if not placed:
                        store.check_writable()
                        store.staging.read_clock()
                    topic = self._topics.get(item.topic)
                    if topic is None or item.topic in self.deleted:
                        dropped[item.topic] += size
                        placed.append((size, []))
                    else:
                        first = store.log.staged_offset
                        for log_offsets, tail in self._stage(item, topic, batch, number - size):
                            # Before the next message, which may fail.
                            placed.append((_count(log_offsets), log_offsets))
                            if tail not in held:
                                held.add(tail)
                                store.visibility.hold(tail)
                                count += FIRST_OF_QUEUE_COUNT
                        self._stats.get_send_traffic(topic.name).count_request(
                            size, store.log.staged_offset - first
                        )
                        size_bytes += _body_size_bytes(item)
                if count >= SLICE_COUNT_MAX or size_bytes >= SLICE_BYTES_MAX:
                    store.commit()
                    done = max(number, start)
                    count = size_bytes = 0
                    placed.clear()
                    yield done
            store.commit()
        except (StoreError, OSError):
            # Ends the pass, unless this has just failed.
            with contextlib.suppress(StoreError):
                store.commit()
            yield done + _count_before(store.log.written_offset, placed)
            raise
        if dropped:
            log.warning("sink messages dropped: their topics were deleted", topics=dropped)
        yield max(number, start)

    def _stage(
        self, item: SinkMessage | SinkRun, topic: TopicConfig, batch: str, number: int
    ) -> Iterator[tuple[_Offsets, QueueTail]]:
        """Stage message *number*, or the run that it begins; return its place and queue.

        A run is staged whole or message by message. Raises StoreError; the messages before the
        failed one are staged.
        """
        queue_id = item.queue_id
        if queue_id < 0:
            queue_id = number % max(topic.write_queue_nums, 1)
        if isinstance(item, SinkMessage):
            log_offset, tail = self._stage_one(item, topic, queue_id, f"{batch}:{number}")
            yield [log_offset], tail
            return
        staged = None
        if not topic.attributes:
            tail = self._store.staging.tail(topic.name, queue_id)
            suffix = self._suffix_with(f"{batch}:{number}+")
            # A run is larger than a log file only if the files are configured very small.
            with contextlib.suppress(RecordTooLargeError):
                staged = self._store.staging.stage_run(
                    tail, item.messages, suffix, item.born_time_ms
                )
        if staged is not None:
            yield staged[1], tail
            return
        for index, message in enumerate(messages_of(item)):
            mark = f"{batch}:{number + index}"
            log_offset, tail = self._stage_one(message, topic, queue_id, mark)
            yield [log_offset], tail

    def _suffix_with(self, mark: str) -> bytes:
        return self._suffix + f"{PROPERTY_SINK}\x01{mark}\x02".encode()

    def _stage_one(
        self, message: SinkMessage, topic: TopicConfig, queue_id: int, mark: str
    ) -> tuple[int, QueueTail]:
        store = self._store
        if not topic.attributes:
            tail = store.staging.tail(topic.name, queue_id)
            staged = store.staging.stage_plain(
                tail,
                message.body,
                message.properties,
                self._suffix_with(mark),
                message.flag,
                0,
                message.born_time_ms,
                self._store_host,
                0,
            )
            if staged is not None:
                return staged[0], tail
        return self._stage_generally(message, topic.name, queue_id, mark)

    def _stage_generally(
        self, message: SinkMessage, topic: str, queue_id: int, mark: str
    ) -> tuple[int, QueueTail]:
        properties = decode_properties(message.properties)
        if not properties.get(PROPERTY_UNIQUE_KEY):
            properties[PROPERTY_UNIQUE_KEY] = self._unique_ids.next()
        properties |= decode_properties(self._suffix.decode())
        properties[PROPERTY_SINK] = mark
        topic, queue_id = self._redirect(topic, queue_id, properties)
        tail = self._store.staging.tail(topic, queue_id)
        log_offset = self._store.staging.stage(
            tail,
            message.body,
            properties,
            message.flag,
            0,
            message.born_time_ms,
            self._store_host,
        )
        return log_offset, tail


def _from(start: int, paths: list[Path]) -> Iterator[tuple[SinkMessage | SinkRun, int]]:
    """Yield the messages and runs in the parts, with the message count of each. Raises OSError.

    A run that contains *start* is yielded message by message.
    """
    number = 0
    for item in chain.from_iterable(map(items, paths)):
        size = 1
        if isinstance(item, SinkRun):
            size = plain_count(item) or len(messages_of(item))
            if number < start < number + size:
                yield from ((message, 1) for message in messages_of(item))
                number += size
                continue
        yield item, size
        number += size


def _count(log_offsets: _Offsets) -> int:
    if isinstance(log_offsets, bytes):
        return len(log_offsets) // CONSUME_QUEUE_UNIT_SIZE_BYTES
    return len(log_offsets)


def _body_size_bytes(item: SinkMessage | SinkRun) -> int:
    return len(item.body if isinstance(item, SinkMessage) else item.messages)


def _count_before(end_offset: int, placed: list[tuple[int, _Offsets]]) -> int:
    """Return the number of messages before the first one at or after *end_offset*."""
    count = 0
    for size, where in placed:
        if isinstance(where, bytes):
            where = [log_offset for log_offset, _, _ in CONSUME_QUEUE_UNIT.iter_unpack(where)]
        before = sum(1 for _ in takewhile(lambda log_offset: log_offset < end_offset, where))
        if where and before < size:
            return count + before
        count += size
    return count
