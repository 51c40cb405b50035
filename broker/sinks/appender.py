"""Putting the messages of a batch into the log, and finding those that are there already.

Each gets the property RH_SINK, ``<sink key>:<batch id>:<number within the batch>``, by which a
broker that was killed in the midst of a batch sees how far it had come.
"""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import structlog

from broker.message_ids import UniqueIds
from broker.sinks.staged_parts import entries
from broker.stats import BrokerStats
from broker.store.errors import StoreError
from broker.store.message_store import MessageStore
from broker.topics import TopicTable
from broker.transactions.delays import Redirect
from protocol.bodies.sinks import SinkMessage, decode_sink_messages
from protocol.properties import PROPERTY_UNIQUE_KEY, decode_properties

log = structlog.get_logger("broker.sinks")

PROPERTY_SINK = "RH_SINK"
# What only the broker may set, or what would make a message something else than a plain one.
REFUSED_PROPERTIES = frozenset(
    {
        PROPERTY_SINK,
        "INNER_BASE",
        "INNER_NUM",
        "POP_CK",
        "REAL_QID",
        "REAL_TOPIC",
        "TRAN_MSG",
        "WAIT",
        "__CRC32#",
    }
)
SLICE_COUNT_MAX = 512
SLICE_BYTES_MAX = 1 << 20
_MARK = re.compile(rf"{PROPERTY_SINK}\x01([0-9a-f]+:\d+):(\d+)\x02".encode()).search


class BatchAppender:
    """Appends batches to one store.  Belongs to the event loop."""

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
        """*redirect* says where a message waits that is wanted later.

        *suffix* holds the properties that the broker adds to every message.
        """
        self._store = store
        self._topics = topics
        self._stats = stats
        self._redirect = redirect
        self._unique_ids = unique_ids
        self._store_host = store_host
        self._suffix = suffix

    def appended_count(self, batch: str, from_offset: int) -> int:
        """How many messages of *batch* the log holds from an offset on."""
        count = 0
        for properties in self._store.properties_from(from_offset):
            found = _MARK(properties)
            if found is not None and found[1].decode() == batch:
                count = max(count, int(found[2]) + 1)
        return count

    def append(self, batch: str, paths: list[Path], start: int) -> Iterator[int]:
        """Append the messages from number *start* on, slice by slice; yields how far it has come.

        Raises:
            StoreError: the slices before are in the log, this one is not.
            OSError: a part cannot be read.
        """
        number = size_bytes = staged = 0
        store = self._store
        try:
            for message in _messages(paths):
                number += 1
                if number <= start:
                    continue
                if staged == 0:
                    store.check_writable()
                    store.begin()
                self._stage(message, f"{batch}:{number - 1}", number - 1)
                staged += 1
                size_bytes += len(message.body)
                if staged >= SLICE_COUNT_MAX or size_bytes >= SLICE_BYTES_MAX:
                    staged = size_bytes = 0
                    store.commit()
                    yield number
        except StoreError:
            if staged:
                # Ends the pass; what it can still write of it, ``appended_count`` finds.
                with contextlib.suppress(StoreError):
                    store.commit()
            raise
        if staged:
            store.commit()
            yield number

    def _stage(self, message: SinkMessage, mark: str, number: int) -> None:
        topic = self._topics.get(message.topic)
        if topic is None:
            log.warning("message of a sink dropped: its topic was deleted", topic=message.topic)
            return
        queue_id = message.queue_id
        if queue_id < 0:
            queue_id = number % max(topic.write_queue_nums, 1)
        text = message.properties
        if text and not text.endswith("\x02"):
            text += "\x02"
        text += f"{PROPERTY_SINK}\x01{mark}\x02"
        store = self._store
        staged = None
        if not topic.attributes:
            staged = store.stage_plain(
                store.tail(topic.name, queue_id),
                message.body,
                text,
                self._suffix,
                message.flag,
                0,
                message.born_time_ms,
                self._store_host,
                0,
            )
        if staged is None:
            self._stage_generally(message, topic.name, queue_id, text)
        self._stats.put(topic.name).add(1, len(message.body))

    def _stage_generally(self, message: SinkMessage, topic: str, queue_id: int, text: str) -> None:
        properties = decode_properties(text)
        if not properties.get(PROPERTY_UNIQUE_KEY):
            properties[PROPERTY_UNIQUE_KEY] = self._unique_ids.next()
        properties |= decode_properties(self._suffix.decode())
        topic, queue_id = self._redirect(topic, queue_id, properties)
        self._store.stage(
            self._store.tail(topic, queue_id),
            message.body,
            properties,
            message.flag,
            0,
            message.born_time_ms,
            self._store_host,
        )


def _messages(paths: list[Path]) -> Iterator[SinkMessage]:
    for path in paths:
        for _, _, data in entries(path):
            yield from decode_sink_messages(data)
