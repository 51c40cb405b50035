"""Writing messages: records, places in log and queue, store times."""

import struct
from pathlib import Path

import pytest

from rockhopper.broker.store.files.errors import RecordTooLargeError
from rockhopper.broker.store.log import encoding
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.put import Copy
from rockhopper.protocol.store.message_codec import decode_messages, encode_batch
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT
from rockhopper.protocol.sys_flags import SYS_FLAG_MULTI_TAGS, SYS_FLAG_TRANSACTION_COMMIT
from tests.support.golden_stores import golden_directory
from tests.support.open_stores import (
    BORN_HOST,
    FILE_SIZE_BYTES,
    STORE_HOST,
    Stores,
    bodies,
    body_filling,
    messages,
    put,
    stage,
)

V6_BORN = bytes.fromhex("20010db8000000000000000000000001") + bytes.fromhex("0000162e")
V6_STORE = bytes.fromhex("fe80000000000000000000000000000a") + bytes.fromhex("00002a9f")
BORN_V6, STORE_V6 = 0x10, 0x20


def log_bytes(stores: Stores, start: int = 0, end: int = FILE_SIZE_BYTES) -> bytes:
    return (stores.root / "commitlog" / f"{0:020d}").read_bytes()[start:end]


def stage_with(store: MessageStore, properties: str, suffix: bytes = b"") -> str:
    """The stored properties of a message sent with *properties*."""
    store.staging.read_clock()
    tail = store.staging.tail("TopicA", 0)
    assert store.staging.stage_plain(tail, b"x", properties, suffix, 0, 0, 0, BORN_HOST, 0)
    store.commit()
    record = store.reading.get_message("TopicA", 0, tail.next_offset - 1, 1).body
    size = int.from_bytes(record[:4], "big")
    start = 84 + 4 + 1 + 1 + 6 + 2
    return record[start:size].decode()


def test_a_record_has_the_bytes_of_the_reference(stores: Stores) -> None:
    # The head of golden/basic30's first record (store.md, appendix A), with its own inputs.
    store = stores.open()
    stores.clock.now_ms = 0x1A1F8404320
    put(
        store,
        b"b" * 28,
        properties="KEYS\x01k0 kk\x02",
        flag=7,
        born_time_ms=0x18BCFE5687B,
    )
    head = log_bytes(stores, 0, 88)
    size = 91 + 28 + len("TopicA") + len("KEYS\x01k0 kk\x02")
    assert head[:8] == size.to_bytes(4, "big") + bytes.fromhex("daa320a7")
    assert head[12:48] == bytes.fromhex(
        "00000000 00000007 0000000000000000 0000000000000000 000000000000018bcfe5687b"
    )
    assert head[48:72] == BORN_HOST + bytes.fromhex("000001a1f8404320") + STORE_HOST
    assert head[72:88] == bytes(4) + bytes(8) + (28).to_bytes(4, "big")


def test_a_long_topic_makes_a_record_of_the_second_version(store: MessageStore) -> None:
    topic = "%RETRY%" + "g" * 121
    put(store, b"long", topic)
    record = store.reading.reader.record(0)
    assert record[4:8].hex() == "daa320ab"
    (message,) = messages(store, topic)
    assert (message.topic, message.body) == (topic, b"long")


@pytest.mark.parametrize("claimed", [0, BORN_V6 | STORE_V6, STORE_V6, 0x2 | BORN_V6])
@pytest.mark.parametrize(
    ("born", "store_host", "flags"),
    [
        (BORN_HOST, STORE_HOST, 0),
        (V6_BORN, STORE_HOST, BORN_V6),
        (BORN_HOST, V6_STORE, STORE_V6),
        (V6_BORN, V6_STORE, BORN_V6 | STORE_V6),
    ],
)
def test_the_widths_of_hosts_are_the_brokers_word(
    stores: Stores, claimed: int, born: bytes, store_host: bytes, flags: int
) -> None:
    store = stores.open(store_host=store_host)
    put(store, born_host=born, sys_flag=claimed)
    store.staging.read_clock()
    tail = store.staging.tail("TopicA", 0)
    store.staging.stage_plain(tail, b"x", "UNIQ_KEY\x01A\x02", b"", 0, claimed, 0, born, 0)
    store.staging.stage_batch(tail, encode_batch([(0, b"y", b"")]), claimed, 0, born)
    store.commit()
    found = messages(store)
    assert [message.body for message in found] == [b"hello", b"x", b"y"]
    assert [message.sys_flag for message in found] == [flags | (claimed & 0x2)] * 3
    assert {message.born_port for message in found} == {5678}
    assert {message.store_port for message in found} == {10911}


