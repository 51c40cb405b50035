"""The topics that a group's lag counts: the same for /metrics, FIGURES and all its views."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from rockhopper.broker.kernel.members.consumer_groups import ConsumerGroups
from rockhopper.broker.kernel.tables.consumer_offsets import ConsumerOffsetTable
from rockhopper.protocol.names import is_retry_topic


def iterate_followed_topics(
    offsets: ConsumerOffsetTable,
    consumers: ConsumerGroups,
    topics: Iterable[str],
    has_messages: Callable[[str], bool],
    retry_groups: Callable[[str], Iterable[str]],
) -> Iterator[tuple[str, str, Mapping[int, int]]]:
    """Yield each topic that a group reads, online or not, with the group and its offsets.

    These are the topics with committed offsets and those of its members' subscriptions. Of
    *topics*, they include retry topics with messages, whose groups *retry_groups* finds. A
    broadcast group has no offsets and so no lag: its members store their own.
    """
    yield from offsets.entries()
    begun: dict[tuple[str, str], None] = {}
    for group in list(consumers):
        begun.update(((topic, group.name), None) for topic in group.subscriptions())
    for topic in topics:
        if is_retry_topic(topic) and has_messages(topic):
            begun.update(((topic, group), None) for group in retry_groups(topic))
    for topic, name in begun:
        if not offsets.queues(topic, name):
            yield topic, name, {}
