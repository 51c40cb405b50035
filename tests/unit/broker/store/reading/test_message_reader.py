"""get_message: which messages a pull gets, where it goes on, and what is never shown."""

import struct
from pathlib import Path

import pytest

from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.reading.get_result import GetStatus
from rockhopper.protocol.java_hash import java_string_hash
from rockhopper.protocol.store.message_codec import decode_messages, encode_batch
from rockhopper.protocol.subscription import Subscription
from tests.support.golden_stores import copy_golden_store
from tests.support.open_stores import (
    BORN_HOST,
    FILE_SIZE_BYTES,
    Stores,
    bodies,
    close,
    fill,
    got,
    messages,
    open_store,
    put,
    tagged,
)

TOPIC = "TopicA"


@pytest.fixture
def store(stores: Stores) -> MessageStore:
    return stores.open(commit_log_file_size_bytes=1 << 20)


@pytest.fixture
def rolled(stores: Stores) -> MessageStore:
    """Queue offsets 0 to 9, of which the commit log has lost 0 to 3."""
    store = stores.open()
    fill(store, 10, 1800)
    store.opened.commit_log.drop_files_before(2 * FILE_SIZE_BYTES)
    queue = store.opened.queues.get(TOPIC, 0)
    assert queue is not None
    queue.correct_min_offset(store.log.min_offset)
    assert store.reading.queue_range(TOPIC, 0) == (4, 10)
    return store


def test_a_queue_that_does_not_exist_has_nothing(store: MessageStore) -> None:
    for offset in (0, 5, -1):
        result = store.reading.get_message(TOPIC, 3, offset, 32)
        assert got(result) == ("NO_MATCHED_LOGIC_QUEUE", 0, 0, 0)
    assert store.reading.queue_ids(TOPIC) == []


def test_a_queue_without_messages_has_nothing(store: MessageStore) -> None:
    store.opened.queues.get_or_create(TOPIC, 0)
    assert got(store.reading.get_message(TOPIC, 0, 7, 32)) == (
        "NO_MESSAGE_IN_QUEUE",
        0,
        0,
        0,
    )


@pytest.mark.parametrize(
    ("offset", "status", "next_offset"),
    [
        (-1, GetStatus.OFFSET_TOO_SMALL, 4),
        (0, GetStatus.OFFSET_TOO_SMALL, 4),
        (3, GetStatus.OFFSET_TOO_SMALL, 4),
        (10, GetStatus.OFFSET_OVERFLOW_ONE, 10),
        (11, GetStatus.OFFSET_OVERFLOW_BADLY, 10),
        (2**62, GetStatus.OFFSET_OVERFLOW_BADLY, 10),
    ],
)
def test_an_offset_outside_the_queue_is_corrected(
    rolled: MessageStore, offset: int, status: GetStatus, next_offset: int
) -> None:
    result = rolled.reading.get_message(TOPIC, 0, offset, 32)
    assert got(result) == (status.value, next_offset, 4, 10)
    assert (result.body, result.count) == (b"", 0)


def test_an_entry_that_cannot_be_read_sends_on_to_the_next_file(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 60)
    queue = store.opened.queues.get(TOPIC, 0)
    monkeypatch.setattr(type(queue), "read_units", lambda *_arguments: b"")
    assert got(store.reading.get_message(TOPIC, 0, 3, 32)) == (
        "OFFSET_FOUND_NULL",
        50,
        0,
        60,
    )


def test_a_pull_reads_over_the_end_of_a_queue_file(store: MessageStore) -> None:
    fill(store, 60)
    result = store.reading.get_message(TOPIC, 0, 40, 32)
    assert got(result) == ("FOUND", 60, 0, 60)
    assert [message.queue_offset for message in decode_messages(result.body)] == list(range(40, 60))


@pytest.mark.parametrize(("asked", "given"), [(1, 1), (5, 5), (32, 32), (33, 32), (2**31 - 1, 32)])
def test_a_pull_gets_as_many_as_it_asks_for_and_32_at_most(
    store: MessageStore, asked: int, given: int
) -> None:
    fill(store, 40)
    for subscription in (None, Subscription(TOPIC, "a")):
        result = store.reading.get_message(TOPIC, 0, 0, asked, subscription)
        assert (result.count, result.next_offset) == (given, given)


