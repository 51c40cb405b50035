"""Lanes: the position of each group's pop consumption in a queue, and the messages in flight.

A lane has a cursor, the queue offset that is handed out next, and an entry for each message that
was handed out and is not settled (acknowledged, or copied to a retry or dead-letter topic). The
entry has the pop time and the invisible time. Lanes are in memory. Each change is first written to
the journal (store/files/record_journal.py, in ``<store>/rockhopper/pop``), with one write(2) per
request, so every answer that a client received survives a crash of the process. A power cut loses
the newest records. Messages are then delivered again, and none is lost, because a group never
commits an offset beyond its oldest unsettled message.

Records after a lost or damaged one are ignored: they could show messages as handed out although the
lost record settled them, or the reverse. These messages are delivered again.

If a message was copied to the retry topic or to the dead letters, its entry stays until the copy is
known to be on disk: ``copy_end`` is the commit log offset at the end of the copy. After a crash
that lost the copy, the message is in flight again.

Kinds of records, all integers big-endian:

    1 LANE     number:4 queue:4 size:2 group size:2 topic cursor:8 count:4
               {offset:8 popMs:8 invisibleMs:8 copyEnd:8}… ordered batch as msgpack
               replaces all earlier state of this number
    2 POP      number:4 cursor:8 popMs:8 invisibleMs:8 {offset:8}…
    3 ACK      number:4 {offset:8}…
    4 CHANGE   number:4 offset:8 popMs:8 invisibleMs:8
    5 COPIED   number:4 copyEnd:8 {offset:8}…
    6 DROP     number:4
    7 ORDERED  number:4 cursor:8 ordered batch as msgpack
    8 SUSPEND  as CHANGE, and the next delivery does not count as an attempt
"""

import heapq
import struct
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import structlog

from rockhopper.broker.features.pop.ordered import OrderedBatch, decode_batch, encode_batch
from rockhopper.broker.kernel.state_channels import StateChannel
from rockhopper.broker.store.files.record_journal import RecordJournal
from rockhopper.protocol.store.journal_records import encode_record

log = structlog.get_logger("broker.pop")

LANE, POP, ACK, CHANGE, COPIED, DROP, ORDERED, SUSPEND = range(1, 9)
_NOT_COPIED = -1
_DUE_REBUILD_MIN = 1024

_LANE = struct.Struct(">II")
_SIZE = struct.Struct(">H")
_CURSOR_AND_COUNT = struct.Struct(">qI")
_ENTRY = struct.Struct(">qqqq")
_POP = struct.Struct(">Iqqq")
_NUMBER = struct.Struct(">I")
_CHANGE = struct.Struct(">Iqqq")
_COPIED = struct.Struct(">Iq")
_ORDERED = struct.Struct(">Iq")


class InFlight(NamedTuple):
    """A message in flight."""

    pop_ms: int
    invisible_ms: int
    copy_end: int = _NOT_COPIED
    is_suspended: bool = False
    """Whether the next delivery does not count as an attempt."""

    @property
    def visible_ms(self) -> int:
        """The time from which it may be handed out again."""
        return self.pop_ms + self.invisible_ms

    @property
    def is_copied(self) -> bool:
        """Whether a copy is in the log, so that the entry only waits until the copy is on disk."""
        return self.copy_end != _NOT_COPIED


class Lane:
    """One group in one queue. Changed by Lanes only."""

    __slots__ = ("batch", "cursor", "entries", "group", "is_dropped", "number", "queue_id", "topic")

    def __init__(self, number: int, group: str, topic: str, queue_id: int, cursor: int) -> None:
        self.number = number
        self.group = group
        self.topic = topic
        self.queue_id = queue_id
        self.cursor = cursor
        # The oldest entry is looked up often. A plain dict would scan past all removed entries.
        self.entries: OrderedDict[int, InFlight] = OrderedDict()
        self.batch: OrderedBatch | None = None
        self.is_dropped = False

    @property
    def low_water(self) -> int:
        """The oldest offset that is not settled, which the group commits."""
        # Offsets are handed out in ascending order, and a change keeps an entry's place.
        return min(self.cursor, next(iter(self.entries), self.cursor))


