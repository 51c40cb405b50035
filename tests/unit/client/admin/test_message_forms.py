"""Forms of a message: which was sent first, which was stored last, and what they are for."""

from rockhopper.client.admin.message_forms import (
    find_first_topic,
    find_newest,
    find_original,
    find_target_topic,
    find_timer_due_ms,
    rank_topics,
)
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.store.message_codec import decode_message
from tests.support.records import encode_message


def form(
    topic: str = "orders", offset: int = 0, time_ms: int = 5, broker: str = "a", **properties: str
) -> ReceivedMessage:
    record = encode_message(
        topic=topic, properties=properties, commit_log_offset=offset, store_time_ms=time_ms
    )
    return ReceivedMessage(MessageQueue(topic, broker, 0), decode_message(record))


def test_topics_that_messages_are_sent_to_come_before_those_of_copies() -> None:
    topics = ["%DLQ%g", "SCHEDULE_TOPIC_XXXX", "orders", "rmq_sys_wheel_timer", "%RETRY%g"]
    assert rank_topics(topics) == [
        ["orders"],
        ["%DLQ%g", "%RETRY%g"],
        ["SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"],
    ]
    assert rank_topics([]) == []


def test_what_was_sent_first_is_no_requeued_copy_where_there_is_another() -> None:
    copy = form(offset=1, RH_REQUEUED="%DLQ%g/a/0:0")
    first = form(offset=100)
    assert find_original([form(offset=200), copy, first]) is first
    assert find_original([copy]) is copy
    assert find_original([form(TIMER_DEL_UNIQKEY="orders+id")]) is None


def test_the_log_of_one_broker_tells_what_is_newest_and_else_the_clock() -> None:
    set_back = form(offset=9, time_ms=1)
    assert find_newest([form(offset=3, time_ms=8), set_back]) is set_back
    later = form(offset=1, time_ms=12, broker="b")
    assert find_newest([set_back, later]) is later
    assert find_newest([]) is None


def test_forms_tell_the_topic_that_they_are_for_and_that_they_were_sent_to() -> None:
    retry = form("SCHEDULE_TOPIC_XXXX", REAL_TOPIC="%RETRY%g", RETRY_TOPIC="orders")
    assert (find_target_topic(retry), find_first_topic(retry)) == ("%RETRY%g", "orders")
    # A message that was delayed once keeps what it was told.
    came = form("orders", REAL_TOPIC="others")
    assert (find_target_topic(came), find_first_topic(came)) == ("orders", "orders")
    assert find_first_topic(form("%DLQ%g", DLQ_ORIGIN_TOPIC="orders")) == "orders"
    assert find_first_topic(form("%DLQ%g")) == "%DLQ%g"


def test_a_timer_comes_a_millisecond_after_what_it_says() -> None:
    assert find_timer_due_ms(form("rmq_sys_wheel_timer", TIMER_OUT_MS="41")) == 42
    assert find_timer_due_ms(form("rmq_sys_wheel_timer", TIMER_OUT_MS="soon")) is None
