"""StoreReading: what may be asked of an open store, of both kinds of queues."""

import struct

import pytest

from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.queues.unit_queue import SUMMED_UNITS_MAX
from rockhopper.broker.store.reading.get_result import GetStatus
from rockhopper.protocol.names import LMQ_PREFIX
from rockhopper.protocol.store.message_codec import decode_message, decode_messages
from tests.support.open_stores import FILE_SIZE_BYTES, Stores, bodies, body_filling, put, stage

FOREVER = 2**62


@pytest.fixture
def spread(stores: Stores) -> MessageStore:
    """Five messages of queue 0 of TopicA, 100 ms apart, one of queue 3 and one of TopicB."""
    store = stores.open()
    for number in range(5):
        put(store, b"%d" % number, properties="TAGS\x01odd\x02" if number % 2 else "")
        stores.clock.advance(100)
    put(store, b"three", queue_id=3)
    put(store, b"B", topic="TopicB")
    return store


def test_what_does_not_exist_is_empty_and_is_not_made(spread: MessageStore) -> None:
    assert spread.reading.queue_range("Nothing", 0) == (0, 0)
    assert not spread.reading.has_queue("TopicA", 1)
    assert spread.reading.queue_units("TopicA", 1, 0, 9) == b""
    assert spread.reading.offset_by_time("TopicA", 1, 0, upper=False) == 0
    assert (
        spread.reading.store_time("TopicA", 1, 0),
        spread.reading.earliest_store_time("TopicA", 1),
    ) == (-1, -1)
    for count_max in (1, 32):
        result = spread.reading.get_message("TopicA", 1, 0, count_max)
        assert result.status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    assert (
        spread.reading.get_bulk("TopicA", 1, 0, 9, 999).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    )
    assert spread.reading.queue_ids("TopicA") == [0, 3]
    assert spread.reading.topics() == ["TopicA", "TopicB"]


def test_a_queue_is_told_by_its_units_and_its_ends(spread: MessageStore) -> None:
    assert (
        spread.reading.queue_range("TopicA", 0),
        spread.reading.has_queue("TopicA", 0),
    ) == ((0, 5), True)
    units = list(struct.iter_unpack(">qiq", spread.reading.queue_units("TopicA", 0, 3, 9)))
    assert len(units) == 2
    assert (
        spread.reading.reader.record(units[0][0])
        == spread.reading.get_message("TopicA", 0, 3, 1).body
    )


def test_the_size_of_a_queue_is_that_of_its_records(spread: MessageStore) -> None:
    assert spread.reading.records_bytes("Nothing", 0) == 0
    three, other = (
        len(spread.reading.get_message(*queue, 0, 1).body)
        for queue in (("TopicA", 3), ("TopicB", 0))
    )
    assert spread.reading.records_bytes("TopicA", 0) == spread.log.written_offset - three - other
    assert spread.reading.records_bytes("TopicA", 3) == three


@pytest.mark.parametrize("unit_count", [SUMMED_UNITS_MAX, SUMMED_UNITS_MAX + 1, 5_000])
def test_the_size_of_a_long_queue_comes_from_all_of_it(
    store: MessageStore, unit_count: int
) -> None:
    """Records of the first half are ten times as large as those of the second."""
    for number in range(unit_count):
        stage(store, b"x" * (1000 if 2 * number < unit_count else 10))
    store.commit()
    units = store.reading.queue_units("TopicA", 0, 0, unit_count)
    size_bytes = sum(size for _, size, _ in struct.iter_unpack(">qiq", units))
    found = store.reading.records_bytes("TopicA", 0)
    assert found == pytest.approx(size_bytes, rel=0 if unit_count <= SUMMED_UNITS_MAX else 0.05)


def test_an_estimate_is_never_more_than_the_log_has(store: MessageStore) -> None:
    """Of 2,048 records every second 32 or 33 are looked at: here the large ones."""
    for number in range(2048):
        stage(store, b"x" * (300 if number % 65 < 32 else 10))
    store.commit()
    assert store.reading.records_bytes("TopicA", 0) == store.log.written_offset