@pytest.mark.parametrize("born", [BORN_HOST, V6_BORN])
def test_a_copy_is_born_when_and_where_its_message_was(stores: Stores, born: bytes) -> None:
    store = stores.open(store_host=V6_STORE)
    put(store, born_host=born, born_time_ms=77, flag=3, sys_flag=SYS_FLAG_MULTI_TAGS)
    (message,) = messages(store)
    store.staging.read_clock()
    place = store.staging.stage_again(Copy("Again", 2, message, {"a": "b"}))
    changed = Copy("Again", 2, message, {}, SYS_FLAG_TRANSACTION_COMMIT, 5, prepared_offset=9)
    store.staging.stage_again(changed)
    store.commit()
    first, second = decode_messages(store.reading.get_message("Again", 2, 0, 32).body)
    assert (first.commit_log_offset, first.queue_id, first.properties) == (place, 2, {"a": "b"})
    for copy in (first, second):
        assert (copy.body, copy.flag, copy.born_time_ms) == (message.body, 3, 77)
        assert (copy.born_host, copy.born_port) == (message.born_host, message.born_port)
    assert first.sys_flag == message.sys_flag
    assert (first.reconsume_times, first.prepared_transaction_offset) == (0, 0)
    hosts = message.sys_flag & (BORN_V6 | STORE_V6)
    assert second.sys_flag == SYS_FLAG_TRANSACTION_COMMIT | hosts
    assert (second.reconsume_times, second.prepared_transaction_offset) == (5, 9)


def test_queue_offsets_count_by_topic_and_queue(store: MessageStore) -> None:
    places = [("A", 0), ("A", 1), ("B", 0), ("A", 0), ("B", 0), ("A", 0)]
    offsets = [put(store, topic=topic, queue_id=queue).queue_offset for topic, queue in places]
    assert offsets == [0, 0, 0, 1, 1, 2]
    assert store.reading.queue_range("A", 0) == (0, 3)
    assert store.reading.queue_range("A", 2) == (0, 0)


def test_the_messages_of_a_batch_follow_each_other(store: MessageStore) -> None:
    put(store)
    inner = [(n, b"b%d" % n, b"KEYS\x01k%d\x02" % n) for n in range(3)]
    store.staging.read_clock()
    placed = store.staging.stage_batch(
        store.staging.tail("TopicA", 0), encode_batch(inner), 0, 5, BORN_HOST
    )
    store.commit()
    assert placed is not None
    found = messages(store, offset=1)
    offsets = [offset for offset, _, _ in CONSUME_QUEUE_UNIT.iter_unpack(placed[1])]
    assert [message.commit_log_offset for message in found] == offsets
    assert placed[0] == offsets[0]
    assert [message.queue_offset for message in found] == [1, 2, 3]
    assert [(m.flag, m.body, m.properties) for m in found] == [
        (n, b"b%d" % n, {"KEYS": f"k{n}"}) for n in range(3)
    ]


def test_a_batch_goes_whole_to_the_next_file(store: MessageStore) -> None:
    put(store, bytes(3000))
    store.staging.read_clock()
    batch = encode_batch([(0, bytes(400), b"")] * 3)
    placed = store.staging.stage_batch(store.staging.tail("TopicA", 0), batch, 0, 0, BORN_HOST)
    assert placed is not None
    assert placed[0] == FILE_SIZE_BYTES
    store.commit()
    assert len(bodies(store)) == 4


