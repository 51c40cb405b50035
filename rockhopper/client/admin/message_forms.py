"""Forms of a message: the original, and the copies that brokers and tools make of it.

A message that a group sends back waits in SCHEDULE_TOPIC_XXXX, then in the group's retry topic, and
ends among its dead letters. A delayed message first waits in a system topic. All forms have the
producer's id.
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
    parse_whole_number,
)

PROPERTY_REQUEUED = "RH_REQUEUED"
"""In a copy: `<topic>/<broker>/<queue>:<offset>` of its dead letter."""

WAITING_TOPICS = (SCHEDULE_TOPIC, TIMER_TOPIC)
"""The topics where delayed messages wait."""


def rank_topics(topics: Sequence[str]) -> list[list[str]]:
    """Rank topics: those that producers send to, then those of copies, then system topics."""
    ranks: list[list[str]] = [[], [], []]
    for topic in topics:
        is_copies = is_retry_topic(topic) or is_dlq_topic(topic)
        is_system = is_system_topic(topic) or topic == TRANSACTION_HALF_TOPIC
        ranks[1 if is_copies else 2 if is_system else 0].append(topic)
    return [rank for rank in ranks if rank]


def is_requeued(message: ReceivedMessage) -> bool:
    """Whether the message was sent by `dlq requeue`, not by its producer."""
    return PROPERTY_REQUEUED in message.properties


def is_withdrawal(message: ReceivedMessage) -> bool:
    """Whether the message only cancels a timer; it has the timer's id."""
    return PROPERTY_TIMER_DEL_UNIQUE_KEY in message.properties


def find_original(found: Sequence[ReceivedMessage]) -> ReceivedMessage | None:
    """Return the form that was sent first; a requeued copy only if there is no other."""
    forms = [each for each in found if not is_withdrawal(each)]
    return min(
        forms, key=lambda each: (is_requeued(each), *_make_age_key(each, forms)), default=None
    )


def find_newest(forms: Sequence[ReceivedMessage]) -> ReceivedMessage | None:
    """Return the form that was stored last."""
    return max(forms, key=lambda each: _make_age_key(each, forms), default=None)


def _make_age_key(message: ReceivedMessage, among: Sequence[ReceivedMessage]) -> tuple[int, int]:
    """Return a sort key: on one broker the log offset, as its clock may have been set back."""
    is_one_log = len({each.broker_name for each in among}) == 1
    return 0 if is_one_log else message.store_time_ms, message.stored.commit_log_offset


def find_target_topic(message: ReceivedMessage) -> str:
    """Return the topic of a message; for a waiting message, the topic it will be delivered to."""
    topic = message.queue.topic
    if topic in WAITING_TOPICS or topic == TRANSACTION_HALF_TOPIC:
        return message.properties.get(PROPERTY_REAL_TOPIC, topic)
    return topic


def find_first_topic(message: ReceivedMessage) -> str:
    """Return the topic that the producer sent the message to, as far as this form shows it."""
    topic = find_target_topic(message)
    if is_retry_topic(topic) or is_dlq_topic(topic):
        told = message.properties
        return told.get(PROPERTY_RETRY_TOPIC) or told.get(PROPERTY_DLQ_ORIGIN_TOPIC) or topic
    return topic


def list_retry_topics(group: str, topic: str) -> tuple[str, ...]:
    """Return the topics for retries of *group*: one for pulling, two spellings for popping."""
    of_pops = (f"{RETRY_PREFIX}{group}{joint}{topic}" for joint in "_+")
    return retry_topic(group), *of_pops


def find_timer_due_ms(message: ReceivedMessage) -> int | None:
    """Return when a timer message is due; RocketMQ may deliver it up to a second later."""
    before_ms = parse_whole_number(message.properties.get(PROPERTY_TIMER_OUT_MS))
    return before_ms + 1 if before_ms >= 0 else None
