"""Recovery: what is lost, what is cut, what is rebuilt, and what is left alone."""

import shutil
from pathlib import Path

import pytest

from broker.store import inventory
from broker.store.checkpoint import StoreCheckpoint
from broker.store.errors import CorruptFileError
from broker.store.layout import StoreLayout
from protocol.message_codec import BLANK_RECORD, MAGIC_BLANK, encode_batch
from protocol.queue_layout import BLANK_CONSUME_QUEUE_UNIT, CONSUME_QUEUE_UNIT
from tests.support.store_directories import (
    T0,
    LogWriter,
    Recovered,
    Written,
    queue_files,
    recover,
)

PREPARED, COMMIT, ROLLBACK = 0x4, 0x8, 0xC


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def written_store(root: Path, count: int = 40) -> LogWriter:
    """A store with *count* messages in four queues, over several log files, stopped cleanly."""
    log = LogWriter(root)
    log.append_many(count)
    recover(root).close()
    return log


def assert_complete(store: Recovered, log: LogWriter, *, lost: tuple[Written, ...] = ()) -> None:
    """Every message can be read at its queue offset and found by its key; the lost ones cannot."""
    for (topic, queue_id), end in log.queue_ends.items():
        queue = store.queues.get(topic, queue_id)
        assert queue is not None
        assert queue.max_offset == end
        expected = {
            record.queue_offset: None if record in lost else record.body
            for record in log.written
            if (record.topic, record.queue_id) == (topic, queue_id)
        }
        assert store.bodies(topic, queue_id) == expected
    for record in log.written:
        assert record in lost or store.find(record.topic, record.key) == [record.offset]


def test_an_empty_directory_is_an_empty_store(root: Path) -> None:
    report = recover(root).report
    assert (report.log_end, report.record_count, report.last_store_time_ms) == (0, 0, 0)


@pytest.mark.parametrize("clean", [True, False])
def test_queues_and_index_are_built_from_the_log_alone(root: Path, clean: bool) -> None:
    log = LogWriter(root)
    log.append_many(40)
    store = recover(root, clean=clean)
    assert_complete(store, log)
    assert store.report.log_end == log.end
    assert store.report.last_store_time_ms == log.time_ms - 1
    assert store.files.write_offset == store.files.flushed_offset == log.end
    assert sum(store.report.changed_queues.values()) == 40
    assert store.report.indexed_count == 120


@pytest.mark.parametrize("clean", [True, False])
def test_a_whole_store_is_left_as_it_is(root: Path, clean: bool) -> None:
    log = written_store(root)
    before = queue_files(root)
    store = recover(root, clean=clean)
    assert_complete(store, log)
    assert store.report.changed_queues == {}
    assert store.report.indexed_count == 0
    assert queue_files(root) == before


def test_a_large_clean_store_is_read_from_the_end_only(root: Path) -> None:
    log = written_store(root)
    report = recover(root, verify_bytes=0).report
    assert report.record_count == 0
    assert report.scanned_from == report.log_end == log.end
    assert report.last_store_time_ms == log.time_ms - 1


def test_records_behind_the_queues_are_dispatched(root: Path) -> None:
    log = written_store(root)
    log.append_many(7)
    store = recover(root, verify_bytes=0)
    assert store.report.record_count == 7
    assert_complete(store, log)


# The end of the log.


@pytest.mark.parametrize("cut_bytes", [1, 4, 50, 120])
def test_a_torn_record_at_the_end_is_cut_and_kept_aside(root: Path, cut_bytes: int) -> None:
    log = written_store(root)
    torn = log.append()
    log.queue_ends["TopicA", 0] -= 1
    log.written.pop()
    written_bytes = torn.size_bytes - cut_bytes
    log.overwrite(torn.offset + written_bytes, bytes(cut_bytes))
    content = log.read(torn.offset, written_bytes)
    store = recover(root, clean=False)
    assert store.report.log_end == torn.offset
    assert store.report.holes == []
    assert store.report.cut is not None
    assert store.report.cut.offset == torn.offset
    assert Path(store.report.cut.kept_as).read_bytes().ljust(written_bytes, b"\0") == content
    assert store.layout.quarantine in Path(store.report.cut.kept_as).parents
    assert log.read(torn.offset, 1000).strip(b"\0") == b""
    assert_complete(store, log)


def test_zeros_behind_the_end_are_not_kept_aside(root: Path) -> None:
    written_store(root)
    store = recover(root, clean=False)
    assert store.report.cut is None
    assert not store.layout.quarantine.exists()