def test_a_batch_larger_than_a_file_is_refused_and_nothing_is_stored(store: MessageStore) -> None:
    store.staging.read_clock()
    batch = encode_batch([(0, bytes(1000), b"")] * 4)
    with pytest.raises(RecordTooLargeError):
        store.staging.stage_batch(store.staging.tail("TopicA", 0), batch, 0, 0, BORN_HOST)
    store.commit()
    assert store.log.written_offset == 0
    assert put(store).queue_offset == 0


@pytest.mark.parametrize(
    "name", [b"DELAY", b"TIMER_DELIVER_MS", b"TIMER_DELAY_MS", b"TIMER_DELAY_SEC"]
)
def test_a_batch_with_a_delayed_message_is_not_plain(store: MessageStore, name: bytes) -> None:
    store.staging.read_clock()
    batch = encode_batch([(0, b"a", b""), (0, b"b", name + b"\x011\x02")])
    assert (
        store.staging.stage_batch(store.staging.tail("TopicA", 0), batch, 0, 0, BORN_HOST) is None
    )
    store.commit()
    assert store.log.written_offset == 0


def test_what_only_looks_like_a_delay_is_none(store: MessageStore) -> None:
    store.staging.read_clock()
    tail = store.staging.tail("TopicA", 0)
    batch = encode_batch([(0, b"a", b"NODELAY\x011\x02b\x01\x02"), (0, b"DELAY\x01", b"")])
    assert store.staging.stage_batch(tail, batch, 0, 0, BORN_HOST)
    store.commit()
    result = store.reading.get_message("TopicA", 0, 0, 32)
    assert b"NODELAY\x011\x02b\x01\x02" in result.body


def test_a_record_larger_than_a_file_is_refused_and_nothing_is_stored(store: MessageStore) -> None:
    put(store, b"first")
    with pytest.raises(RecordTooLargeError):
        put(store, bytes(FILE_SIZE_BYTES))
    store.staging.read_clock()
    with pytest.raises(RecordTooLargeError):
        stage(store, bytes(FILE_SIZE_BYTES))
    stage(store, b"second")
    store.commit()
    assert bodies(store) == [b"first", b"second"]
    assert store.log.written_offset < FILE_SIZE_BYTES


def test_properties_beyond_what_their_length_can_say_are_refused(stores: Stores) -> None:
    store = stores.open(commit_log_file_size_bytes=1 << 20)
    with pytest.raises(RecordTooLargeError, match="32768 bytes"):
        put(store, properties="a\x01" + "x" * 32_765 + "\x02")
    put(store, properties="a\x01" + "x" * 32_764 + "\x02")
    assert [len(message.properties["a"]) for message in messages(store)] == [32_764]
    # The hot path hands it over, to be refused by the general way.
    store.staging.read_clock()
    tail = store.staging.tail("TopicA", 0)
    too_long = "UNIQ_KEY\x01A\x02a\x01" + "x" * 32_767 + "\x02"
    assert store.staging.stage_plain(tail, b"", too_long, b"", 0, 0, 0, BORN_HOST, 0) is None


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ("UNIQ_KEY\x01A\x02WAIT\x01true\x02TAGS\x01t\x02", "UNIQ_KEY\x01A\x02TAGS\x01t\x02"),
        ("WAIT\x01true\x02UNIQ_KEY\x01A\x02", "UNIQ_KEY\x01A\x02"),
        ("UNIQ_KEY\x01A\x02WAIT\x01true\x02", "UNIQ_KEY\x01A\x02"),
        ("UNIQ_KEY\x01A\x02WAIT\x01true", "UNIQ_KEY\x01A\x02"),
        ("UNIQ_KEY\x01A\x02WAIT\x01tru", "UNIQ_KEY\x01A\x02WAIT\x01tru\x02"),
        ("UNIQ_KEY\x01A\x02XWAIT\x01true", "UNIQ_KEY\x01A\x02XWAIT\x01true\x02"),
        ("UNIQ_KEY\x01A\x02WAIT\x01false\x02", "UNIQ_KEY\x01A\x02WAIT\x01false\x02"),
        ("UNIQ_KEY\x01A\x02XWAIT\x01true\x02", "UNIQ_KEY\x01A\x02XWAIT\x01true\x02"),
        ("UNIQ_KEY\x01A\x02a\x01WAIT\x01true\x02", "UNIQ_KEY\x01A\x02a\x01WAIT\x01true\x02"),
        ("UNIQ_KEY\x01A\x02WAIT\x01trueish\x02", "UNIQ_KEY\x01A\x02WAIT\x01trueish\x02"),
    ],
)
@pytest.mark.parametrize("encode", ["compiled", "python"])
def test_waiting_for_the_disk_is_left_out_only_as_a_property_of_its_own(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch, sent: str, stored: str, encode: str
) -> None:
    if encode == "python":
        monkeypatch.setattr("rockhopper.broker.store.staging.encode_plain", encoding.encode_plain)
    assert stage_with(store, sent) == stored


