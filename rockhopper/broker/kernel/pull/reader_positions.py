"""ReaderPositions: checks whether a client's offset belongs to the present log.

A client remembers its offsets while the broker is away. If the log is shorter when the broker comes
back (see kernel/tables/log_history.py), such an offset is beyond the end or names another message.
Reading there would skip messages that were sent meanwhile.

Rockhopper's clients compare histories themselves (LOG_HISTORY), and then claim their positions. For
other clients, the broker only knows the offsets that they can have learned in this run. When a
connection names a queue for the first time, its offset is valid if it is not beyond one of these:

    the end of the queue at the start of this run
    the group's committed offset, which is stored with the log
    the end of what the group received in this run; for a broadcast group, its host
    an offset that this connection received: a maximum, or the result of a search by time
    the offset in a receipt, for a member that chooses its positions: this connection sent the
    message at the offset or the one before. The log shows that, so sends need not be recorded

Any other offset belongs to an older history. The reader then continues at the smaller of its
group's committed offset and the end at the start. For example: a backup ends at 10, messages 10 to
14 are sent, and a consumer that had read to 30 asks for 30. It continues at 10.

Push consumers never continue behind the messages that their own process sends. If a log lost one
message, and the next one is sent there, the old position of such a consumer looks like one from a
receipt.

Groups that are neither registered nor have committed anything are readers with freely chosen
offsets, and are answered as in RocketMQ.
"""

from collections import OrderedDict

from rockhopper.broker.kernel.members.consumer_groups import BROADCASTING, PULLING, ConsumerGroups
from rockhopper.broker.kernel.tables.consumer_offsets import ConsumerOffsetTable
from rockhopper.broker.kernel.tables.log_history import LogHistory
from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.server.loop.part import Part
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.users.peer import Peer
from rockhopper.protocol.addresses import join_address
from rockhopper.protocol.store.message_codec import decode_messages

_KEY = "positions"
QUEUES_PER_CONNECTION_MAX = 16_384
HOSTS_MAX = 65_536


class _KnownPositions:
    """The valid positions of one connection: checked queues, and offsets that it received."""

    __slots__ = ("checked", "purge_count", "purged", "told")

    def __init__(self, purge_count: int, purged: set[tuple[str, str, int]]) -> None:
        self.purge_count = purge_count
        self.purged = purged
        """Queues that were read before the last purge, and not checked again since."""
        self.checked: set[tuple[str, str, int]] = set()
        self.told: dict[tuple[str, int], int] = {}


class ReaderPositions(Part):
    """Checks readers' offsets against the history of the log."""

    def __init__(
        self,
        store: MessageStore,
        consumers: ConsumerGroups,
        offsets: ConsumerOffsetTable,
        stats: BrokerStats,
        history: LogHistory,
    ) -> None:
        self._store = store
        self._consumers = consumers
        self._offsets = offsets
        self._stats = stats
        self._history = history
        # Hosts whose broadcast consumers were checked, the most recently seen one last.
        self.hosts: OrderedDict[tuple[str, str, str, int], None] = OrderedDict()
        self._purge_count = 0

    def purge(self) -> None:
        """Check the readers of all connections again."""
        self._purge_count += 1
        self.hosts.clear()

    def next_valid(
        self, peer: Peer, group: str, topic: str, queue_id: int, offset: int
    ) -> int | None:
        """Return where a reader has to continue instead of *offset*; None if it may read there."""
        known = self._get_known(peer)
        if (group, topic, queue_id) in known.checked:
            return None
        limit = self._limit(known, peer, group, topic, queue_id, offset)
        if limit is None:
            self._check(known, peer, group, topic, queue_id)
        return limit

    def may_commit(
        self,
        peer: Peer,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        is_explicit: bool = False,
    ) -> bool:
        """Return whether a member can have reached *offset* in the present log.

        An explicit offset is always accepted, except from a reader that does not know of a purge.
        """
        known = self._get_known(peer)
        if (group, topic, queue_id) in known.checked:
            return True
        if is_explicit and (group, topic, queue_id) not in known.purged:
            return True
        return self._limit(known, peer, group, topic, queue_id, offset) is None

    def accepts_explicit(self, peer: Peer, group: str, topic: str, queue_id: int) -> bool:
        """Return whether ``may_commit`` accepts every explicit offset of this reader."""
        known = self._get_known(peer)
        key = group, topic, queue_id
        return key in known.checked or key not in known.purged

    def claim(self, peer: Peer, group: str, topic: str, queue_id: int) -> None:
        """Accept the positions of a reader that has compared histories."""
        self._check(self._get_known(peer), peer, group, topic, queue_id)

    def tell(self, peer: Peer, topic: str, queue_id: int, offset: int) -> None:
        """Record an offset that an answer contained; the client may continue there."""
        told = self._get_known(peer).told
        if len(told) >= QUEUES_PER_CONNECTION_MAX:
            told.clear()
        told[topic, queue_id] = max(offset, told.get((topic, queue_id), 0))

    def _limit(
        self, known: _KnownPositions, peer: Peer, group: str, topic: str, queue_id: int, offset: int
    ) -> int | None:
        committed = self._offsets.get(topic, group, queue_id)
        if offset <= max(committed or 0, known.told.get((topic, queue_id), 0)):
            return None
        online = self._consumers.get(group)
        if online is not None and online.settings_of(peer).message_model == BROADCASTING:
            if (peer.addresses.peer_host, group, topic, queue_id) in self.hosts:
                return None
        elif offset <= self._stats.furthest_offset(topic, group, queue_id):
            return None
        if online is None and not self._offsets.queues(topic, group):
            return None
        end = self._store.reading.queue_end_at(topic, queue_id, self._history.start_offset)
        if offset <= end:
            return None
        chooses = online is not None and online.settings.consume_type == PULLING
        if chooses and self._has_sent(peer, topic, queue_id, offset):
            return None
        return end if committed is None else committed

    def _has_sent(self, peer: Peer, topic: str, queue_id: int, offset: int) -> bool:
        result = self._store.reading.get_message(topic, queue_id, max(offset - 1, 0), 2)
        return any(
            message.queue_offset <= offset
            and join_address(message.born_host, message.born_port) == peer.peer
            for message in decode_messages(result.body)
        )

    def _check(
        self, known: _KnownPositions, peer: Peer, group: str, topic: str, queue_id: int
    ) -> None:
        if len(known.checked) >= QUEUES_PER_CONNECTION_MAX:
            known.checked.clear()
        known.checked.add((group, topic, queue_id))
        known.purged.discard((group, topic, queue_id))
        online = self._consumers.get(group)
        if online is None or online.settings_of(peer).message_model != BROADCASTING:
            return
        host = peer.addresses.peer_host, group, topic, queue_id
        self.hosts[host] = None
        self.hosts.move_to_end(host)
        if len(self.hosts) > HOSTS_MAX:
            self.hosts.popitem(last=False)

    def _get_known(self, peer: Peer) -> _KnownPositions:
        known = peer.attributes.get(_KEY)
        if not isinstance(known, _KnownPositions):
            known = peer.attributes[_KEY] = _KnownPositions(self._purge_count, set())
        elif known.purge_count != self._purge_count:
            purged = known.checked | known.purged
            known = peer.attributes[_KEY] = _KnownPositions(self._purge_count, purged)
        return known
