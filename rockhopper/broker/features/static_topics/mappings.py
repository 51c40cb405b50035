"""Static topics: a fixed number of logical queues, which move between brokers.

RocketMQ: TopicQueueMappingDetail, LogicQueueMappingItem. A logical queue is a sequence of pieces,
oldest first. Each piece is a physical queue of some broker from ``startOffset`` to ``endOffset``
(-1 while it grows). Its first message has the logical offset ``logicOffset`` (-1 while undecided).
The broker of the last piece leads the queue: it accepts messages, and answers for all pieces.

The details are in ``config/topicQueueMapping.json``, RocketMQ's file; name servers and clients
receive the queues that are led here (``info``).
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rockhopper.broker.kernel.tables.json_table import JsonObject, JsonTable
from rockhopper.broker.server.loop.clock import wall_clock_ms

SCOPE_GLOBAL = "__global__"
QUEUES_MAX = 65_536
PIECES_MAX = 1024


class MappingItem(NamedTuple):
    """A part of a logical queue, on one broker."""

    gen: int
    queue_id: int
    broker: str
    logic_offset: int
    start_offset: int
    end_offset: int
    time_of_start: int = -1
    time_of_end: int = -1

    @property
    def is_ended(self) -> bool:
        """Whether it has stopped growing."""
        return self.end_offset >= self.start_offset and self.end_offset >= 0

    @property
    def is_empty(self) -> bool:
        """Whether it ended without a message."""
        return self.is_ended and self.end_offset == self.start_offset

    def logical(self, offset: int) -> int:
        """Return the logical offset of a physical one; -1 while undecided."""
        if self.logic_offset < 0:
            return -1
        if self.is_ended:
            offset = min(offset, self.end_offset)
        return self.logic_offset + max(offset - self.start_offset, 0)

    def physical(self, offset: int) -> int:
        """Return the physical offset of a logical one."""
        return offset - self.logic_offset + self.start_offset

    def to_json(self) -> JsonObject:
        """Return the object for files and bodies."""
        return {
            "bname": self.broker,
            "endOffset": self.end_offset,
            "gen": self.gen,
            "logicOffset": self.logic_offset,
            "queueId": self.queue_id,
            "startOffset": self.start_offset,
            "timeOfEnd": self.time_of_end,
            "timeOfStart": self.time_of_start,
        }

    @classmethod
    def from_json(cls, value: Any) -> "MappingItem":
        """Decode a piece. Raises ValueError, TypeError, KeyError, AttributeError."""
        return cls(
            int(value.get("gen", 0)),
            int(value["queueId"]),
            str(value["bname"]),
            int(value.get("logicOffset", 0)),
            int(value.get("startOffset", 0)),
            int(value.get("endOffset", -1)),
            int(value.get("timeOfStart", -1)),
            int(value.get("timeOfEnd", -1)),
        )


class StaticTopic:
    """The logical queues of a topic that have a piece on one broker. Immutable."""

    def __init__(
        self,
        topic: str,
        broker: str,
        total: int,
        epoch: int,
        queues: Mapping[int, list[MappingItem]],
    ) -> None:
        self.topic = topic
        self.broker = broker
        self.total = total
        self.epoch = epoch
        self.queues = {queue_id: pieces for queue_id, pieces in queues.items() if pieces}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StaticTopic) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.topic)

    def leader(self, queue_id: int) -> MappingItem | None:
        """Return the piece that accepts messages, if it is on this broker."""
        pieces = self.queues.get(queue_id)
        return pieces[-1] if pieces and pieces[-1].broker == self.broker else None

    @property
    def led(self) -> list[int]:
        """The logical queues that this broker leads."""
        return [queue_id for queue_id in sorted(self.queues) if self.leader(queue_id) is not None]

    def pieces(self, queue_id: int) -> list[MappingItem]:
        """Return the pieces that have messages and a decided logical offset, oldest first."""
        return [
            piece
            for piece in self.queues.get(queue_id, [])
            if piece.logic_offset >= 0 and not piece.is_empty
        ]

    def piece_at(self, queue_id: int, offset: int) -> MappingItem | None:
        """Return the piece of a logical offset, else the oldest."""
        pieces = self.pieces(queue_id)
        for piece in reversed(pieces):
            if offset >= piece.logic_offset:
                return piece
        return pieces[0] if pieces else None

    def has_same_pieces(self, other: "StaticTopic") -> bool:
        """Return whether the two differ only in offsets, because a queue moves in steps."""
        ours, theirs = (
            {
                queue_id: [(piece.gen, piece.broker, piece.queue_id) for piece in pieces]
                for queue_id, pieces in static.queues.items()
            }
            for static in (self, other)
        )
        return ours == theirs

    def info(self) -> JsonObject:
        """Return the form for routes and registrations: logical queue -> physical queue here."""
        led = {str(queue_id): self.queues[queue_id][-1].queue_id for queue_id in self.led}
        return {
            "bname": self.broker,
            "currIdMap": led,
            "epoch": self.epoch,
            "scope": SCOPE_GLOBAL,
            "topic": self.topic,
            "totalQueues": self.total,
        }

    def to_json(self) -> JsonObject:
        """Return the object for files and bodies."""
        return {
            "bname": self.broker,
            "currIdMap": {},
            "dirty": False,
            "epoch": self.epoch,
            "hostedQueues": {
                queue_id: [piece.to_json() for piece in pieces]
                for queue_id, pieces in self.queues.items()
            },
            "scope": SCOPE_GLOBAL,
            "topic": self.topic,
            "totalQueues": self.total,
        }

    @classmethod
    def from_json(cls, value: object) -> "StaticTopic":
        """Decode a static topic. Raises ValueError for any error in it."""
        try:
            assert isinstance(value, dict)
            hosted = value.get("hostedQueues") or {}
            queues = {
                int(queue_id): [MappingItem.from_json(piece) for piece in pieces]
                for queue_id, pieces in hosted.items()
            }
            static = cls(
                str(value["topic"]),
                str(value["bname"]),
                int(value["totalQueues"]),
                int(value["epoch"]),
                queues,
            )
        except (AssertionError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a mapping of a static topic: {error!r}") from None
        static._check()
        return static

    def _check(self) -> None:
        if not 0 <= self.total <= QUEUES_MAX:
            raise ValueError(f"{self.total} logical queues; {QUEUES_MAX} are allowed")
        for queue_id, pieces in self.queues.items():
            if not 0 <= queue_id < self.total:
                raise ValueError(f"logical queue {queue_id} of {self.total}")
            if len(pieces) > PIECES_MAX:
                raise ValueError(f"logical queue {queue_id} has more than {PIECES_MAX} segments")
            if [p.gen for p in pieces] != sorted({p.gen for p in pieces}):
                raise ValueError(f"the segments of logical queue {queue_id} are out of order")
            if any(not 0 <= p.queue_id < QUEUES_MAX or p.start_offset < 0 for p in pieces):
                raise ValueError(f"a segment of logical queue {queue_id} has no location")
            if any(not piece.is_ended for piece in pieces[:-1] if piece.logic_offset < 0):
                raise ValueError(f"a segment of logical queue {queue_id} has no logical offset")


class StaticTopicTable(JsonTable):
    """Topic -> StaticTopic."""

    def __init__(self, path: Path, *, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        super().__init__(path, now_ms=now_ms)
        self.mappings: dict[str, StaticTopic] = {}

    def to_json(self) -> JsonObject:
        """Return the content of topicQueueMapping.json."""
        return {
            "dataVersion": self.version.to_json(),
            "topicQueueMappingInfoMap": {
                name: static.to_json() for name, static in self.mappings.copy().items()
            },
        }

    def from_json(self, document: JsonObject) -> None:
        """Load the mappings of a topicQueueMapping.json."""
        found = {
            name: StaticTopic.from_json(value)
            for name, value in (document.get("topicQueueMappingInfoMap") or {}).items()
        }
        self.mappings.clear()
        self.mappings.update(found)

    def put_json(self, value: Any) -> None:
        """Put a mapping as RocketMQ's bodies have it. Raises ValueError."""
        self.store_mapping(StaticTopic.from_json(value))

    def store_mapping(self, static: StaticTopic) -> bool:
        """Create or replace a mapping; return False if it is unchanged."""
        if self.mappings.get(static.topic) == static:
            return False
        self.mappings[static.topic] = static
        self._note_change(static.topic)
        return True

    def delete(self, topic: str) -> None:
        """Delete the mapping of a topic, if there is one."""
        if self.mappings.pop(topic, None) is not None:
            self._note_change(topic)

    def entry(self, name: str) -> JsonObject | None:
        """Return the mapping of one topic."""
        static = self.mappings.get(name)
        return None if static is None else static.to_json()

    def take_entry(self, name: str, value: object) -> None:
        """Create, replace or delete a mapping. Raises ValueError."""
        if value is None:
            self.delete(name)
        else:
            self.store_mapping(StaticTopic.from_json(value))

    def _replay(self, name: str, value: object) -> None:
        if value is None:
            self.mappings.pop(name, None)
        else:
            self.mappings[name] = StaticTopic.from_json(value)

    def _note_change(self, topic: str) -> None:
        self.version.advance(self._now_ms())
        self.mark_changed(topic)
        self.save_soon()
        self.note_entry(topic)