def test_the_brokers_properties_stand_behind_the_senders(store: MessageStore) -> None:
    assert stage_with(store, "UNIQ_KEY\x01A\x02", b"CLUSTER\x01c\x02") == (
        "UNIQ_KEY\x01A\x02CLUSTER\x01c\x02"
    )
    # Some clients leave the last separator out.
    assert stage_with(store, "UNIQ_KEY\x01A\x02b\x01c", b"CLUSTER\x01c\x02") == (
        "UNIQ_KEY\x01A\x02b\x01c\x02CLUSTER\x01c\x02"
    )


def test_a_pass_that_rolls_keeps_places_and_order(store: MessageStore) -> None:
    store.staging.read_clock()
    for number in range(40):
        stage(store, b"%d" % number + bytes(200), queue_id=number % 2)
    store.commit()
    for queue_id in (0, 1):
        numbers = [int(body.rstrip(b"\0")) for body in bodies(store, queue_id=queue_id)]
        assert numbers == list(range(queue_id, 40, 2))


def test_a_message_may_leave_exactly_the_blank_record(stores: Stores) -> None:
    store = stores.open()
    store.staging.read_clock()
    stage(store, body_filling(store, 8))
    store.commit()
    assert store.log.written_offset == FILE_SIZE_BYTES - 8
    store.staging.read_clock()
    assert stage(store) == FILE_SIZE_BYTES
    store.commit()
    assert log_bytes(stores, -8 % FILE_SIZE_BYTES) == struct.pack(">II", 8, 0xCBD43194)
    assert len(bodies(store)) == 2
    assert len(bodies(stores.reopen_after_kill())) == 2


def test_a_message_that_leaves_seven_bytes_starts_the_next_file(store: MessageStore) -> None:
    store.staging.read_clock()
    stage(store, b"first")
    store.commit()
    store.staging.read_clock()
    assert stage(store, body_filling(store, 7)) == FILE_SIZE_BYTES


def store_times(store: MessageStore) -> list[int]:
    return [message.store_time_ms for message in messages(store)]


def test_store_times_never_go_back_with_the_clock(stores: Stores) -> None:
    store = stores.open()
    start = stores.clock.now_ms
    for step in (0, 10, -5_000, 1, 6_000):
        stores.clock.advance(step)
        put(store)
    assert store_times(store) == [start, start + 10, start + 10, start + 10, start + 1011]


@pytest.mark.parametrize("clean", [True, False])
def test_store_times_go_on_behind_those_that_recovery_found(stores: Stores, clean: bool) -> None:
    store = stores.open()
    put(store)
    newest = stores.clock.now_ms
    stores.clock.advance(-60_000)
    store = stores.reopen_after_stop() if clean else stores.reopen_after_kill()
    put(store)
    assert store_times(store) == [newest, newest]


def test_the_messages_of_a_pass_share_one_look_at_the_clock(stores: Stores) -> None:
    store = stores.open()
    store.staging.read_clock()
    stage(store)
    stores.clock.advance(5)
    stage(store)
    store.commit()
    assert len(set(store_times(store))) == 1


