"""A message that a consumer failed on, whoever hands it back."""

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.users.errors import GroupNotFound, Refusal
from rockhopper.protocol.properties import PROPERTIES_SIZE_BYTES_MAX
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.served_broker import ServedBroker


async def test_a_negative_level_buries_and_says_how_far_the_log_must_be_safe(
    broker: ServedBroker,
) -> None:
    broker.create_topic("t")
    put = broker.put("t")
    end_offset = broker.kernel.send_back.store_again("g", put.commit_log_offset, -1)
    assert end_offset == broker.store.log.written_offset
    assert broker.store.reading.queue_range("%DLQ%g", 0) == (0, 1)


async def test_a_maximum_of_the_asker_counts_unless_it_is_negative(broker: ServedBroker) -> None:
    broker.create_topic("t")
    put = broker.put("t", reconsume_times=2)
    broker.kernel.send_back.store_again("g", put.commit_log_offset, 0, times_max=-1)
    assert broker.store.reading.queue_range("%DLQ%g", 0) == (0, 0)
    broker.kernel.send_back.store_again("g", put.commit_log_offset, 0, times_max=2)
    assert broker.store.reading.queue_range("%DLQ%g", 0) == (0, 1)


async def test_a_message_of_another_topic_is_not_found(broker: ServedBroker) -> None:
    broker.create_topic("t")
    put = broker.put("t")
    with pytest.raises(Refusal, match="look message by offset failed"):
        broker.kernel.send_back.store_again("g", put.commit_log_offset, -1, of_topics=("other",))
    assert broker.store.reading.queue_range("%DLQ%g", 0) == (0, 0)
    broker.kernel.send_back.store_again("g", put.commit_log_offset, -1, of_topics=("t",))
    assert broker.store.reading.queue_range("%DLQ%g", 0) == (0, 1)


async def test_what_is_nowhere_is_refused(broker: ServedBroker) -> None:
    with pytest.raises(Refusal, match="look message by offset failed"):
        broker.kernel.send_back.store_again("g", 12_345, -1)
    with pytest.raises(GroupNotFound):
        broker.kernel.send_back.store_again("a b", 0, -1)


# Room for all added properties, for some, for the topic of a dead letter, and for none.
@pytest.mark.parametrize(
    ("room_bytes", "topic"), [(300, "%RETRY%g"), (80, "%RETRY%g"), (20, "%DLQ%g"), (0, "%DLQ%g")]
)
async def test_long_properties_are_redelivered_or_kept_as_a_dead_letter(
    broker: ServedBroker, room_bytes: int, topic: str
) -> None:
    broker.create_topic("t")
    value = "x" * (PROPERTIES_SIZE_BYTES_MAX - room_bytes - len("my\x01\x02"))
    put = broker.put("t", properties=f"my\x01{value}\x02")
    with capture_logs() as logs:
        broker.kernel.send_back.store_again("g", put.commit_log_offset, 0)
    stored_topic = topic if topic == "%DLQ%g" else "SCHEDULE_TOPIC_XXXX"
    level = 0 if topic == "%DLQ%g" else 2
    result = broker.store.reading.get_message(stored_topic, level, 0, 1)
    (copy,) = decode_messages(result.body)
    assert copy.properties["my"] == value
    assert copy.properties.get("RETRY_TOPIC") == ("t" if room_bytes else None)
    errors = [entry for entry in logs if entry["log_level"] == "error"]
    assert len(errors) == (topic == "%DLQ%g")


@pytest.mark.parametrize("delay_level", [0, -1])
async def test_a_message_with_a_separator_in_a_value_is_stored_again(
    broker: ServedBroker, delay_level: int
) -> None:
    broker.create_topic("t")
    put = broker.put("t", properties="my\x01a\x01b\x02")
    broker.kernel.send_back.store_again("g", put.commit_log_offset, delay_level)
    topic, queue_id = ("%DLQ%g", 0) if delay_level else ("SCHEDULE_TOPIC_XXXX", 2)
    (copy,) = decode_messages(broker.store.reading.get_message(topic, queue_id, 0, 1).body)
    assert copy.properties["my"] == "a\x01b"
