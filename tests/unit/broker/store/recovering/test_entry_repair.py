"""Queue entries that are wrong: no message is skipped for one, each is repaired from the log."""

import itertools
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.reading.get_result import GetStatus
from rockhopper.broker.store.recovering import entry_repair
from rockhopper.protocol.store.message_codec import decode_messages
from rockhopper.protocol.subscription import Subscription
from tests.support.open_stores import BORN_HOST, STORE_HOST, Stores, messages, put
from tests.support.records import encode_message
from tests.support.rot import flip_bit, overwrite
from tests.support.store_listeners import Reader

TOPIC = "TopicA"


@pytest.fixture
def store(stores: Stores) -> MessageStore:
    """Two queues in turns, ten messages each, and one of another topic at both ends."""
    store = stores.open(commit_log_file_size_bytes=1 << 16)
    put(store, b"first", "Rare")
    for number in range(20):
        put(store, b"body %d" % number, queue_id=number % 2, properties="TAGS\x01a\x02")
    put(store, b"last", "Rare")
    return store


def entries(stores: Stores, topic: str = TOPIC, queue_id: int = 0) -> Path:
    return stores.root / "consumequeue" / topic / str(queue_id) / f"{0:020d}"


def offsets(store: MessageStore, topic: str = TOPIC) -> list[int]:
    return [message.queue_offset for message in messages(store, topic)]


# Each byte of the commit log offset and of the size.
@pytest.mark.parametrize("byte", range(12))
@pytest.mark.parametrize("bit", [0, 7])
def test_an_entry_with_a_turned_bit_is_mended(
    store: MessageStore, stores: Stores, byte: int, bit: int
) -> None:
    held = flip_bit(entries(stores), 4 * 20 + byte, bit)
    with capture_logs() as logs:
        assert offsets(store) == list(range(10))
        assert offsets(store) == list(range(10))
    (entry,) = logs
    assert (entry["log_level"], entry["topic"], entry["offset"]) == ("warning", TOPIC, 4)
    assert entries(stores).read_bytes() == held
    assert (store.scrub.mended_count, store.reading.reader.damaged_count) == (1, 0)


@pytest.mark.parametrize("rubbish", [bytes(20), b"\xff" * 20, b"\0" * 7 + b"\x09" * 13])
@pytest.mark.parametrize("first", [0, 3, 9])
def test_an_entry_that_is_rubbish_is_mended(
    store: MessageStore, stores: Stores, rubbish: bytes, first: int
) -> None:
    held = overwrite(entries(stores), first * 20, rubbish)
    assert offsets(store) == list(range(10))
    assert entries(stores).read_bytes()[: first * 20 + 12] == held[: first * 20 + 12]


@pytest.mark.parametrize("read", ["filtered", "bulk", "one by one"])
def test_every_way_of_reading_mends(store: MessageStore, stores: Stores, read: str) -> None:
    held = overwrite(entries(stores), 0, bytes(8 * 20))
    if read == "bulk":
        found = decode_messages(store.reading.get_bulk(TOPIC, 0, 0, 100, 1 << 20).body)
    elif read == "filtered":
        found = decode_messages(
            store.reading.get_message(TOPIC, 0, 0, 32, Subscription(TOPIC, "*")).body
        )
    else:
        found = [
            message
            for offset in range(10)
            for message in decode_messages(store.reading.get_message(TOPIC, 0, offset, 1).body)
        ]
    assert [message.queue_offset for message in found] == list(range(10))
    assert entries(stores).read_bytes() == held
    assert store.scrub.mended_count == 8


def test_an_entry_that_points_to_the_message_of_another_is_mended(
    store: MessageStore, stores: Stores
) -> None:
    other = entries(stores).read_bytes()[6 * 20 : 7 * 20]
    held = overwrite(entries(stores), 2 * 20, other)
    assert offsets(store) == list(range(10))
    assert entries(stores).read_bytes() == held


def test_the_only_entry_of_a_queue_is_mended(stores: Stores) -> None:
    store = stores.open()
    for number in range(40):
        put(store, bytes(300), "Busy" if number != 20 else "Rare")
    held = overwrite(entries(stores, "Rare"), 0, b"\x01" * 12)
    assert offsets(store, "Rare") == [0]
    assert entries(stores, "Rare").read_bytes() == held


