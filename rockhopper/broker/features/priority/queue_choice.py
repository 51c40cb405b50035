"""Message priority as in RocketMQ 5.4 and later: the queue is the priority.

If the property ``_SYS_MSG_PRIORITY_`` of a message is a whole number from 0 on, the message goes to
the queue of that number, or to the topic's last queue. A transaction, a delay or a sharding key
takes precedence; the property is then dropped. The topic's ``message.type`` does not matter here;
it determines the order of a pop (features/pop/service.py).
"""

import re

from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.protocol.properties import (
    PROPERTY_DELAY_LEVEL,
    PROPERTY_PRIORITY,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TRANSACTION_PREPARED,
)

_is_java_number = re.compile(r"\+?[0-9]{1,10}", re.ASCII).fullmatch
_INT_MAX = 2**31 - 1
_COMES_FIRST = frozenset(
    {
        PROPERTY_DELAY_LEVEL,
        PROPERTY_TIMER_DELIVER_MS,
        PROPERTY_TIMER_DELAY_SEC,
        PROPERTY_TIMER_DELAY_MS,
        PROPERTY_SHARDING_KEY,
    }
)


def queue_of_priority(properties: dict[str, str], topic: TopicConfig, queue_id: int) -> int:
    """Return the queue for a message that was sent to *queue_id* of *topic*.

    Removes an ineffective priority from *properties*.
    """
    text = properties[PROPERTY_PRIORITY]
    if not _is_java_number(text) or int(text) > _INT_MAX:
        return queue_id
    is_half = properties.get(PROPERTY_TRANSACTION_PREPARED, "").lower() == "true"
    if is_half or not _COMES_FIRST.isdisjoint(properties):
        del properties[PROPERTY_PRIORITY]
        return queue_id
    return max(min(int(text), topic.write_queue_nums - 1), 0)
