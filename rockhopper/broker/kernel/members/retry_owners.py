"""RetryOwners: the groups whose messages are in a retry topic with an ambiguous name.

``%RETRY%a_b`` is the retry topic of a group ``a_b`` that pulls. Older versions and RocketMQ also
use it for messages that a group ``a`` popped from a topic ``b``. The name alone is ambiguous, so
the existing groups and their offsets decide.
"""

from collections.abc import Sequence

from rockhopper.broker.kernel.tables.consumer_offsets import ConsumerOffsetTable
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroupTable
from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.protocol.names import RETRY_PREFIX, group_of_retry_topic, pop_owners


class RetryOwners:
    """Reads the tables on each call; caches nothing."""

    def __init__(
        self, topics: TopicTable, groups: SubscriptionGroupTable, offsets: ConsumerOffsetTable
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._offsets = offsets

    def owners(self, name: str) -> set[tuple[str, str]]:
        """The groups whose messages may be in a retry topic with ``_``, and the popped topics.

        The topic is blank if the messages are those of a group that pulls.
        """
        joined = name.removeprefix(RETRY_PREFIX)
        owners = {(joined, "")} if joined in self._groups else set()
        for group, topic in pop_owners(name):
            if topic in self._topics and self._offsets.queues(topic, group):
                owners.add((group, topic))
        return owners

    def groups(self, name: str) -> Sequence[str]:
        """The groups that a retry topic counts for in permission checks and lag queries.

        If a group has exactly that name, the topic counts for it alone; else for all that popped.
        """
        whole = group_of_retry_topic(name)
        if "+" in name or whole in self._groups:
            return (whole,)
        return sorted({group for group, _ in self.owners(name)}) or (whole,)