class Lanes:
    """All lanes of a broker.

    If a change cannot be written, the method raises OSError and changes nothing.
    """

    def __init__(self, journal: RecordJournal) -> None:
        self.journal = journal
        self._by_key: dict[tuple[str, str, int], Lane] = {}
        self._by_number: dict[int, Lane] = {}
        self._next_number = 1
        # By group, the lanes that have an ordered batch; may include some that no longer have one.
        self._in_order: dict[str, set[Lane]] = {}
        self.due: list[tuple[int, int, Lane, Sequence[int]]] = []
        self._due_sequence = 0
        self._copied: deque[tuple[int, Lane, list[int]]] = deque()
        self.in_flight = 0
        self.channel: StateChannel | None = None
        """Gets each record after it was written to the journal; None: nothing is replicated."""

    def _note(self, record: bytes) -> None:
        self._note_all([record])

    def _note_all(self, records: Sequence[bytes]) -> None:
        self.journal.append(b"".join(records))
        if self.channel is not None and self.channel.is_replicated:
            for record in records:
                self.channel.note(strip_copy(record))

    def __iter__(self) -> Iterator[Lane]:
        return iter(list(self._by_key.values()))

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, group: str, topic: str, queue_id: int) -> Lane | None:
        """The lane; None if the group has not popped from this queue."""
        return self._by_key.get((group, topic, queue_id))

    def open(self, group: str, topic: str, queue_id: int, cursor: int) -> Lane:
        """Create the lane of a group that pops from the queue for the first time."""
        lane = Lane(self._next_number, group, topic, queue_id, cursor)
        self._note(lane_record(lane))
        self._next_number += 1
        self._add(lane)
        return lane

    def popped(
        self, lane: Lane, cursor: int, pop_ms: int, invisible_ms: int, offsets: Sequence[int]
    ) -> None:
        """Record that messages were handed out, or that offsets were skipped."""
        payload = _POP.pack(lane.number, cursor, pop_ms, invisible_ms) + _offsets(offsets)
        self._note(encode_record(POP, payload))
        self._pop(lane, cursor, pop_ms, invisible_ms, offsets)

    def acked(self, lane: Lane, offsets: Sequence[int]) -> None:
        """Remove messages in flight that are settled."""
        self.acked_together({lane: offsets})

    def acked_together(self, settled: Mapping[Lane, Collection[int]]) -> None:
        """Remove messages in flight of several lanes that are settled, with one write."""
        records = [
            encode_record(ACK, _NUMBER.pack(lane.number) + _offsets(offsets))
            for lane, offsets in settled.items()
        ]
        self._note_all(records)
        for lane, offsets in settled.items():
            self._remove(lane, offsets)

    def changed(self, lane: Lane, offset: int, entry: InFlight) -> None:
        """Change the time at which a message in flight becomes visible."""
        self._note(_change_record(lane, offset, entry))
        self._change(lane, offset, entry)

    def copied(self, lane: Lane, offsets: list[int], copy_end: int) -> None:
        """Record that messages were copied, up to the offset *copy_end* of the commit log.

        The change applies even if OSError is raised; then a crash delivers the messages again.
        """
        self._copy(lane, offsets, copy_end)
        payload = _COPIED.pack(lane.number, copy_end) + _offsets(offsets)
        self._note(encode_record(COPIED, payload))

    def moved(self, lane: Lane, cursor: int) -> None:
        """Apply an operator's offset reset: no message is in flight any more."""
        fresh = Lane(lane.number, lane.group, lane.topic, lane.queue_id, cursor)
        self._note(lane_record(fresh))
        self.in_flight -= len(lane.entries)
        lane.entries, lane.batch, lane.cursor = OrderedDict(), None, cursor

    def adopt(self, lane: Lane, cursor: int, entries: Mapping[int, InFlight]) -> None:
        """Add messages before *cursor* that another broker handed out; the latest pop counts."""
        fresh = Lane(lane.number, lane.group, lane.topic, lane.queue_id, cursor)
        latest = {**entries}
        for offset, entry in lane.entries.items():
            if offset not in latest or latest[offset].pop_ms <= entry.pop_ms:
                latest[offset] = entry
        fresh.entries = OrderedDict(sorted(latest.items()))
        fresh.batch = lane.batch if cursor == lane.cursor else None
        self._note(lane_record(fresh))
        self.in_flight += len(fresh.entries) - len(lane.entries)
        lane.entries, lane.cursor = fresh.entries, cursor
        self._set_batch(lane, fresh.batch)
        for offset, entry in entries.items():
            self.call_at(entry.visible_ms, lane, (offset,))

    def ordered(self, lane: Lane, cursor: int, batch: OrderedBatch | None) -> None:
        """Record an orderly pop, or an acknowledgement of one."""
        payload = _ORDERED.pack(lane.number, cursor) + encode_batch(batch)
        self._note(encode_record(ORDERED, payload))
        lane.cursor = cursor
        self._set_batch(lane, batch)

    def _set_batch(self, lane: Lane, batch: OrderedBatch | None) -> None:
        lane.batch = batch
        if batch is not None:
            self._in_order.setdefault(lane.group, set()).add(lane)

    def attempts_holding(self, group: str, queue: tuple[str, int] | None) -> set[str | None]:
        """The attempts that hold messages of a queue in order; of any queue for None."""
        if queue is not None:
            lane = self._by_key.get((group, *queue))
            lanes = set() if lane is None else {lane}
        else:
            lanes = self._in_order.get(group, set())
            over = [lane for lane in lanes if lane.is_dropped or lane.batch is None]
            lanes.difference_update(over)
            if over and not lanes:
                del self._in_order[group]
        found = {lane.batch.attempt_id for lane in lanes if lane.batch is not None}
        found.discard(None)
        return found

    def drop(self, lane: Lane) -> None:
        """Remove the lane of a deleted topic or group."""
        self._forget(lane)
        self._note(encode_record(DROP, _NUMBER.pack(lane.number)))

    def forget_all(self) -> None:
        """Forget every lane, in memory only."""
        for lane in self:
            self._forget(lane)

    def _add(self, lane: Lane) -> None:
        self._by_key[lane.group, lane.topic, lane.queue_id] = lane
        self._by_number[lane.number] = lane
        self._set_batch(lane, lane.batch)

    def _forget(self, lane: Lane) -> None:
        lane.is_dropped = True
        self.in_flight -= len(lane.entries)
        self._by_key.pop((lane.group, lane.topic, lane.queue_id), None)
        self._by_number.pop(lane.number, None)

    def _pop(
        self, lane: Lane, cursor: int, pop_ms: int, invisible_ms: int, offsets: Sequence[int]
    ) -> None:
        lane.cursor = cursor
        if not offsets:
            return
        entry = InFlight(pop_ms, invisible_ms)
        before = len(lane.entries)
        for offset in offsets:
            lane.entries[offset] = entry
        self.in_flight += len(lane.entries) - before
        self.call_at(entry.visible_ms, lane, offsets)

    def _remove(self, lane: Lane, offsets: Iterable[int]) -> None:
        before = len(lane.entries)
        for offset in offsets:
            lane.entries.pop(offset, None)
        self.in_flight -= before - len(lane.entries)

    def _change(self, lane: Lane, offset: int, entry: InFlight) -> None:
        lane.entries[offset] = entry
        self.call_at(entry.visible_ms, lane, (offset,))

    def _copy(self, lane: Lane, offsets: list[int], copy_end: int) -> None:
        for offset in offsets:
            # A restarted follower receives the settled messages again.
            if (entry := lane.entries.get(offset)) is not None:
                lane.entries[offset] = entry._replace(copy_end=copy_end)
        self._copied.append((copy_end, lane, offsets))

    def call_at(self, time_ms: int, lane: Lane, offsets: Sequence[int] = ()) -> None:
        """Make ``take_due`` return *offsets* of *lane*, or its ordered batch, at *time_ms*."""
        if len(self.due) > _DUE_REBUILD_MIN + 2 * (self.in_flight + len(self._by_key)):
            self._rebuild_due()
        self._due_sequence += 1
        heapq.heappush(self.due, (time_ms, self._due_sequence, lane, offsets))

    def _rebuild_due(self) -> None:
        """Drop timer entries of messages that were acknowledged long before they were due."""
        due: list[tuple[int, int, Lane, Sequence[int]]] = []
        for lane in self._by_key.values():
            times: dict[int, list[int]] = {}
            for offset, entry in lane.entries.items():
                if not entry.is_copied:
                    times.setdefault(entry.visible_ms, []).append(offset)
            if lane.batch is not None:
                times.setdefault(lane.batch.compute_blocked_until(), [])
            for time_ms, offsets in times.items():
                self._due_sequence += 1
                due.append((time_ms, self._due_sequence, lane, offsets))
        heapq.heapify(due)
        self.due = due

    @property
    def newest_ms(self) -> int:
        """The latest pop time of the messages in flight; 0 if there are none."""
        times = [entry.pop_ms for lane in self for entry in lane.entries.values()]
        times += [lane.batch.pop_ms for lane in self if lane.batch is not None]
        return max(times, default=0)

    @property
    def next_due_ms(self) -> int | None:
        """The time of the next result of ``take_due``."""
        return self.due[0][0] if self.due else None

    def take_due(self, now_ms: int) -> tuple[Lane, list[int]] | None:
        """Messages of one lane that are visible again; if empty, check its ordered batch."""
        while self.due and self.due[0][0] <= now_ms:
            _, _, lane, offsets = heapq.heappop(self.due)
            if lane.is_dropped:
                continue
            if not offsets:
                return lane, []
            due = [
                offset
                for offset in offsets
                if (entry := lane.entries.get(offset)) is not None
                and entry.visible_ms <= now_ms
                and not entry.is_copied
            ]
            if due:
                return lane, due
        return None

    def settle(self, flushed_offset: int) -> list[Lane]:
        """Remove messages whose copies are on disk; return the changed lanes."""
        settled = []
        while self._copied and self._copied[0][0] <= flushed_offset:
            _, lane, offsets = self._copied.popleft()
            if not lane.is_dropped:
                self._remove(
                    lane,
                    [o for o in offsets if (e := lane.entries.get(o)) is not None and e.is_copied],
                )
                settled.append(lane)
        return settled

    @property
    def unsettled_end(self) -> int:
        """The commit log offset that must be on disk to settle all copies; 0 if all are settled."""
        return self._copied[-1][0] if self._copied else 0

    def load(self, log_end: int) -> None:
        """Load the journal; *log_end* is the end of the commit log. Raises OSError."""
        self.forget_all()
        for kind, payload in self.journal.read():
            try:
                self.apply(kind, payload)
            except (KeyError, ValueError, struct.error, msgspec.MsgspecError) as error:
                log.warning("pop journal: invalid record", kind=kind, reason=repr(error))
        self.journal.repair()
        for lane in self._by_key.values():
            for offset, entry in list(lane.entries.items()):
                if entry.copy_end > log_end:
                    lane.entries[offset] = entry._replace(copy_end=_NOT_COPIED)
                elif entry.is_copied:
                    del lane.entries[offset]
        self.in_flight = sum(len(lane.entries) for lane in self._by_key.values())
        self._copied.clear()
        self._rebuild_due()

    def apply(self, kind: int, payload: bytes) -> None:
        if kind == LANE:
            lane = _decode_lane(payload)
            known = self._by_number.get(lane.number)
            if known is not None:
                self._forget(known)
            self._add(lane)
            self._next_number = max(self._next_number, lane.number + 1)
            return
        (number,) = _NUMBER.unpack_from(payload)
        lane = self._by_number[number]
        if kind == POP:
            _, cursor, pop_ms, invisible_ms = _POP.unpack_from(payload)
            self._pop(lane, cursor, pop_ms, invisible_ms, _decode_offsets(payload, _POP.size))
        elif kind == ACK:
            self._remove(lane, _decode_offsets(payload, _NUMBER.size))
        elif kind in (CHANGE, SUSPEND):
            _, offset, pop_ms, invisible_ms = _CHANGE.unpack(payload)
            entry = InFlight(pop_ms, invisible_ms, is_suspended=kind == SUSPEND)
            self._change(lane, offset, entry)
        elif kind == COPIED:
            _, copy_end = _COPIED.unpack_from(payload)
            self._copy(lane, _decode_offsets(payload, _COPIED.size), copy_end)
        elif kind == DROP:
            self._forget(lane)
        elif kind == ORDERED:
            _, cursor = _ORDERED.unpack_from(payload)
            lane.cursor = cursor
            self._set_batch(lane, decode_batch(payload[_ORDERED.size :]))
        else:
            raise ValueError(f"unknown kind {kind}")

    def clamp(self, queue_range: Callable[[str, int], tuple[int, int]]) -> int:
        """Drop offsets beyond the end of their queue; return the number of lanes that had any.

        After a power cut the log may have lost messages that were popped. New messages get their
        offsets.
        """
        clamped = 0
        for lane in self:
            high = queue_range(lane.topic, lane.queue_id)[1]
            lost = [offset for offset in lane.entries if offset >= high]
            if lane.cursor <= high and not lost:
                continue
            clamped += 1
            self._remove(lane, lost)
            lane.cursor = min(lane.cursor, high)
            lane.batch = None
            self._note(lane_record(lane))
        return clamped


