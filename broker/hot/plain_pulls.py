"""The plain pulls at the front of a pass, all in one call, where there was a compiler.

``take_pulls`` is compiled (``_pulls.c``). It answers pulls that were allowed once, in the same
words and on the same connection, since topics, groups, consumers or settings last changed; that
want all messages of their queue; and whose messages stand, sound, in the newest files, or in one
file each of queue and log that is noted here when one of the pulls gets there. HotPass serves all
others, and the first of each kind; it is the oracle of what the answers must be.
"""

from collections.abc import Callable
from mmap import mmap
from typing import TypeAlias

from rockhopper.broker.access.peer import Peer
from rockhopper.broker.assembly.parts import ServingParts
from rockhopper.broker.hot.hot_codec import pieces, templates
from rockhopper.broker.loop.rounds import PASS_BYTES_MAX
from rockhopper.broker.observing.stats import GroupTraffic, QueueReads
from rockhopper.broker.pulling.puller import Pull
from rockhopper.broker.remoting.turn import Turn
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.queues.consume_queue import ConsumeQueue
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.compiled import compiled
from rockhopper.protocol.frame import Frame

Readable: TypeAlias = tuple[ConsumeQueue, GroupTraffic, QueueReads, str, str, list[object]]
"""What pulls of one kind read: the queue, what is counted, topic and group; and where they read
if that is not in the newest files: the mapping of units and where it starts, the mapping of the log
and [start, end) of what it holds. Any of these may have been closed since."""

Taken: TypeAlias = tuple[
    int,
    bytes | None,
    list[tuple[Readable, int, int, int, int]],
    list[tuple[str, str, int, int]],
    bytes | None,
    Readable | None,
    int,
]
"""What became of some pulls: how many there are; their answers; for each queue what to count,
pulls, messages, bytes, and how far it was read; the commits that came with them, topic, group,
queue and offset; the key of the first pull that nothing is known of; and what is read by the first
one, with its offset, whose messages stand in files that nobody has named."""

_pulls = compiled("rockhopper.broker.hot._pulls")
take_pulls: Callable[..., Taken] | None = None if _pulls is None else _pulls.take_pulls

_KEY = "readable"
# Of one connection; a client has one for each queue that it pulls.
KINDS_MAX = 4096


class PlainPulls:
    """Which pulls are known to be allowed, and the answers to those."""

    def __init__(self, broker: ServingParts) -> None:
        self._puller = broker.puller
        self._store = broker.store
        self._stats = broker.stats
        self._topics = broker.topics
        self._offsets = broker.offsets
        # An answer to a pull says nothing of its broker.
        pulled = templates("", b"", trace_on=False).pulled
        code, *others, remark, end = pieces(pulled)
        found = b"%d" % ResponseCode.SUCCESS
        self._pieces = (code + found + others[0], *others[1:], remark + b"FOUND" + end)
        # Counts the changes behind which everything has to be looked up again.
        self._epoch = 0
        broker.topics.listeners.append(self._something_changed)
        broker.groups.listeners.append(self._something_changed)
        broker.consumers.listeners.append(self._something_changed)

    def _something_changed(self, *_: object) -> None:
        self._epoch += 1

    def take(self, turn: Turn, frames: list[Frame], first: int) -> tuple[int, bytes | None]:
        """Serve the pulls from frame *first* on, as far as compiled code can.

        Returns how many, and the key for ``allow`` of the one behind them, if that is a pull of a
        kind that was not served yet.
        """
        store = self._store
        log = store.newest_of_log()
        needs_looks = self._offsets.has_resets or self._topics.mappings
        if take_pulls is None or log is None or needs_looks:
            return 0, None
        at, placed_at = first, -1
        while True:
            count, key, misplaced, offset = self._take(turn, frames, at, log)
            at += count
            # One that could not be served at its place either is for Python.
            if misplaced is None or placed_at == at or not self._place(misplaced, offset):
                return at - first, key
            placed_at = at

    def _take(
        self, turn: Turn, frames: list[Frame], first: int, log: tuple[mmap, int, int]
    ) -> tuple[int, bytes | None, Readable | None, int]:
        assert take_pulls is not None
        store = self._store
        limits = store.reader.limits
        count, answers, counted, commits, key, misplaced, offset = take_pulls(
            frames,
            first,
            self._readable(turn.connection),
            self._pieces,
            limits.count_in_memory,
            limits.size_bytes_in_memory,
            limits.memory_bytes,
            PASS_BYTES_MAX - turn.size_bytes,
            *log,
            store.reader.tail_start,
        )
        for commit in commits:
            self._offsets.commit(*commit)
        for (_, traffic, reads, *_), pulls, messages, size_bytes, next_offset in counted:
            self._stats.get_found += pulls
            traffic.calls += pulls
            traffic.messages += messages
            traffic.bytes += size_bytes
            reads.calls += pulls
            reads.next_offset = next_offset
        if answers is not None:
            turn.answer(answers)
        return count, key, misplaced, offset

    def _place(self, readable: Readable, offset: int) -> bool:
        """Note where the messages of a queue stand from *offset* on; False if nobody can tell."""
        queue, *_, place = readable
        try:
            units = queue.mapped(offset)
            records = None if units is None else self._store.log_around(units[2])
        except (OSError, StoreError):
            return False
        if units is None or records is None:
            return False
        place[:] = (*units[:2], *records)
        return True

    def allow(self, key: bytes, pull: Pull) -> None:
        """Remember that *pull* was answered with messages, unless it takes a look each time."""
        queue = self._puller.plain_queue(pull)
        if queue is not None:
            traffic = self._stats.got(pull.topic, pull.group)
            reads = traffic.handed_out(pull.queue_id, traffic.queues[pull.queue_id].next_offset)
            readable = self._readable(pull.connection)
            if len(readable) >= KINDS_MAX:
                readable.clear()
            readable[key] = queue, traffic, reads, pull.topic, pull.group, []

    def _readable(self, connection: Peer) -> dict[bytes, Readable]:
        known = connection.attributes.get(_KEY)
        if isinstance(known, _Known) and known.epoch == self._epoch:
            return known.readable
        known = connection.attributes[_KEY] = _Known(self._epoch)
        return known.readable


class _Known:
    """What is known to be readable for one connection, until something changes."""

    __slots__ = ("epoch", "readable")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.readable: dict[bytes, Readable] = {}
