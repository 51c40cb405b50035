"""Recovery of consume queues and index from the commit log, and where it starts to read."""

import gc
import os
import resource
import shutil
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files.checkpoint import StoreCheckpoint
from rockhopper.broker.store.recovering import inventory
from rockhopper.protocol.store.message_codec import encode_batch
from rockhopper.protocol.store.queue_layout import BLANK_CONSUME_QUEUE_UNIT, CONSUME_QUEUE_UNIT
from tests.support.rot import overwrite
from tests.support.store_directories import (
    T0,
    LogWriter,
    Recovered,
    assert_complete,
    queue_files,
    recover,
    written_store,
)

PREPARED, COMMIT, ROLLBACK = 0x4, 0x8, 0xC


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


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
    overwrite(path, 7 * 20, bytes(60))
    store = recover(root, clean=clean, verify_bytes=0)
    assert store.report.changed_queues == {("TopicA", 1): 3}
    assert_complete(store, log)
    store.close()
    assert queue_files(root) == before


def test_a_queue_found_behind_by_a_later_message_is_walked_again(root: Path) -> None:
    log = written_store(root)
    (StoreLayout(root).own / inventory.INVENTORY_FILE).unlink()
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
    overwrite(path, 9 * 20, CONSUME_QUEUE_UNIT.pack(other.offset, other.size_bytes, 0))
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


def test_more_queues_than_descriptors_are_recovered(root: Path) -> None:
    log = LogWriter(root)
    for _ in range(2):
        for queue_id in range(300):
            log.append("T", queue_id)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_now = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 290, hard))
    try:
        assert sum(recover(root, clean=False).report.changed_queues.values()) == 600
        gc.collect()  # a mapping in a cycle of references keeps its descriptor until then
        assert len(os.listdir("/proc/self/fd")) < open_now + 20
        again = recover(root, clean=False)
        assert again.report.changed_queues == {}
        gc.collect()
        assert len(os.listdir("/proc/self/fd")) < open_now + 20
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_an_expired_queue_that_lost_its_end_keeps_its_offsets(root: Path) -> None:
    log = written_store(root, 60)
    path = root / "consumequeue" / "TopicB" / "1" / f"{200:020d}"
    overwrite(path, 40, bytes(60))
    for base in (0, 4096):
        log.path_of(base).unlink()
    for record in log.written:
        if record.offset >= 8192 and (record.topic, record.queue_id) == ("TopicB", 1):
            log.overwrite(record.offset, bytes(record.size_bytes))
    queue = recover(root).queues.get("TopicB", 1)
    assert queue is not None
    assert queue.max_offset == 15


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("verify_bytes", [0, 4 << 20])
def test_a_queue_whose_first_file_is_gone_is_built_again(
    root: Path, clean: bool, verify_bytes: int
) -> None:
    log = written_store(root, 60)
    recover(root).close()
    (root / "consumequeue" / "TopicB" / "1" / f"{0:020d}").unlink()
    with capture_logs() as lines:
        store = recover(root, clean=clean, verify_bytes=verify_bytes)
    assert_complete(store, log)
    assert [line for line in lines if "first files of a queue are missing" in line["event"]]
    store.close()
    with capture_logs() as lines:
        assert_complete(recover(root), log)
    assert not lines or {line["log_level"] for line in lines} == {"info"}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("missing", [[200], [200, 400]])
def test_a_first_file_that_is_missing_behind_expired_messages_is_built_again(
    root: Path, clean: bool, missing: list[int]
) -> None:
    log = written_store(root, 200)
    for base in (0, 4096):
        log.path_of(base).unlink()
    directory = root / "consumequeue" / "TopicB" / "1"
    (directory / f"{0:020d}").unlink()
    recover(root).close()
    for position in missing:
        (directory / f"{position:020d}").unlink()
    with capture_logs() as lines:
        store = recover(root, clean=clean, verify_bytes=0)
    assert_kept(store, log, "TopicB", 1, 8192)
    (named,) = [line for line in lines if "first files of a queue are missing" in line["event"]]
    assert named["directory"] == str(directory)
    store.close()
    with capture_logs() as lines:
        assert_kept(recover(root, verify_bytes=0), log, "TopicB", 1, 8192)
    assert {line["log_level"] for line in lines} <= {"info"}


def assert_kept(store: Recovered, log: LogWriter, topic: str, queue_id: int, log_min: int) -> None:
    """A queue has all of its messages that the log still has."""
    queue = store.queues.get(topic, queue_id)
    assert queue is not None
    assert store.bodies(topic, queue_id) == {
        record.queue_offset: record.body
        for record in log.written
        if (record.topic, record.queue_id) == (topic, queue_id) and record.offset >= log_min
    }


def test_a_queue_whose_files_end_where_the_log_begins_lacks_nothing(root: Path) -> None:
    log = LogWriter(root)
    for number in range(40):  # ten to a file of the log, and ten to a file of the queue
        log.append(body=b"%04d" % number + bytes(240))
    assert log.written[10].offset == 4096
    recover(root).close()
    log.path_of(0).unlink()
    (root / "consumequeue" / "TopicA" / "0" / f"{0:020d}").unlink()
    store = recover(root, clean=False, verify_bytes=0)
    assert store.report.scanned_from == 4096
    assert store.report.changed_queues == {}
    assert_kept(store, log, "TopicA", 0, 4096)
    store.close()
    with capture_logs() as lines:
        again = recover(root, verify_bytes=0)
    assert again.report.scanned_from > 4096
    assert {line["log_level"] for line in lines} <= {"info"}


def test_an_entry_that_a_start_mends_is_named(root: Path) -> None:
    log = written_store(root, 60)
    recover(root).close()
    path = root / "consumequeue" / "TopicB" / "1" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(47)
        byte = file.read(1)[0]
        file.seek(47)
        file.write(bytes([byte ^ 4]))
    with capture_logs() as lines:
        assert_complete(recover(root), log)
    (named,) = [line for line in lines if line["log_level"] == "warning"]
    assert "repaired" in named["event"]
    assert list(named["queues"]) == ["TopicB/1"]


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
