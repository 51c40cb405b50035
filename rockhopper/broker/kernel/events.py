"""KernelListener: the events that the kernel reports to objects with state of their own.

The kernel has changed its own tables before it calls the listeners (``Kernel.listeners``), in the
event loop. Changed topics and groups are reported to a ``CatalogListener`` (tables/topics.py).
"""

from rockhopper.broker.users.peer import Peer


class KernelListener:
    """A listener; it overrides the methods that it needs."""

    __slots__ = ()

    def topic_purged(self, topic: str) -> None:
        """Handle a topic whose messages were all deleted."""

    def group_deleted(self, group: str) -> None:
        """Handle a group that was deleted together with its offsets."""

    def group_reset(self, group: str, topic: str) -> None:
        """Handle a group whose offsets in a topic were set."""

    def retries_read(self, group: str) -> None:
        """Handle a group that has read its retry topic to the end; may add messages there."""

    def members_changed(self) -> None:
        """Handle a consumer that joined or left a group, or changed its subscriptions."""

    def producer_joined(self, group: str) -> None:
        """Handle a producer group that another connection has joined."""

    def request_stored(
        self, group: str, client_id: str, sender: Peer, user: str, *, language: int, version: int
    ) -> None:
        """Handle a stored message whose sender waits for a reply to *client_id*."""

    def rocketmq_wrote(self) -> None:
        """Handle a store that RocketMQ may have written to, before timers are imported."""
