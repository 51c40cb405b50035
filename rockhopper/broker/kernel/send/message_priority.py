"""Priority of messages, as RocketMQ 5.4 and later know it: the queue is the priority.

A message whose property ``_SYS_MSG_PRIORITY_`` is a whole number from 0 on goes to the queue of
that number, or to the topic's last one. Only a message that is nothing else can have a priority: a
transaction, a delay or a sharding key comes first, and the property is dropped. What the topic's
``message.type`` is plays no part here, it decides the order of a pop (features/pop/service.py).
"""

import re

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


def queue_of_priority(properties: dict[str, str], queue_id: int, queue_nums: int) -> int:
    """The queue of a message that was sent to *queue_id*, one of *queue_nums*.

    Takes a priority that does not count out of *properties*.
    """
    text = properties.get(PROPERTY_PRIORITY)
    if text is None or not _is_java_number(text) or int(text) > _INT_MAX:
        return queue_id
    is_half = properties.get(PROPERTY_TRANSACTION_PREPARED, "").lower() == "true"
    if is_half or not _COMES_FIRST.isdisjoint(properties):
        del properties[PROPERTY_PRIORITY]
        return queue_id
    return max(min(int(text), queue_nums - 1), 0)