def test_two_cuts_at_one_offset_are_both_kept(root: Path) -> None:
    log = written_store(root)
    for number in range(2):
        log.overwrite(log.end, b"torn" * (number + 1))
        recover(root, clean=False).close()
    kept = sorted(StoreLayout(root).quarantine.iterdir())
    assert [path.read_bytes() for path in kept] == [b"torn", b"torntorn"]


def test_files_made_ahead_that_hold_nothing_are_deleted(root: Path) -> None:
    log = written_store(root)
    log.path_of(log.end + 4096)
    log.path_of(log.end + 8192)
    store = recover(root, clean=False)
    assert len(store.files.files) == log.end // 4096 + 1
    assert store.report.log_end == log.end
    assert_complete(store, log)


def test_a_log_that_ends_with_a_full_file_ends_there(root: Path) -> None:
    log = LogWriter(root)
    log.append_many(5)
    remaining = 4096 - log.end
    log.overwrite(log.end, BLANK_RECORD.pack(remaining, MAGIC_BLANK))
    store = recover(root)
    assert store.report.log_end == 4096
    assert store.files.write_offset == 4096
    assert_complete(store, log)


def test_a_log_may_start_anywhere(root: Path) -> None:
    log = LogWriter(root, base_offset=40960)
    log.queue_ends["TopicA", 0] = 17
    log.append_many(12)
    store = recover(root)
    queue = store.queues.get("TopicA", 0)
    assert queue is not None
    assert (queue.min_offset, queue.max_offset) == (17, 20)
    assert_complete(store, log)


def test_units_beyond_the_end_of_the_log_are_cut(root: Path) -> None:
    log = written_store(root)
    lost = log.written[-3:]
    log.overwrite(lost[0].offset, bytes(log.end - lost[0].offset))
    (StoreLayout(root).own / inventory.FILE_NAME).unlink()
    del log.written[-3:]
    for record in lost:
        log.queue_ends[record.topic, record.queue_id] -= 1
    store = recover(root, clean=False)
    assert store.report.log_end == lost[0].offset
    assert store.index.end_commit_log_offset == log.written[-1].offset
    assert_complete(store, log)


# Damage in the middle.


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("at", [0, 5, 21, 30, 95], ids=["size", "magic", "queue", "offset", "body"])
@pytest.mark.parametrize("rebuilt", [True, False], ids=["queues rebuilt", "queues there"])
def test_damage_costs_the_damaged_record_only(
    root: Path, clean: bool, at: int, rebuilt: bool
) -> None:
    log = written_store(root)
    victim = log.written[17]
    log.overwrite(victim.offset + at, bytes([log.read(victim.offset + at, 1)[0] ^ 0x55]))
    if rebuilt:
        shutil.rmtree(root / "consumequeue")
    store = recover(root, clean=clean)
    assert_complete(store, log, lost=(victim,))
    assert [(hole.start, hole.end) for hole in store.report.holes] == [
        (victim.offset, victim.end_offset)
    ]
    assert store.report.log_end == log.end
    assert store.report.cut is None


def test_damage_is_known_afterwards_and_does_not_grow(root: Path) -> None:
    log = written_store(root)
    victim = log.written[-1]
    log.overwrite(victim.offset + 20, b"\xff" * 20)
    first = recover(root)
    first.close()
    assert first.report.log_end == log.end
    again = recover(root, verify_bytes=0)
    assert again.report.record_count == 0
    assert again.report.log_end == log.end
    assert_complete(again, log, lost=(victim,))


def test_many_lost_messages_of_a_queue_keep_their_offsets(root: Path) -> None:
    log = written_store(root, 60)
    victims = tuple(log.written[10:31])
    for victim in victims:
        log.overwrite(victim.offset, bytes(victim.size_bytes))
    shutil.rmtree(root / "consumequeue")
    store = recover(root)
    assert_complete(store, log, lost=victims)
    assert sum(store.report.lost_messages.values()) == len(victims)


def test_the_newest_messages_of_a_queue_keep_their_offsets_when_they_are_lost(root: Path) -> None:
    log = written_store(root)
    victims = tuple(log.written[-4:])
    for victim in victims:
        log.overwrite(victim.offset, bytes(40))
    shutil.rmtree(root / "consumequeue")
    store = recover(root)
    assert_complete(store, log, lost=victims)
    assert store.report.log_end == log.end


