"""Pulls from a replica that does not lead, for consumers that are far behind (slaveReadEnable).

They see what is confirmed. Offsets are committed at the master: here they would be overwritten.
What a group has subscribed to is known from its master, for heartbeats change nothing here.
"""

from rockhopper.broker.kernel.members.consumer_groups import ConsumerGroups
from rockhopper.broker.kernel.parts import ServingParts
from rockhopper.broker.kernel.pull.long_polling import LongPolling
from rockhopper.broker.kernel.pull.puller import Puller


class FollowerReads:
    """What serves pulls over the open store of *parts*, until ``stop``."""

    def __init__(self, parts: ServingParts) -> None:
        self._store = parts.store
        self._polling = LongPolling()
        parts.store.wake_with(self._polling.arrived)
        consumers = ConsumerGroups(
            now_ms=parts.steady_ms,
            may_notify=lambda _group: False,
            remembered=parts.tables.subscriptions,
        )
        self.puller = Puller(
            parts.config,
            parts.store,
            parts.topics,
            parts.groups,
            consumers,
            parts.offsets,
            self._polling,
            parts.stats,
        )

    def shows_more_than(self, confirmed_offset: int) -> bool:
        """Whether queues hold what is not confirmed: for a moment after a start."""
        return self._store.dispatched_offset > confirmed_offset

    def stop(self) -> None:
        """Answer who waits."""
        self._polling.stop()
        self.puller.turns.stop()