def test_a_long_search_takes_a_slice_at_a_time_and_skips_nothing(
    store: MessageStore, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry_repair, "STEPS_PER_SLICE", 4)
    overwrite(entries(stores, "Rare"), 20, b"\x01" * 12)
    assert store.reading.get_bulk("Rare", 0, 1, 32, 1000).next_offset == 1
    pulls = 0
    while (result := store.reading.get_message("Rare", 0, 1, 32)).status is not GetStatus.FOUND:
        assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 1)
        pulls += 1
        assert pulls < 10
    assert store.scrub.wake.is_set()
    assert decode_messages(result.body)[0].body == b"last"


def test_a_search_ends_without_a_reader_and_wakes_who_waits(
    store: MessageStore, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry_repair, "STEPS_PER_SLICE", 4)
    held = overwrite(entries(stores, "Rare"), 20, b"\x01" * 12)
    woken: list[str] = []
    store.staging.tail("Rare", 0).waiters = Reader(
        lambda tail, _end, _codes: woken.append(tail.topic)
    )
    assert store.reading.get_message("Rare", 0, 1, 32).count == 0
    while store.reading.mender.is_searching:
        store.scrub.search()
    assert woken == ["Rare"]
    assert entries(stores, "Rare").read_bytes() == held


def test_an_entry_whose_record_is_damaged_as_well_is_stepped_over(
    store: MessageStore, stores: Stores
) -> None:
    fifth = messages(store)[5].commit_log_offset
    overwrite(entries(stores), 5 * 20, b"\x01" * 12)
    overwrite(stores.root / "commitlog" / f"{0:020d}", fifth, bytes(60))
    with capture_logs() as logs:
        for _ in range(2):
            assert offsets(store) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert [entry["offset"] for entry in logs if entry["log_level"] == "error"] == [5]
    assert store.reading.reader.damaged_count == 1


def test_an_entry_is_not_mended_to_an_image_in_a_body(store: MessageStore, stores: Stores) -> None:
    place = store.log.written_offset + 88 + 40
    image = encode_message(
        topic=TOPIC,
        body=b"forged",
        queue_offset=10,
        commit_log_offset=place,
        born_host=BORN_HOST,
        store_host=STORE_HOST,
        store_time_ms=1,
    )
    put(store, bytes(40) + image)
    put(store, b"behind")
    # The entry's bits turn so that it points one bit beside the image.
    unit = (place ^ 64).to_bytes(8, "big") + len(image).to_bytes(4, "big")
    held = overwrite(entries(stores), 10 * 20, unit)
    found = messages(store, offset=10)
    assert [message.body for message in found] == [bytes(40) + image, b"behind"]
    assert entries(stores).read_bytes() == held


def batches(stores: Stores) -> MessageStore:
    """Ten records of three messages each, and others between them."""
    store = stores.open(commit_log_file_size_bytes=1 << 16, batch_topics=["Batches"])
    for number in range(10):
        store.staging.read_clock()
        tail = store.staging.tail("Batches", 0)
        inner = {"INNER_NUM": "3", "INNER_BASE": str(tail.next_offset), "TAGS": "a"}
        store.staging.stage(tail, b"batch %d" % number, inner, 0, 0, 0, BORN_HOST, batch_count=3)
        store.commit()
        put(store, b"between")
    return store


def batch_bodies(store: MessageStore, offset: int = 0) -> list[bytes]:
    found: list[bytes] = []
    while offset < 30:
        result = store.reading.get_message("Batches", 0, offset, 32)
        assert result.next_offset > offset
        found += [message.body for message in decode_messages(result.body)]
        offset = result.next_offset
    return found


def batch_entries(stores: Stores) -> Path:
    return stores.root / "batchconsumequeue" / "Batches" / "0" / f"{0:020d}"


ALL_BATCHES = [b"batch %d" % number for number in range(10)]


def test_an_entry_of_a_batch_with_a_turned_bit_is_mended(stores: Stores) -> None:
    store = batches(stores)
    turns = 0
    for number in (0, 4, 9):
        # Each byte of place, size, first offset and number of messages.
        for byte in (*range(12), *range(28, 38)):
            for bit in (0, 6):
                held = flip_bit(batch_entries(stores), number * 46 + byte, bit)
                assert batch_bodies(store) == ALL_BATCHES, (number, byte, bit)
                assert batch_entries(stores).read_bytes() == held
                turns += 1
    assert (store.scrub.mended_count, store.reading.reader.damaged_count) == (turns, 0)


