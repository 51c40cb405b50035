"""Messages by their place in the log."""

from rockhopper.broker.kernel.send.record_access import record_at
from rockhopper.protocol.names import STATE_TOPIC
from tests.support.served_broker import ServedBroker


async def test_a_message_is_found_as_one_of_its_topic(broker: ServedBroker) -> None:
    put = broker.put("t", b"hello")
    stored = broker.store.reading.get_message("t", 0, 0, 1).body
    for of_topics in (None, ("t",), ("other", "t")):
        found = record_at(broker.store, put.commit_log_offset, of_topics)
        assert found is not None
        assert (found[0], found[1].body) == (stored, b"hello")
    assert record_at(broker.store, put.commit_log_offset, ()) is None
    assert record_at(broker.store, put.commit_log_offset, ("other",)) is None


async def test_notes_of_a_set_are_found_by_nobody(broker: ServedBroker) -> None:
    put = broker.put(STATE_TOPIC, b"a secret")
    for of_topics in (None, (STATE_TOPIC,)):
        assert record_at(broker.store, put.commit_log_offset, of_topics) is None


async def test_what_is_nowhere_is_not_found(broker: ServedBroker) -> None:
    broker.put("t", b"hello")
    end = broker.store.log.written_offset
    for log_offset in (-1, 5, end, end + 1000):
        assert record_at(broker.store, log_offset, None) is None