def test_a_batch_topic_keeps_queue_units_as_the_reference_does(stores: Stores) -> None:
    golden = golden_directory() / "mix" / "batchconsumequeue"
    (topic_directory,) = golden.iterdir()
    expected = (topic_directory / "0" / f"{0:020d}").read_bytes()[: 3 * 46]
    topic = topic_directory.name
    store = stores.open(batch_topics={topic})
    for count in (3, 2, 1):
        store.staging.read_clock()
        tail = store.staging.tail(topic, 0)
        properties = {"INNER_NUM": str(count), "INNER_BASE": str(tail.next_offset)}
        store.staging.stage(
            tail,
            b"inner",
            properties if count > 1 else {},
            0,
            0xC0 if count > 1 else 0,
            0,
            BORN_HOST,
            batch_count=count if count > 1 else 0,
        )
        store.commit()
    ours = (stores.root / "batchconsumequeue" / topic / "0" / f"{0:020d}").read_bytes()
    units, theirs = (
        list(struct.Struct(">qiqqqhii").iter_unpack(data)) for data in (ours[: 3 * 46], expected)
    )
    # Tags code, base offset, count, compacted offset, reserved: positions and times differ.
    assert [unit[2:3] + unit[4:] for unit in units] == [unit[2:3] + unit[4:] for unit in theirs]
    assert ours[3 * 46 :] == bytes(len(ours) - 3 * 46)


def test_a_batch_without_a_key_goes_to_a_batch_topic_message_by_message(stores: Stores) -> None:
    store = stores.open(batch_topics={"Batches"})
    put(store, b"single", "Batches")
    store.staging.read_clock()
    tail = store.staging.tail("Batches", 0)
    store.staging.stage_batch(tail, encode_batch([(0, b"a", b""), (0, b"b", b"")]), 0, 0, BORN_HOST)
    store.commit()
    put(store, b"last", "Batches")
    assert store.reading.queue_range("Batches", 0) == (0, 4)
    assert bodies(store, "Batches") == [b"single", b"a", b"b", b"last"]
    assert bodies(stores.reopen_after_kill(batch_topics={"Batches"}), "Batches", offset=2) == [
        b"b",
        b"last",
    ]


def test_an_inner_batch_is_one_record_and_many_messages(stores: Stores) -> None:
    store = stores.open(batch_topics={"Batches"})
    body = encode_batch([(0, b"a", b""), (0, b"b", b""), (0, b"c", b"")])
    for _ in range(2):
        store.staging.read_clock()
        tail = store.staging.tail("Batches", 0)
        properties = {"INNER_NUM": "3", "INNER_BASE": str(tail.next_offset)}
        store.staging.stage(tail, body, properties, 0, 0xC0, 0, BORN_HOST, batch_count=3)
        store.commit()
    assert store.reading.queue_range("Batches", 0) == (0, 6)
    result = store.reading.get_message("Batches", 0, 4, 32)
    assert (result.count, result.next_offset) == (1, 6)
    assert [m.queue_offset for m in decode_messages(result.body)] == [3, 4, 5]
    assert stores.reopen_after_kill(batch_topics={"Batches"}).reading.queue_range("Batches", 0) == (
        0,
        6,
    )


def test_files_are_named_by_their_first_byte(stores: Stores, store: MessageStore) -> None:
    for _ in range(5):
        put(store, bytes(3000))
    names = {path.name for path in Path(stores.root / "commitlog").iterdir()}
    assert {f"{n * FILE_SIZE_BYTES:020d}" for n in range(5)} <= names


@pytest.mark.parametrize("key", ["", "a"])
def test_only_records_with_keys_keep_the_time_of_their_pass(key: str, stores: Stores) -> None:
    store = stores.open()
    stores.clock.now_ms += 1000
    store.staging.read_clock()
    tail = store.staging.tail("TopicA", 0)
    store.staging.stage(tail, b"x", {"KEYS": key} if key else {}, 0, 0, 0, BORN_HOST, 0)
    stores.clock.now_ms += 50
    store.staging.read_clock()
    stage(store, queue_id=1)
    store.commit()
    first, second = (messages(store, queue_id=queue_id)[0].store_time_ms for queue_id in (0, 1))
    assert second - first == (0 if key else 50)
