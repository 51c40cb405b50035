"""Commits of offsets (15) that only go forward, as running consumers send them.

Every other commit takes the general path (kernel/processors/offsets.py), which defines the right
response: offsets that go back, the first one of a queue, resets, logical queues.
"""

from rockhopper.broker.hot.hot_codec import (
    COMMIT_PREFIX,
    COMMITTED,
    UNDECODABLE,
    CommitHeader,
    decode_commit,
    json_frame,
)
from rockhopper.broker.kernel.kernel import Kernel
from rockhopper.broker.users.peer import Peer
from rockhopper.protocol.codes import FLAG_ONEWAY, FLAG_RESPONSE, SerializeType
from rockhopper.protocol.frame import Frame


class PlainCommits:
    """Serves plain commits."""

    def __init__(self, kernel: Kernel) -> None:
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
        answers: list[bytes] = []
        place: tuple[str, str, int] | None = None
        committed = count = 0
        accepts_explicit = False
        for at in range(first, len(frames)):
            request = _decode(*frames[at][:2])
            if request is None:
                break
            fields = request.extFields
            its = fields.topic, fields.consumerGroup, fields.queueId
            if place is None:
                known = self._get_committed(*its)
                if known is None:
                    break
                place, committed = its, known
                accepts_explicit = self._positions.accepts_explicit(
                    connection, fields.consumerGroup, fields.topic, fields.queueId
                )
            offset = fields.commitOffset
            if its != place or offset < committed:
                break
            is_oneway = request.flag & FLAG_ONEWAY
            if (is_oneway or not accepts_explicit) and not self._may_commit(
                connection, request, offset
            ):
                break
            committed = offset
            count += 1
            if not is_oneway:
                answers.append(json_frame(COMMITTED, (request.opaque,)))
        if place is not None and count:
            self._note_seen(place[1], connection)
            # No reader could have seen the offsets in between.
            self._offsets.commit(*place, committed)
        return count, b"".join(answers)

    def _may_commit(self, connection: Peer, request: CommitHeader, offset: int) -> bool:
        fields = request.extFields
        return self._positions.may_commit(
            connection,
            fields.consumerGroup,
            fields.topic,
            fields.queueId,
            offset,
            is_explicit=not request.flag & FLAG_ONEWAY,
        )

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


def _decode(serialize_type: int, header: bytes) -> CommitHeader | None:
    if serialize_type != SerializeType.JSON or not header.startswith(COMMIT_PREFIX):
        return None
    try:
        request = decode_commit(header)
    except UNDECODABLE:
        return None
    return None if request.flag & FLAG_RESPONSE or request.extFields.rh else request
