"""Pulls from a replica that does not lead, for consumers that are far behind (slaveReadEnable).

Consumers see only replicated messages. They commit offsets at the master, because offsets stored
here would be overwritten. A group's subscriptions come from its master: heartbeats change nothing
here.
"""

from rockhopper.broker.kernel.members.consumer_groups import ConsumerGroups
from rockhopper.broker.kernel.parts import BrokerCore
from rockhopper.broker.kernel.pull.long_polling import LongPolling
from rockhopper.broker.kernel.pull.puller import Puller


class FollowerReads:
    """Serves pulls from the open store of *parts*, until ``stop``."""

    def __init__(self, parts: BrokerCore) -> None:
        self._store = parts.store
        consumers = ConsumerGroups(
            now_ms=parts.clock.steady_ms,
            may_notify=lambda _group: False,
            remembered=parts.tables.subscriptions,
        )
        self.puller = Puller(
            parts.config,
            parts.store,
            parts.tables.topics,
            parts.tables.groups,
            consumers,
            parts.tables.offsets,
            LongPolling(),
            parts.stats,
        )

    def shows_more_than(self, replicated_offset: int) -> bool:
        """Return whether queues contain unreplicated messages, as for a moment after a start."""
        return self._store.dispatch.offset > replicated_offset

    def stop(self) -> None:
        """Answer the waiting requests."""
        self.puller.stop()