def strip_copy(record: bytes) -> bytes:
    """Return a journal record without its second copy: the log has its own checksum."""
    return record[: len(record) // 2]


def lane_record(lane: Lane) -> bytes:
    """The records that hold the complete state of a lane."""
    group, topic = lane.group.encode(), lane.topic.encode()
    parts = [
        _LANE.pack(lane.number, lane.queue_id),
        _SIZE.pack(len(group)),
        group,
        _SIZE.pack(len(topic)),
        topic,
        _CURSOR_AND_COUNT.pack(lane.cursor, len(lane.entries)),
        *(_ENTRY.pack(offset, *entry[:3]) for offset, entry in lane.entries.items()),
        encode_batch(lane.batch),
    ]
    suspended = (
        _change_record(lane, offset, entry)
        for offset, entry in lane.entries.items()
        if entry.is_suspended and not entry.is_copied
    )
    return b"".join((encode_record(LANE, b"".join(parts)), *suspended))


def _change_record(lane: Lane, offset: int, entry: InFlight) -> bytes:
    payload = _CHANGE.pack(lane.number, offset, entry.pop_ms, entry.invisible_ms)
    return encode_record(SUSPEND if entry.is_suspended else CHANGE, payload)


def _decode_lane(payload: bytes) -> Lane:
    number, queue_id = _LANE.unpack_from(payload)
    position = _LANE.size
    names = []
    for _ in range(2):
        (size,) = _SIZE.unpack_from(payload, position)
        position += _SIZE.size
        names.append(payload[position : position + size].decode())
        position += size
    cursor, count = _CURSOR_AND_COUNT.unpack_from(payload, position)
    position += _CURSOR_AND_COUNT.size
    lane = Lane(number, names[0], names[1], queue_id, cursor)
    end = position + count * _ENTRY.size
    for offset, *entry in _ENTRY.iter_unpack(payload[position:end]):
        lane.entries[offset] = InFlight(*entry)
    lane.batch = decode_batch(payload[end:])
    return lane


def _offsets(offsets: Collection[int]) -> bytes:
    return struct.pack(f">{len(offsets)}q", *offsets)


def _decode_offsets(payload: bytes, start: int) -> list[int]:
    return list(struct.unpack_from(f">{(len(payload) - start) // 8}q", payload, start))
