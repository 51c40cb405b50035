"""Commits of offsets that only go forward, as consumers send them while they run.

Whatever is not exactly that goes the general way (processors/offsets.py), which says what the
answer must be: offsets that go back, the first one of a queue, resets, logical queues.
"""

from rockhopper.broker.access.peer import Peer
from rockhopper.broker.assembly.parts import ServingParts
from rockhopper.broker.hot.hot_codec import COMMITTED, UNDECODABLE, decode_commit, json_frame
from rockhopper.protocol.codes import FLAG_ONEWAY, FLAG_RESPONSE


class PlainCommits:
    """Serves them."""

    def __init__(self, broker: ServingParts) -> None:
        self._topics = broker.topics
        self._groups = broker.groups
        self._consumers = broker.consumers
        self._offsets = broker.offsets

    def take(self, connection: Peer, header: bytes) -> bytes | None:
        """Serve the commit in a JSON *header*: the answer, empty if none is wanted.

        None if it goes the general way; nothing has happened then.
        """
        try:
            request = decode_commit(header)
        except UNDECODABLE:
            return None
        fields = request.extFields
        topic, group, queue_id = fields.topic, fields.consumerGroup, fields.queueId
        settings = self._topics.get(topic)
        if (
            request.flag & FLAG_RESPONSE
            or fields.rh
            or settings is None
            or topic in self._topics.mappings
            or not 0 <= queue_id < settings.read_queue_nums
            or self._offsets.has_resets
            or self._groups.get(group) is None
        ):
            return None
        committed = self._offsets.get(topic, group, queue_id)
        if committed is None or fields.commitOffset < committed:
            return None
        online = self._consumers.get(group)
        if online is None or connection not in online.members:
            self._consumers.seen_early(group, connection)
        self._offsets.commit(topic, group, queue_id, fields.commitOffset)
        return b"" if request.flag & FLAG_ONEWAY else json_frame(COMMITTED, (request.opaque,))
