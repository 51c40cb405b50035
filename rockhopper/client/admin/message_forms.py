"""Forms of a message: as it was sent, and the copies that brokers and tools make of it.

A message that a group sends back waits in SCHEDULE_TOPIC_XXXX, then in the group's retry topic, and
ends among its dead letters; one that is to come later waits in a system's topic first. All forms
have the producer's id.
"""

from collections.abc import Sequence

from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.names import (
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANSACTION_HALF_TOPIC,
    is_dlq_topic,
    is_retry_topic,
    is_system_topic,
    retry_topic,
)
from rockhopper.protocol.properties import (
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_REAL_TOPIC,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TIMER_DEL_UNIQUE_KEY,
    PROPERTY_TIMER_OUT_MS,
    whole_number,
)

PROPERTY_REQUEUED = "RH_REQUEUED"
"""Of a copy: `<topic>/<broker>/<queue>:<offset>` of its dead letter."""

WAITING_TOPICS = (SCHEDULE_TOPIC, TIMER_TOPIC)
"""Where messages stand that are to be delivered later."""


def by_rank(topics: Sequence[str]) -> list[list[str]]:
    """Put first the topics that messages are sent to, then those of copies, then the system's."""
    ranks: list[list[str]] = [[], [], []]
    for topic in topics:
        is_copies = is_retry_topic(topic) or is_dlq_topic(topic)
        is_system = is_system_topic(topic) or topic == TRANSACTION_HALF_TOPIC
        ranks[1 if is_copies else 2 if is_system else 0].append(topic)
    return [rank for rank in ranks if rank]


def is_requeued(message: ReceivedMessage) -> bool:
    """Whether it is what `dlq requeue` sent, not its producer."""
    return PROPERTY_REQUEUED in message.properties


def is_withdrawal(message: ReceivedMessage) -> bool:
    """Whether it only says that a timer is not to come; it has the timer's id."""
    return PROPERTY_TIMER_DEL_UNIQUE_KEY in message.properties


def original(found: Sequence[ReceivedMessage]) -> ReceivedMessage | None:
    """Return what was sent first of the forms found in one topic; a requeued copy at worst."""
    forms = [each for each in found if not is_withdrawal(each)]
    return min(forms, key=lambda each: (is_requeued(each), *_age(each, forms)), default=None)


def newest(forms: Sequence[ReceivedMessage]) -> ReceivedMessage | None:
    """Return the form that was stored last."""
    return max(forms, key=lambda each: _age(each, forms), default=None)


def _age(message: ReceivedMessage, among: Sequence[ReceivedMessage]) -> tuple[int, int]:
    """On one broker the log tells, whose clock may have been set back."""
    is_one_log = len({each.broker_name for each in among}) == 1
    return 0 if is_one_log else message.store_time_ms, message.stored.commit_log_offset


def target_topic(message: ReceivedMessage) -> str:
    """Return the topic it stands in; of one that waits the topic that it is for."""
    topic = message.queue.topic
    if topic in WAITING_TOPICS or topic == TRANSACTION_HALF_TOPIC:
        return message.properties.get(PROPERTY_REAL_TOPIC, topic)
    return topic


def first_topic(message: ReceivedMessage) -> str:
    """Return the topic that its producer sent it to, as far as this form of it tells."""
    topic = target_topic(message)
    if is_retry_topic(topic) or is_dlq_topic(topic):
        told = message.properties
        return told.get(PROPERTY_RETRY_TOPIC) or told.get(PROPERTY_DLQ_ORIGIN_TOPIC) or topic
    return topic


def retry_topics(group: str, topic: str) -> tuple[str, ...]:
    """Where retries of *group* may be: of those who pull, and of those who pop (two spellings)."""
    of_pops = (f"{RETRY_PREFIX}{group}{joint}{topic}" for joint in "_+")
    return retry_topic(group), *of_pops


def timer_due_ms(message: ReceivedMessage) -> int | None:
    """When a message of the timer topic comes; RocketMQ's up to a second later."""
    before_ms = whole_number(message.properties.get(PROPERTY_TIMER_OUT_MS))
    return before_ms + 1 if before_ms >= 0 else None
