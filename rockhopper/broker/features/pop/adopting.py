"""Takes over messages that RocketMQ's broker handed out by pop, unacknowledged, with its store.

RocketMQ notes pops and acknowledgements as messages with a JSON body, by their tag:

    ck      t topic, c group, q queue, bn broker, pt pop time, it invisible time, so start offset,
            n how many, d their distances from so, bm bits of those settled, sp suspended
    ack     t, c, q, bn, pt, so, and ao an offset
    bAck    the same with aol, offsets

Each waits in rmq_sys_wheel_timer until shortly before the popped messages become visible again.
Then it moves to a queue of rmq_sys_REVIVE_LOG_<cluster>, which RocketMQ reads in order.
CID_RMQ_SYS_REVIVE_GROUP commits the last offset that RocketMQ handled. This module converts the
unacknowledged messages to entries of lanes, once. Their consumers acknowledge them to this broker.
The group commits its low-water mark, so RocketMQ delivers them again if it is started on the store
later. This broker does not deliver RocketMQ's checkpoint messages to a queue (timers/following.py).
"""

from collections.abc import Iterator, Mapping

import msgspec
import structlog

from rockhopper.broker.features.pop.lanes import InFlight, Lanes
from rockhopper.broker.kernel.tables.consumer_offsets import ConsumerOffsetTable
from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.reading.get_result import GetStatus
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.names import REVIVE_GROUP, REVIVE_TOPIC_PREFIX, TIMER_TOPIC
from rockhopper.protocol.properties import (
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TAGS,
    PROPERTY_TIMER_OUT_MS,
)
from rockhopper.protocol.store.message_codec import decode_messages
from rockhopper.protocol.subscription import Subscription

log = structlog.get_logger("broker.pop")

_CHECKPOINT = "ck"
_ANY_NOTE = "ck || ack || bAck"
_BATCH_COUNT_MAX = 128
# RocketMQ's timers order by seconds only. Entries may be this far out of order; the set of entries
# handled last shows which of them were seen.
_SLACK_MS = 2000
_REMEMBERED_COUNT = 4096

LaneKey = tuple[str, str, int]
# The key of a checkpoint and its acknowledgements: lane, start offset, pop time.
NoteKey = tuple[LaneKey, int, int]


class _Note(msgspec.Struct):
    """The body of each of the three kinds."""

    topic: str = msgspec.field(name="t")
    group: str = msgspec.field(name="c")
    queue_id: int = msgspec.field(name="q")
    pop_ms: int = msgspec.field(name="pt")
    start_offset: int = msgspec.field(name="so")
    invisible_ms: int = msgspec.field(name="it", default=0)
    count: int = msgspec.field(name="n", default=0)
    distances: list[int] | None = msgspec.field(name="d", default=None)
    settled: int = msgspec.field(name="bm", default=0)
    suspended: bool = msgspec.field(name="sp", default=False)
    acked: int = msgspec.field(name="ao", default=-1)
    all_acked: list[int] = msgspec.field(name="aol", default_factory=list)

    @property
    def key(self) -> NoteKey:
        return (self.group, self.topic, self.queue_id), self.start_offset, self.pop_ms

    def entries(self) -> dict[int, InFlight]:
        """The messages in flight according to a checkpoint."""
        entry = InFlight(self.pop_ms, self.invisible_ms, is_suspended=self.suspended)
        distances = self.distances or range(self.count)
        return {
            self.start_offset + distance: entry
            for index, distance in enumerate(distances)
            if not self.settled >> index & 1
        }


_decode_note = msgspec.json.Decoder(_Note).decode


def adopt(
    store: MessageStore, topics: TopicTable, offsets: ConsumerOffsetTable, lanes: Lanes
) -> list[LaneKey]:
    """Take over RocketMQ's messages in flight; return the changed lanes. Blocks.

    Raises:
        OSError: the journal cannot be written; the caller should retry.
    """
    reader = _CheckpointReader(store, offsets)
    revive_topics = [name for name in topics.configs if name.startswith(REVIVE_TOPIC_PREFIX)]
    for name in revive_topics:
        for queue_id in range(topics.configs[name].read_queue_nums):
            reader.read_revive_queue(name, queue_id)
    reader.read_timers()
    found = {
        key: entries
        for key, entries in reader.list_in_flight().items()
        if key[1] in topics and entries
    }
    for key, entries in found.items():
        _add(lanes, offsets, key, entries)
    for name, queue_id, offset in reader.ends:
        offsets.commit(name, REVIVE_GROUP, queue_id, offset)
    if found:
        count = sum(map(len, found.values()))
        log.info("messages popped from RocketMQ's broker are imported as in flight", messages=count)
    return list(found)