def test_times_lead_to_offsets_and_back(spread: MessageStore, stores: Stores) -> None:
    first_ms = spread.reading.earliest_store_time("TopicA", 0)
    assert first_ms == spread.reading.earliest_time_ms == stores.clock.now_ms - 500
    assert spread.reading.store_time("TopicA", 0, 4) == first_ms + 400
    assert spread.reading.store_time("TopicA", 0, 5) == -1
    for wanted_ms, lower, upper in ((0, 0, 0), (100, 1, 1), (101, 2, 1), (999, 5, 4)):
        time_ms = first_ms + wanted_ms
        assert spread.reading.offset_by_time("TopicA", 0, time_ms, upper=False) == lower
        assert spread.reading.offset_by_time("TopicA", 0, time_ms, upper=True) == upper


def test_an_empty_log_has_no_time(store: MessageStore) -> None:
    assert store.reading.earliest_time_ms == -1
    assert (store.log.min_offset, store.log.written_offset) == (0, 0)


def test_the_newest_messages_with_a_tag_are_found(spread: MessageStore) -> None:
    put(spread, b"5", properties="TAGS\x01odd\x02")
    search, steps = spread.reading.search_tag("TopicA", "odd", 2, 0, FOREVER)
    for _ in steps:
        pass
    assert [decode_message(record).body for record in search.records()] == [b"3", b"5"]


def test_a_search_ends_where_its_times_do(spread: MessageStore) -> None:
    first_ms = spread.reading.earliest_time_ms
    search, steps = spread.reading.search_tag("TopicA", "odd", 9, first_ms, first_ms + 299)
    for _ in steps:
        pass
    assert [decode_message(record).body for record in search.records()] == [b"1"]


def test_records_are_read_over_the_ends_of_files(store: MessageStore) -> None:
    put(store, b"first")
    store.staging.read_clock()
    stage(store, body_filling(store, 100))
    stage(store, b"in the second file")
    store.commit()
    assert store.log.written_offset > FILE_SIZE_BYTES
    found = [decode_message(record).body for record in store.reading.records_from(0)]
    assert (found[0], len(found), found[-1]) == (b"first", 3, b"in the second file")
    (last,) = store.reading.records_from(FILE_SIZE_BYTES)
    assert decode_message(last).body == b"in the second file"
    assert list(store.reading.records_from(store.log.written_offset)) == []


def test_queues_of_both_kinds_are_read_alike(stores: Stores) -> None:
    store = stores.open(batch_topics={"Batches"})
    for topic in ("Batches", "Plain"):
        for number in range(3):
            put(store, b"%d" % number, topic=topic)
    for topic in ("Batches", "Plain"):
        assert store.reading.queue_range(topic, 0) == (0, 3)
        assert bodies(store, topic, offset=1) == [b"1", b"2"]
        bulk = store.reading.get_bulk(topic, 0, 0, 2, 1 << 20)
        assert [message.body for message in decode_messages(bulk.body)] == [b"0", b"1"]
        assert store.reading.store_time(topic, 0, 2) == stores.clock.now_ms
    assert store.reading.queue_units("Batches", 0, 0, 9) == b""
    search, steps = store.reading.search_tag("Batches", "x", 9, 0, FOREVER)
    assert list(steps) == []
    assert search.records() == []


def test_light_queues_read_the_records_of_others(stores: Stores) -> None:
    store = stores.open(light_queues_enabled=True, multi_dispatch_enabled=True)
    names = ",".join(f"{LMQ_PREFIX}{name}" for name in "ab")
    put(store, b"shared", properties=f"INNER_MULTI_DISPATCH\x01{names}\x02")
    assert bodies(store, f"{LMQ_PREFIX}a") == bodies(store, f"{LMQ_PREFIX}b") == [b"shared"]
    assert store.dispatch.offset == store.log.written_offset
    assert (
        store.reading.reader.damaged_count,
        store.scrub.mended_count,
        store.scrub.index_fault_count,
    ) == (0, 0, 0)