@pytest.mark.parametrize("size_bytes", [20_000, 300_000])
@pytest.mark.parametrize("expression", ["*", "a"])
def test_a_pull_gets_256_kib_but_the_first_message_always(
    stores: Stores, size_bytes: int, expression: str
) -> None:
    store = stores.open(commit_log_file_size_bytes=1 << 22)
    fill(store, 15, size_bytes - 105)
    subscription = None if expression == "*" else Subscription(TOPIC, expression)
    result = store.reading.get_message(TOPIC, 0, 0, 32, subscription)
    size = len(result.body) // result.count
    assert result.count == max(262_144 // size, 1)
    assert result.next_offset == result.count


def test_a_pull_fills_256_kib_to_the_byte(stores: Stores) -> None:
    store = stores.open(commit_log_file_size_bytes=1 << 22)
    for size in (200_000, 62_144, 100):
        put(store, bytes(size - 91 - len(TOPIC)))
    assert len(store.reading.get_message(TOPIC, 0, 0, 32).body) == 262_144


@pytest.mark.parametrize("expression", ["*", "a"])
def test_a_pull_of_what_is_not_in_memory_gets_8_messages_or_64_kib(
    stores: Stores, expression: str
) -> None:
    store = stores.open(commit_log_file_size_bytes=1 << 20)
    fill(store, 20)
    fill(store, 10, 20_000)
    store.reading.reader.limits = store.reading.reader.limits._replace(memory_bytes=1000)
    subscription = None if expression == "*" else Subscription(TOPIC, expression)
    assert store.reading.get_message(TOPIC, 0, 0, 32, subscription).count == 8
    assert store.reading.get_message(TOPIC, 0, 20, 32, subscription).count == 3
    # The newest kilobyte is in memory.
    fill(store, 5)
    assert store.reading.get_message(TOPIC, 0, 31, 32, subscription).count == 4


def test_limits_are_settings(stores: Stores) -> None:
    store = stores.open(
        commit_log_file_size_bytes=1 << 20,
        transfer_count_in_memory_max=50,
        transfer_bytes_in_memory_max=100_000,
        filter_message_size_max=100,
    )
    fill(store, 60)
    assert store.reading.get_message(TOPIC, 0, 0, 60).count == 50
    assert store.reading.get_message(TOPIC, 0, 0, 60, Subscription(TOPIC, "a")).count == 50
    fill(store, 10, 30_000)
    assert store.reading.get_message(TOPIC, 0, 60, 60).count == 3
    assert store.reading.get_message(TOPIC, 0, 0, 1, Subscription(TOPIC, "b")).next_offset == 5


def test_messages_of_other_queues_in_between_are_left_out(store: MessageStore) -> None:
    for number in range(20):
        put(store, b"%d" % number, queue_id=number % 3 % 2)
    for queue_id in (0, 1):
        expected = [b"%d" % n for n in range(20) if n % 3 % 2 == queue_id]
        assert bodies(store, queue_id=queue_id) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a", "aa"),
        ("a || b", "aba"),
        ("a||c", "aca"),
        (" b ", "b"),
        ("none", ""),
        ("*", "abc-a"),
    ],
)
def test_only_wanted_tags_are_given_and_all_are_passed(
    store: MessageStore, expression: str, expected: str
) -> None:
    for tag in "abc-a":
        put(store, tag.encode(), properties="" if tag == "-" else tagged(tag))
    subscription = Subscription(TOPIC, expression)
    result = store.reading.get_message(TOPIC, 0, 0, 32, subscription)
    found = b"".join(message.body for message in decode_messages(result.body)).decode()
    assert found == expected
    assert result.next_offset == 5
    assert result.status is (GetStatus.FOUND if found else GetStatus.NO_MATCHED_MESSAGE)


def test_tags_with_one_hash_pass_together(store: MessageStore) -> None:
    assert java_string_hash("Aa") == java_string_hash("BB")
    put(store, b"1", properties=tagged("BB"))
    assert store.reading.get_message(TOPIC, 0, 0, 32, Subscription(TOPIC, "Aa")).count == 1


def test_a_filter_looks_at_800_messages_at_a_time(store: MessageStore) -> None:
    store.staging.read_clock()
    batch = encode_batch([(0, b"", tagged("a").encode())] * 805)
    store.staging.stage_batch(store.staging.tail(TOPIC, 0), batch, 0, 0, BORN_HOST)
    store.commit()
    put(store, b"wanted", properties=tagged("b"))
    wanted = Subscription(TOPIC, "b")
    result = store.reading.get_message(TOPIC, 0, 0, 32, wanted)
    assert got(result) == ("NO_MATCHED_MESSAGE", 800, 0, 806)
    result = store.reading.get_message(TOPIC, 0, 800, 32, wanted)
    assert (result.count, result.next_offset) == (1, 806)


def test_a_full_answer_ends_in_front_of_the_first_message_that_is_left(store: MessageStore) -> None:
    for number in range(10):
        put(store, b"%d" % number, properties=tagged("ab"[number % 2]))
    result = store.reading.get_message(TOPIC, 0, 0, 2, Subscription(TOPIC, "a"))
    assert [message.body for message in decode_messages(result.body)] == [b"0", b"2"]
    assert result.next_offset == 3