def test_damage_in_front_of_the_noted_end_is_no_torn_tail(root: Path) -> None:
    log = written_store(root)
    victim = log.written[-1]
    log.overwrite(victim.offset, bytes(victim.size_bytes))
    store = recover(root, clean=False)
    assert store.report.log_end == log.end
    assert_complete(store, log, lost=(victim,))
    log.append("TopicA", 0)
    assert recover(root, clean=False).bodies("TopicA", 0)[10] == log.written[-1].body


def test_a_missing_file_in_the_middle_is_a_hole(root: Path) -> None:
    log = written_store(root, 60)
    log.path_of(4096).unlink()
    victims = tuple(r for r in log.written if 4096 <= r.offset < 8192)
    shutil.rmtree(root / "consumequeue")
    store = recover(root)
    assert_complete(store, log, lost=victims)
    assert store.report.holes[0][:2] == (4096, 8192)
    assert "missing" in store.report.holes[0].reason


def test_a_file_whose_closing_blank_was_lost_goes_on_in_the_next(root: Path) -> None:
    log = written_store(root, 30)
    last = [r for r in log.written if r.offset < 4096][-1]
    log.overwrite(last.end_offset, bytes(4096 - last.end_offset))
    store = recover(root)
    assert [hole[:2] for hole in store.report.holes] == [(last.end_offset, 4096)]
    assert_complete(store, log)


def test_a_record_inside_a_body_is_none(root: Path) -> None:
    log = LogWriter(root)
    inner = log.append()
    log.append(body=log.read(inner.offset, inner.size_bytes))
    victim = log.append(body=log.read(inner.offset, inner.size_bytes) * 3)
    log.append_many(3)
    log.overwrite(victim.offset, bytes(50))
    store = recover(root)
    assert [hole[:2] for hole in store.report.holes] == [(victim.offset, victim.end_offset)]
    assert_complete(store, log, lost=(victim,))


def test_leftovers_behind_damage_are_not_taken_for_messages(root: Path) -> None:
    """RocketMQ cuts at damage, keeps what is behind on disk, and writes over a part of it."""
    log = written_store(root, 12)
    leftovers = log.written[6:]
    log.overwrite(leftovers[0].offset, b"\xff" * 20)
    (StoreLayout(root).own / inventory.FILE_NAME).unlink()
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    log.end = leftovers[0].offset
    del log.written[6:]
    for record in leftovers:
        log.queue_ends[record.topic, record.queue_id] -= 1
    log.time_ms += 10_000
    for topic, queue_id in (("TopicB", 1), ("TopicA", 0)):
        log.append(topic, queue_id, b"longer than what stood there " * 5)
    store = recover(root, clean=False)
    assert store.report.log_end == log.end
    assert store.report.cut is not None
    assert_complete(store, log)


# Queues.


def test_a_deleted_queue_is_rebuilt_even_when_the_log_is_not_read_otherwise(root: Path) -> None:
    log = written_store(root)
    before = queue_files(root)
    shutil.rmtree(root / "consumequeue" / "TopicB" / "1")
    store = recover(root, verify_bytes=0)
    assert list(store.report.changed_queues) == [("TopicB", 1)]
    assert_complete(store, log)
    store.close()
    assert queue_files(root) == before


@pytest.mark.parametrize("clean", [True, False])
def test_a_queue_that_lacks_its_newest_units_gets_them(root: Path, clean: bool) -> None:
    log = written_store(root)
    before = queue_files(root)
    path = root / "consumequeue" / "TopicA" / "1" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(7 * 20)
        file.write(bytes(60))
    store = recover(root, clean=clean, verify_bytes=0)
    assert store.report.changed_queues == {("TopicA", 1): 3}
    assert_complete(store, log)
    store.close()
    assert queue_files(root) == before


def test_a_queue_found_behind_by_a_later_message_is_walked_again(root: Path) -> None:
    log = written_store(root)
    (StoreLayout(root).own / inventory.FILE_NAME).unlink()
    shutil.rmtree(root / "consumequeue" / "TopicB" / "1")
    log.append("TopicB", 1)
    store = recover(root, verify_bytes=0, adopt_bytes=0)
    assert store.report.scanned_from == log.written[-2].offset
    assert_complete(store, log)


@pytest.mark.parametrize("verify_bytes", [0, 1 << 20])
def test_a_plausible_but_wrong_last_unit_is_replaced(root: Path, verify_bytes: int) -> None:
    log = written_store(root)
    before = queue_files(root)
    path = root / "consumequeue" / "TopicA" / "0" / f"{0:020d}"
    other = log.written[-1]
    with path.open("r+b") as file:
        file.seek(9 * 20)
        file.write(CONSUME_QUEUE_UNIT.pack(other.offset, other.size_bytes, 0))
    store = recover(root, verify_bytes=verify_bytes)
    assert_complete(store, log)
    store.close()
    assert queue_files(root) == before