def test_a_wrong_entry_of_a_batch_misleads_no_look_up(stores: Stores) -> None:
    store = batches(stores)
    for offset in range(30):
        for byte in (6, 31, 35, 37):
            held = flip_bit(batch_entries(stores), 4 * 46 + byte, 3)
            assert batch_bodies(store, offset) == ALL_BATCHES[offset // 3 :], (offset, byte)
            overwrite(batch_entries(stores), 0, held)


def test_the_scrub_mends_entries_of_batches(stores: Stores) -> None:
    store = batches(stores)
    store.reading.reader.tail_start = store.log.written_offset
    # Place, size, tags code, store time, first offset, number of messages.
    for turns, byte in enumerate((6, 10, 19, 27, 35, 37), start=1):
        held = flip_bit(batch_entries(stores), 5 * 46 + byte, 2)
        for _ in range(2):
            while store.scrub.passes.step():
                pass
            store.scrub.passes.start_pass()
        assert batch_entries(stores).read_bytes() == held, byte
        assert (store.scrub.mended_count, store.reading.reader.damaged_count) == (turns, 0)


def light(stores: Stores) -> MessageStore:
    store = stores.open(
        commit_log_file_size_bytes=1 << 16, light_queues_enabled=True, multi_dispatch_enabled=True
    )
    for number in range(10):
        names = "%LMQ%a" if number % 2 else "%LMQ%a,%LMQ%b"
        put(store, b"%d" % number, properties=f"INNER_MULTI_DISPATCH\x01{names}\x02")
        put(store, b"between")
    return store


def test_an_entry_of_a_light_queue_is_mended_where_it_is_read(stores: Stores) -> None:
    store = light(stores)
    for turns, (byte, bit) in enumerate(itertools.product(range(12), (0, 7)), start=1):
        held = flip_bit(entries(stores, "%LMQ%a"), 4 * 20 + byte, bit)
        found = messages(store, "%LMQ%a")
        assert [message.body for message in found] == [b"%d" % number for number in range(10)]
        assert entries(stores, "%LMQ%a").read_bytes() == held, (byte, bit)
        assert (store.scrub.mended_count, store.reading.reader.damaged_count) == (turns, 0)


@pytest.mark.parametrize("other", [3, 5])
def test_an_entry_of_a_light_queue_that_points_to_another_message_is_mended(
    stores: Stores, other: int
) -> None:
    store = light(stores)
    path = entries(stores, "%LMQ%a")
    unit = path.read_bytes()[other * 20 : other * 20 + 20]
    held = overwrite(path, 4 * 20, unit)
    assert [message.body for message in messages(store, "%LMQ%a")][4] == b"4"
    assert path.read_bytes() == held


def test_a_long_search_for_a_light_message_takes_a_slice_at_a_time(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.open(
        commit_log_file_size_bytes=1 << 20, light_queues_enabled=True, multi_dispatch_enabled=True
    )
    for _ in range(20):
        put(store, bytes(20_000))
    put(store, b"last", properties="INNER_MULTI_DISPATCH\x01%LMQ%a\x02")
    monkeypatch.setattr(entry_repair, "STEPS_PER_SLICE", 30)
    held = overwrite(entries(stores, "%LMQ%a"), 0, b"\x01" * 12)
    pulls = 0
    while (result := store.reading.get_message("%LMQ%a", 0, 0, 32)).status is not GetStatus.FOUND:
        assert (result.count, result.next_offset) == (0, 0)
        pulls += 1
        assert pulls < 20
    assert pulls > 2
    assert entries(stores, "%LMQ%a").read_bytes() == held


def test_entries_of_messages_that_expired_are_left_alone(stores: Stores) -> None:
    store = stores.open()
    for number in range(10):
        put(store, b"%d" % number + bytes(1800))
    store.opened.commit_log.drop_files_before(8192)
    with capture_logs() as logs:
        assert store.reading.get_message(TOPIC, 0, 0, 4).status is GetStatus.MESSAGE_WAS_REMOVING
        assert offsets(store)[0] >= 4
    assert logs == []
    assert store.scrub.mended_count == 0