def test_tags_codes_of_an_extended_queue_are_looked_up(stores: Stores) -> None:
    store = stores.open()
    for tag in "abc":
        put(store, tag.encode(), properties=tagged(tag))
    store = stores.reopen_after_stop()
    queue = stores.root / "consumequeue" / TOPIC / "0" / f"{0:020d}"
    data = bytearray(queue.read_bytes())
    ext = b""
    for number, tag in enumerate("ab"):
        data[number * 20 + 12 : number * 20 + 20] = struct.pack(">q", len(ext) - 2**63)
        ext += struct.pack(">hqqh", 20, java_string_hash(tag), 1, 0)
    # The third one's address leads nowhere: what cannot be told is let through.
    data[52:60] = struct.pack(">q", 4000 - 2**63)
    queue.write_bytes(bytes(data))
    directory = stores.root / "consumequeue_ext" / TOPIC / "0"
    directory.mkdir(parents=True)
    (directory / f"{0:020d}").write_bytes(ext + struct.pack(">h", -1) + bytes(5000))
    result = store.reading.get_message(TOPIC, 0, 0, 32, Subscription(TOPIC, "b"))
    assert [message.body for message in decode_messages(result.body)] == [b"b", b"c"]


def test_records_of_a_batch_topic_are_read_from_any_message_in_them(stores: Stores) -> None:
    root = copy_golden_store("mix", stores.root)
    (topic,) = [path.name for path in (root / "batchconsumequeue").iterdir()]
    store = stores.open(
        batch_topics={topic}, consume_queue_file_size_bytes=2000, index_entry_count_max=4000
    )
    assert store.reading.queue_range(topic, 0) == (0, 6)
    for offset, first, following in [(0, 0, 6), (2, 0, 6), (3, 3, 6), (4, 3, 6), (5, 5, 6)]:
        result = store.reading.get_message(topic, 0, offset, 32)
        assert got(result) == ("FOUND", following, 0, 6)
        assert decode_messages(result.body)[0].queue_offset == first
    assert got(store.reading.get_message(topic, 0, 0, 3)) == ("FOUND", 3, 0, 6)
    # The first record passes however many messages it holds.
    assert got(store.reading.get_message(topic, 0, 0, 1)) == ("FOUND", 3, 0, 6)
    assert got(store.reading.get_message(topic, 0, 6, 1)) == (
        "OFFSET_OVERFLOW_ONE",
        6,
        0,
        6,
    )
    assert got(store.reading.get_message(topic, 0, 9, 1)) == (
        "OFFSET_OVERFLOW_BADLY",
        6,
        0,
        6,
    )
    assert got(store.reading.get_message(topic, 7, 9, 1)) == (
        "NO_MATCHED_LOGIC_QUEUE",
        0,
        0,
        0,
    )


@pytest.mark.parametrize("topic", [TOPIC, "Batches"])
def test_offsets_are_found_by_time_with_both_boundaries(stores: Stores, topic: str) -> None:
    store = stores.open(batch_topics={"Batches"})
    start = stores.clock.now_ms
    for step in (0, 10, 0, 0, 10):
        stores.clock.advance(step)
        put(store, topic=topic)
    # Times: 0, 10, 10, 10, 20.
    expected = {-5: (0, 0), 0: (0, 0), 5: (1, 0), 10: (1, 3), 15: (4, 3), 20: (4, 4), 25: (5, 4)}
    for time, (lower, upper) in expected.items():
        assert store.reading.offset_by_time(topic, 0, start + time, upper=False) == lower, time
        assert store.reading.offset_by_time(topic, 0, start + time, upper=True) == upper, time
    assert store.reading.offset_by_time(topic, 5, start, upper=True) == 0


def test_times_are_found_behind_messages_that_are_gone(rolled: MessageStore) -> None:
    assert rolled.reading.offset_by_time(TOPIC, 0, 0, upper=False) == 4
    assert rolled.reading.earliest_store_time(TOPIC, 0) == rolled.log.store_time_ms
    assert rolled.reading.store_time(TOPIC, 0, 3) == -1
    assert rolled.reading.store_time(TOPIC, 0, 9) == rolled.log.store_time_ms
    assert rolled.reading.earliest_store_time(TOPIC, 9) == -1
    assert rolled.reading.earliest_time_ms == rolled.log.store_time_ms


def test_an_empty_log_has_no_earliest_time(store: MessageStore) -> None:
    assert store.reading.earliest_time_ms == -1


@pytest.mark.parametrize("name", ["basic30", "eof_exact8", "three_sessions"])
def test_stores_of_the_reference_are_read_to_the_end(tmp_path: Path, name: str) -> None:
    root = copy_golden_store(name, tmp_path / name)
    entries = 4000 if name == "three_sessions" else 40
    store = open_store(root, consume_queue_file_size_bytes=200, index_entry_count_max=entries)
    for topic in store.opened.queues.topics():
        for queue_id in store.reading.queue_ids(topic):
            low, high = store.reading.queue_range(topic, queue_id)
            offsets = [m.queue_offset for m in messages(store, topic, queue_id, low)]
            assert offsets == list(range(low, high))
            assert offsets
    close(store)
