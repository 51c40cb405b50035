"""A temporary broker as if it were new, for the next test: ``Broker.purge``.

User topics, groups, offsets and settings go, and with them every message, whether it waits in a
queue, for a delay, for a time, for the end of its transaction or in a sink. System topics stay and
are emptied; theirs are the only queues that do not begin at 0 again.

Connections stay, and so do the groups and topics of consumers that are online: a client that lives
longer than a test goes on as if it had just joined.
"""

from rockhopper.broker.serving import ServingParts
from rockhopper.broker.tables.topics import TopicConfig
from rockhopper.protocol.names import SYSTEM_GROUPS, retry_topic


def purge(broker: ServingParts) -> None:
    """Forget everything; belongs to the broker's event loop, and takes no turn of it.

    Raises:
        StoreError: the store takes no more, and half messages are still open.
    """
    broker.transactions.roll_back_all()
    broker.delayed.stop()
    broker.timers.stop()
    kept = _topics_online(broker)
    _empty_store(broker)
    for name in list(broker.topics.configs):
        if not broker.topics.is_system(name):
            broker.topics.delete(name)
    broker.offsets.delete_all()
    for group in list(broker.groups.groups):
        if group not in SYSTEM_GROUPS:
            broker.groups.delete(group)
    broker.pop.forget_all()
    broker.sinks.forget_all()
    broker.delayed.forget_all()
    broker.timers.forget_all()
    _bring_back(broker, kept)
    # On behalf of nobody, too: what followed a queue that is gone must look for the new one.
    broker.long_polling.wake_everyone()
    broker.delayed.start()
    broker.timers.start()


def _topics_online(broker: ServingParts) -> list[TopicConfig]:
    """The topics that consumers which are online subscribe to, if they exist."""
    wanted = {topic for group in broker.consumers for topic in group.subscriptions()}
    return [
        topic
        for name, topic in sorted(broker.topics.configs.items())
        if name in wanted and not broker.topics.is_system(name)
    ]


def _empty_store(broker: ServingParts) -> None:
    system: list[str] = []
    users: list[str] = []
    for name in {*broker.store.topics(), *broker.topics.configs}:
        (system if broker.topics.is_system(name) else users).append(name)
    broker.store.delete_topics(users).remove()
    broker.store.purge_topics(system)


def _bring_back(broker: ServingParts, topics: list[TopicConfig]) -> None:
    """Give consumers that are online what their first heartbeats had given them."""
    for topic in topics:
        # A copy: whoever keeps what it derived from the settings must derive it anew.
        broker.topics.put(TopicConfig.from_json(topic.name, topic.to_json()))
    online = {group.name for group in broker.consumers}
    broker.tables.subscriptions.keep_only(online)
    for name in sorted(online):
        group = broker.groups.find_or_create(name)
        if group is not None and retry_topic(name) not in broker.topics:
            broker.topics.ensure_retry_topic(name, group.retry_queue_nums)