def test_units_that_no_record_asks_for_are_cut(root: Path) -> None:
    log = written_store(root)
    path = root / "consumequeue" / "TopicA" / "0" / f"{200:020d}"
    other = log.written[-1]
    phantom = CONSUME_QUEUE_UNIT.pack(other.offset + 1, 100, 0)
    path.write_bytes(phantom.ljust(200, b"\0"))
    store = recover(root)
    assert_complete(store, log)


def test_a_queue_of_blank_units_only_is_rebuilt(root: Path) -> None:
    log = written_store(root)
    path = root / "consumequeue" / "TopicA" / "0" / f"{0:020d}"
    path.write_bytes(BLANK_CONSUME_QUEUE_UNIT * 10)
    store = recover(root)
    assert_complete(store, log)


def test_a_damaged_head_does_not_move_a_message_to_another_queue(root: Path) -> None:
    log = written_store(root)
    victim = log.written[20]
    topic_at = log.read(victim.offset, victim.size_bytes).index(b"TopicA")
    log.overwrite(victim.offset + topic_at, b"TopicX")
    store = recover(root)
    assert store.queues.topics() == ["TopicA", "TopicB"]
    assert [hole[:2] for hole in store.report.holes] == [(victim.offset, victim.end_offset)]


def test_a_damaged_queue_offset_does_not_take_another_messages_place(root: Path) -> None:
    log = written_store(root)
    victim = log.written[20]
    log.overwrite(victim.offset + 27, b"\x02")
    store = recover(root)
    assert [hole[:2] for hole in store.report.holes] == [(victim.offset, victim.end_offset)]
    assert store.bodies("TopicA", 0)[2] == log.written[8].body


def test_prepared_and_rolled_back_records_are_in_no_queue(root: Path) -> None:
    log = LogWriter(root)
    log.append()
    prepared = log.append(sys_flag=PREPARED, queue_offset=0)
    rolled_back = log.append(sys_flag=ROLLBACK, queue_offset=0)
    committed = log.append(sys_flag=COMMIT)
    store = recover(root)
    assert store.bodies("TopicA", 0) == {0: log.written[0].body, 1: committed.body}
    assert store.find("TopicA", prepared.key) == [prepared.offset]
    assert store.find("TopicA", rolled_back.key) == []


def test_the_delay_topics_units_say_when_a_message_is_due(root: Path) -> None:
    log = LogWriter(root)
    for level in ("3", "99", "0", "x"):
        log.append("SCHEDULE_TOPIC_XXXX", 2, extra=f"DELAY\x01{level}\x02")
    queue = recover(root).queues.get("SCHEDULE_TOPIC_XXXX", 2)
    assert queue is not None
    codes = [queue.entry(number)[2] for number in range(4)]  # type: ignore[index]
    assert codes == [T0 + 10_000, T0 + 1 + 30_000, 2598919, 2598919]


def test_batch_topics_are_rebuilt_as_such(root: Path) -> None:
    log = LogWriter(root)
    body = encode_batch([(0, b"one", b""), (0, b"two", b""), (0, b"three", b"")])
    log.append("T", 0, body, sys_flag=0xC0, extra="INNER_NUM\x013\x02INNER_BASE\x010\x02")
    log.queue_ends["T", 0] = 3
    log.append("T", 0, b"single")
    store = recover(root)
    queue = store.queues.get("T", 0)
    assert queue is not None
    assert (queue.min_offset, queue.max_offset) == (0, 4)
    before = queue_files(root)
    store.close()
    shutil.rmtree(root / "batchconsumequeue")
    recover(root, is_batch_topic=lambda topic: topic == "T").close()
    assert queue_files(root) == before
    assert list(before) == [f"batchconsumequeue/T/0/{0:020d}"]


def test_lost_batches_keep_their_offsets(root: Path) -> None:
    log = LogWriter(root)
    for number in range(5):
        log.queue_ends["T", 0] = number * 3
        inner = f"INNER_NUM\x013\x02INNER_BASE\x01{number * 3}\x02"
        log.append("T", 0, sys_flag=0xC0, extra=inner)
    victim = log.written[2]
    log.overwrite(victim.offset, bytes(60))
    queue = recover(root).queues.get("T", 0)
    assert queue is not None
    assert (queue.min_offset, queue.max_offset) == (0, 15)
    assert queue.entry(9)[0] == log.written[3].offset  # type: ignore[index]
    lost = queue.entry(7)
    assert lost is not None
    assert victim.offset <= lost[0] < victim.end_offset