def _add(
    lanes: Lanes, offsets: ConsumerOffsetTable, key: LaneKey, entries: Mapping[int, InFlight]
) -> None:
    group, topic, queue_id = key
    committed = offsets.get(topic, group, queue_id)
    cursor = committed if committed is not None else min(entries)
    lane = lanes.get(*key) or lanes.open(*key, cursor)
    cursor = max(cursor, lane.cursor)
    # Messages after the cursor are handed out again in any case.
    lanes.adopt(lane, cursor, {o: entry for o, entry in entries.items() if o < cursor})
    offsets.commit(topic, group, queue_id, lane.low_water, backward=True)


class _CheckpointReader:
    """Gathers checkpoints and their acknowledgements."""

    def __init__(self, store: MessageStore, offsets: ConsumerOffsetTable) -> None:
        self._store = store
        self._offsets = offsets
        self._settled_before_ms: dict[tuple[str, str], int] = {}
        self._settled: set[NoteKey] = set()
        self._checkpoints: dict[NoteKey, dict[int, InFlight]] = {}
        self._acked: list[tuple[NoteKey, list[int]]] = []
        self.ends: list[tuple[str, int, int]] = []
        """(topic, queue id, offset): what the revive group may commit once these records are taken
        over."""

    def read_revive_queue(self, topic: str, queue_id: int) -> None:
        """Read the records that became due and were not handled."""
        high = self._store.reading.queue_range(topic, queue_id)[1]
        settled = self._offsets.get(topic, REVIVE_GROUP, queue_id)
        start = 0 if settled is None else settled + 1
        due_ms = 0
        for message in self._messages(topic, queue_id, max(0, start - _REMEMBERED_COUNT)):
            if message.queue_offset >= start:
                self._take(message)
                continue
            due_ms = _due_ms(message)
            if (note := _note(message)) is not None and _is_checkpoint(message):
                self._settled.add(note.key)
        self._settled_before_ms[topic, str(queue_id)] = due_ms - _SLACK_MS
        if high:
            self.ends.append((topic, queue_id, high - 1))

    def read_timers(self) -> None:
        """Read the records that are not due yet, or may not be."""
        high = self._store.reading.queue_range(TIMER_TOPIC, 0)[1]
        start = self._offsets.get(TIMER_TOPIC, REVIVE_GROUP, 0) or 0
        notes = Subscription(TIMER_TOPIC, _ANY_NOTE)
        seen = 0
        for message in self._messages(TIMER_TOPIC, 0, start, notes):
            properties = message.properties
            topic = properties.get(PROPERTY_REAL_TOPIC, "")
            if not topic.startswith(REVIVE_TOPIC_PREFIX):
                continue
            seen += 1
            queue = topic, properties.get(PROPERTY_REAL_QUEUE_ID, "")
            if _due_ms(message) >= self._settled_before_ms.get(queue, 0):
                self._take(message)
        if seen:
            self.ends.append((TIMER_TOPIC, 0, high))

    def _messages(
        self, topic: str, queue_id: int, start: int, subscription: Subscription | None = None
    ) -> Iterator[StoredMessage]:
        offset, high = start, self._store.reading.queue_range(topic, queue_id)[1]
        while offset < high:
            result = self._store.reading.get_message(
                topic, queue_id, offset, _BATCH_COUNT_MAX, subscription
            )
            if result.status is GetStatus.FOUND:
                yield from decode_messages(result.body)
            if result.next_offset <= offset:
                return
            offset = result.next_offset

    def _take(self, message: StoredMessage) -> None:
        note = _note(message)
        if note is None:
            return
        if not _is_checkpoint(message):
            self._acked.append((note.key, [note.acked, *note.all_acked]))
        elif note.key not in self._settled:
            self._checkpoints[note.key] = note.entries()

    def list_in_flight(self) -> dict[LaneKey, dict[int, InFlight]]:
        """The messages in flight, by the latest pop of each."""
        for key, acked in self._acked:
            for offset in acked:
                self._checkpoints.get(key, {}).pop(offset, None)
        found: dict[LaneKey, dict[int, InFlight]] = {}
        for (lane, _, _), entries in self._checkpoints.items():
            mine = found.setdefault(lane, {})
            for offset, entry in entries.items():
                if offset not in mine or mine[offset].pop_ms < entry.pop_ms:
                    mine[offset] = entry
        return found


def _note(message: StoredMessage) -> _Note | None:
    try:
        return _decode_note(message.body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        log.warning("a pop record of RocketMQ is invalid", reason=str(error))
        return None


def _is_checkpoint(message: StoredMessage) -> bool:
    return message.properties.get(PROPERTY_TAGS) == _CHECKPOINT


def _due_ms(message: StoredMessage) -> int:
    text = message.properties.get(PROPERTY_TIMER_OUT_MS, "")
    return int(text) if text.isdecimal() else message.store_time_ms
