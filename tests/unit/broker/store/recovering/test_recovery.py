"""Recovery of the commit log: what is lost, what is cut, what is a hole, what is left alone."""

import shutil
from pathlib import Path

import pytest

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.recovering import inventory
from rockhopper.protocol.store.record_head import BLANK_RECORD, MAGIC_BLANK
from tests.support.store_directories import (
    LogWriter,
    assert_complete,
    queue_files,
    recover,
    written_store,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


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
    (StoreLayout(root).own / inventory.INVENTORY_FILE).unlink()
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
    (StoreLayout(root).own / inventory.INVENTORY_FILE).unlink()
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