def test_topics_that_were_deleted_do_not_come_back(root: Path) -> None:
    log = written_store(root)
    shutil.rmtree(root / "consumequeue" / "TopicB")
    end = log.end
    store = recover(root, is_deleted=lambda topic, offset: topic == "TopicB" and offset < end)
    assert store.queues.topics() == ["TopicA"]
    assert store.report.next_queue_offsets == {}
    store.close()
    log.queue_ends["TopicB", 0] = 0
    reborn = log.append("TopicB", 0)
    store = recover(root, is_deleted=lambda topic, offset: topic == "TopicB" and offset < end)
    assert store.bodies("TopicB", 0) == {0: reborn.body}


def test_the_later_of_two_lives_of_a_topic_counts(root: Path) -> None:
    log = LogWriter(root)
    for _ in range(5):
        log.append()
    log.queue_ends["TopicA", 0] = 0
    later = [log.append().body for _ in range(3)]
    assert recover(root).bodies("TopicA", 0) == dict(enumerate(later))


def test_names_that_no_directory_can_have_are_stepped_over(root: Path) -> None:
    log = LogWriter(root)
    log.append("../../etc")
    log.append("..")
    log.append("TopicA")
    assert recover(root).queues.topics() == ["TopicA"]


def test_a_queue_whose_messages_have_all_expired_goes_on_at_its_offset(root: Path) -> None:
    log = written_store(root)
    shutil.rmtree(root / "consumequeue" / "TopicB" / "1")
    end = log.end + 4096 - log.end % 4096
    shutil.rmtree(root / "commitlog")
    later = LogWriter(root, base_offset=end, time_ms=T0 + 10_000)
    later.queue_ends["TopicA", 0] = 10
    later.append()
    store = recover(root, clean=False)
    assert store.report.next_queue_offsets["TopicB", 1] == 10
    assert store.bodies("TopicA", 0)[10] == later.written[0].body
    store.close()
    assert recover(root).report.next_queue_offsets["TopicB", 1] == 10


def test_a_commit_log_that_is_gone_altogether_is_refused(root: Path) -> None:
    written_store(root)
    shutil.rmtree(root / "commitlog")
    with pytest.raises(CorruptFileError, match="is a disk not mounted"):
        recover(root)
    (StoreLayout(root).own / inventory.FILE_NAME).unlink()
    store = recover(root)
    assert store.report.log_end == 0
    assert queue_files(root) == {}
    assert store.index.end_commit_log_offset == -1


# The checkpoint.


def crashed_store(root: Path) -> tuple[LogWriter, int]:
    """A store of 200 messages in one second each, whose first 100 were flushed."""
    log = LogWriter(root)
    for number in range(200):
        log.time_ms = T0 + number * 1000
        log.append(f"Topic{number % 3}")
    recover(root).close()
    return log, T0 + 100_000


def test_after_a_crash_reading_starts_where_the_checkpoint_proves(root: Path) -> None:
    log, flushed_ms = crashed_store(root)
    checkpoint = StoreCheckpoint(flushed_ms, flushed_ms + 5000, 0)
    store = recover(root, clean=False, checkpoint=checkpoint, verify_bytes=0)
    # 3 s in front of the older time, and at a message of the newest queue at that time.
    assert log.written[94].offset <= store.report.scanned_from <= log.written[97].offset
    assert_complete(store, log)


@pytest.mark.parametrize(
    "checkpoint",
    [StoreCheckpoint(), StoreCheckpoint(T0 + 10**9, T0 + 10**9, 0), StoreCheckpoint(0, T0 + 100)],
    ids=["missing", "too new", "half"],
)
def test_a_checkpoint_that_proves_nothing_has_all_of_the_log_read(
    root: Path, checkpoint: StoreCheckpoint
) -> None:
    log, _ = crashed_store(root)
    store = recover(root, clean=False, checkpoint=checkpoint, verify_bytes=0)
    assert store.report.scanned_from == 0
    assert store.report.record_count == 200
    assert_complete(store, log)


def test_a_crash_is_recovered_from_a_second_crash_in_the_middle(root: Path) -> None:
    log, _ = crashed_store(root)
    shutil.rmtree(root / "consumequeue")
    recover(root, clean=False).close(clean=False)
    store = recover(root, clean=False)
    assert_complete(store, log)
    assert store.report.changed_queues == {}
