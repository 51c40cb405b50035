"""Commits of offsets (15) that only go forward, as running consumers send them.

Every other commit takes the general path (kernel/processors/offsets.py), which defines the right
response: offsets that go back, the first one of a queue, resets, logical queues.
"""

from rockhopper.broker.hot.parts import HotKernel
from rockhopper.broker.hot.similar_requests import RequestShape, encode_successes, read_similar
from rockhopper.broker.users.peer import Peer
from rockhopper.protocol.codes import FLAG_ONEWAY, RequestCode
from rockhopper.protocol.frame import Frame
from rockhopper.protocol.properties import parse_whole_number

_SHAPE = RequestShape(
    int(RequestCode.UPDATE_CONSUMER_OFFSET),
    (b"topic", b"consumerGroup", b"queueId"),
    (b"commitOffset",),
)


class PlainCommits:
    """Serves plain commits."""

    def __init__(self, kernel: HotKernel) -> None:
        self._topics = kernel.tables.topics
        self._groups = kernel.tables.groups
        self._consumers = kernel.consumers
        self._offsets = kernel.tables.offsets
        self._positions = kernel.positions

    def serve(self, connection: Peer, frames: list[Frame], first: int) -> tuple[int, bytes]:
        """Serve the commits from frame *first* on that move one offset of a group.

        Returns how many, and the responses; 0, with nothing done, if the first one must take the
        general path.
        """
        texts, rows = read_similar(frames, first, _SHAPE)
        if not rows:
            return 0, b""
        topic, group, queue = texts
        queue_id = parse_whole_number(queue)
        known = self._get_committed(topic, group, queue_id)
        if known is None:
            return 0, b""
        committed, count = known, 0
        accepts_explicit = self._positions.accepts_explicit(connection, group, topic, queue_id)
        answered: list[int] = []
        for opaque, flag, offset in rows:
            if offset < committed:
                break
            is_oneway = flag & FLAG_ONEWAY
            if (is_oneway or not accepts_explicit) and not self._positions.may_commit(
                connection, group, topic, queue_id, offset, is_explicit=not is_oneway
            ):
                break
            committed = offset
            count += 1
            if not is_oneway:
                answered.append(opaque)
        if count:
            self._note_seen(group, connection)
            # No reader could have seen the offsets in between.
            self._offsets.commit(topic, group, queue_id, committed)
        return count, encode_successes(answered)

    def _get_committed(self, topic: str, group: str, queue_id: int) -> int | None:
        """Return the group's committed offset if a commit only needs to move it, else None."""
        settings = self._topics.get(topic)
        if (
            settings is None
            or topic in self._topics.mappings
            or not 0 <= queue_id < settings.read_queue_nums
            or self._offsets.has_resets
            or self._groups.get(group) is None
        ):
            return None
        return self._offsets.get(topic, group, queue_id)

    def _note_seen(self, group: str, connection: Peer) -> None:
        online = self._consumers.get(group)
        if online is None or connection not in online.members:
            self._consumers.seen_early(group, connection)
