"""RetryOwners: for whom messages wait in a retry topic, whatever its name was joined of.

``%RETRY%a_b`` is the retry topic of a group ``a_b`` that pulls. Older versions and RocketMQ left
there what a group ``a`` had popped of a topic ``b``. The name does not tell which; what groups
there are and what they read does.
"""

from collections.abc import Sequence

from rockhopper.broker.features.pop.extra_info import pop_owners
from rockhopper.broker.kernel.tables.consumer_offsets import ConsumerOffsetTable
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroupTable
from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.protocol.names import RETRY_PREFIX, group_of_retry_topic


class RetryOwners:
    """Looks into the tables with each question."""

    def __init__(
        self, topics: TopicTable, groups: SubscriptionGroupTable, offsets: ConsumerOffsetTable
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._offsets = offsets

    def owners(self, name: str) -> set[tuple[str, str]]:
        """The groups whose messages may be in a retry topic with ``_``, and what they popped.

        The topic is blank for the group whose retry topic it is when it pulls.
        """
        joined = name.removeprefix(RETRY_PREFIX)
        owners = {(joined, "")} if joined in self._groups else set()
        for group, topic in pop_owners(name):
            if topic in self._topics and self._offsets.queues(topic, group):
                owners.add((group, topic))
        return owners

    def groups(self, name: str) -> Sequence[str]:
        """The groups that a retry topic stands for where permissions and lags are asked for.

        A group of that very name comes first; those that popped share it where there is none.
        """
        whole = group_of_retry_topic(name)
        if "+" in name or whole in self._groups:
            return (whole,)
        return sorted({group for group, _ in self.owners(name)}) or (whole,)
