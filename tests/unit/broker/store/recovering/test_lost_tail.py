"""A tail that had been flushed and is gone: it is named, and its queue offsets are not reused."""

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.settings.broker_config import FlushDiskType
from rockhopper.broker.store.files import checkpoint as checkpoints
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.reading.get_result import GetStatus
from rockhopper.protocol.store.message_codec import decode_message
from tests.support.killed_store import copy_killed
from tests.support.open_stores import (
    FILE_SIZE_BYTES,
    Stores,
    bodies,
    flush,
    flush_derived_files,
    put,
)
from tests.support.rot import overwrite

SYNC, ASYNC = FlushDiskType.SYNC, FlushDiskType.ASYNC
COUNT, LOST = 40, 10


def fill(stores: Stores, flush_type: FlushDiskType) -> tuple[MessageStore, list[int]]:
    """A store with COUNT messages in two queues, all flushed; where the records are."""
    store = stores.open(flush_disk_type=flush_type)
    starts = [put(store, b"%d" % n, queue_id=n % 2).commit_log_offset for n in range(COUNT)]
    flush(store)
    return store, starts


def zero_from(root: Path, offset: int) -> None:
    for path in sorted((root / "commitlog").iterdir()):
        start = max(offset - int(path.name), 0)
        if start < path.stat().st_size:
            data = path.read_bytes()
            path.write_bytes(data[:start].ljust(len(data), b"\0"))


def delete_from(root: Path, offset: int) -> None:
    zero_from(root, offset)
    for path in sorted((root / "commitlog").iterdir())[1:]:
        if not path.read_bytes().strip(b"\0"):
            path.unlink()


def lose_tail(stores: Stores, tmp_path: Path, start: int, lose: Any) -> Path:
    killed = copy_killed(stores.root, tmp_path / "killed")
    lose(killed, start)
    return killed


@pytest.mark.parametrize("lose", [zero_from, delete_from])
@pytest.mark.parametrize("has_checkpoint", [True, False])
@pytest.mark.parametrize("flush_type", FlushDiskType)
def test_its_offsets_are_not_used_again(
    stores: Stores, tmp_path: Path, flush_type: FlushDiskType, has_checkpoint: bool, lose: Any
) -> None:
    if flush_type is ASYNC and not has_checkpoint:
        pytest.skip("nothing proves then that it was on disk")
    store, starts = fill(stores, flush_type)
    if has_checkpoint:
        store.flush_service.derived.save_checkpoint()
    end = store.log.written_offset
    killed = lose_tail(stores, tmp_path, starts[-LOST], lose)
    with capture_logs() as logs:
        again = stores.open(killed, flush_disk_type=flush_type)
    assert (
        again.reading.queue_range("TopicA", 0)
        == again.reading.queue_range("TopicA", 1)
        == (0, COUNT // 2)
    )
    report = again.opened.report
    assert report.lost_tail is not None
    assert (report.lost_tail.start, report.lost_tail.end) == (starts[-LOST], end)
    assert report.lost_messages == {("TopicA", 0): LOST // 2, ("TopicA", 1): LOST // 2}
    (named,) = [entry for entry in logs if "end of the commit log is missing" in entry["event"]]
    assert named["from_offset"] == starts[-LOST]
    new = put(again, b"new")
    assert (new.queue_offset, new.commit_log_offset >= end) == (COUNT // 2, True)
    flush(again)
    assert bodies(again) == [b"%d" % n for n in range(0, COUNT - LOST, 2)] + [b"new"]


def test_a_reader_in_the_hole_is_sent_behind_it(stores: Stores, tmp_path: Path) -> None:
    _store, starts = fill(stores, SYNC)
    again = stores.open(lose_tail(stores, tmp_path, starts[-LOST], zero_from))
    first_lost, end = (COUNT - LOST) // 2, COUNT // 2
    result = again.reading.get_message("TopicA", 0, first_lost, 32)
    assert (result.count, result.next_offset) == (0, end)
    put(again, b"new")
    result = again.reading.get_message("TopicA", 0, first_lost, 32)
    if result.status is not GetStatus.FOUND:
        result = again.reading.get_message("TopicA", 0, result.next_offset, 32)
    message = decode_message(result.body)
    assert (message.queue_offset, message.body) == (end, b"new")


def test_it_is_said_once(stores: Stores, tmp_path: Path) -> None:
    _store, starts = fill(stores, SYNC)
    root = lose_tail(stores, tmp_path, starts[-LOST], zero_from)
    assert stores.open(root).opened.report.lost_tail is not None
    killed = copy_killed(root, tmp_path / "killed again")
    again = stores.open(killed)
    assert (again.opened.report.lost_tail, again.opened.report.lost_messages) == (None, {})
    assert again.reading.queue_range("TopicA", 0) == (0, COUNT // 2)


def test_a_tail_that_was_never_flushed_is_cut(stores: Stores, tmp_path: Path) -> None:
    store = stores.open()
    starts = [put(store, b"%d" % n).commit_log_offset for n in range(COUNT)]
    again = stores.open(lose_tail(stores, tmp_path, starts[-LOST], zero_from))
    assert again.reading.queue_range("TopicA", 0) == (0, COUNT - LOST)
    assert again.opened.report.lost_tail is None


def test_a_unit_that_fits_nothing_proves_nothing(stores: Stores, tmp_path: Path) -> None:
    store, _starts = fill(stores, SYNC)
    end = store.log.written_offset
    killed = copy_killed(stores.root, tmp_path / "killed")
    queue = next((killed / "consumequeue/TopicA/1").iterdir())
    overwrite(
        queue, COUNT // 2 * 20, (end + 700).to_bytes(8, "big") + (200).to_bytes(4, "big") + bytes(8)
    )
    again = stores.open(killed)
    assert again.log.written_offset == end
    assert again.reading.queue_range("TopicA", 1) == (0, COUNT // 2)


@pytest.mark.parametrize("size_bytes", [1, 4096])
def test_a_unit_with_a_wrong_size_proves_no_more_than_its_record(
    stores: Stores, size_bytes: int
) -> None:
    store, _starts = fill(stores, SYNC)
    end = store.log.written_offset
    stores.close_all()
    queue = next((stores.root / "consumequeue/TopicA/1").iterdir())
    with queue.open("r+b") as file:
        file.seek((COUNT // 2 - 1) * 20 + 8)
        size = int.from_bytes(file.read(4), "big")
        file.seek((COUNT // 2 - 1) * 20 + 8)
        file.write((size + size_bytes).to_bytes(4, "big"))
    again = stores.open()
    assert again.log.written_offset == end
    assert again.opened.report.lost_tail is None
    assert again.reading.queue_range("TopicA", 1) == (0, COUNT // 2)


def test_records_of_a_deleted_topic_do_not_hide_what_follows(
    stores: Stores, tmp_path: Path
) -> None:
    store = stores.open(flush_disk_type=SYNC)
    put(store, topic="Gone")
    starts = [put(store, b"%d" % n).commit_log_offset for n in range(COUNT)]
    flush(store)
    store.visibility.delete_topics(["Gone"])
    again = stores.open(lose_tail(stores, tmp_path, starts[-LOST], zero_from))
    assert again.reading.queue_range("TopicA", 0) == (0, COUNT)


def test_the_checkpoint_of_a_run_of_rocketmq_s_counts_then(stores: Stores, tmp_path: Path) -> None:
    store, starts = fill(stores, ASYNC)
    store.flush_service.derived.save_checkpoint()
    killed = lose_tail(stores, tmp_path, starts[-LOST], zero_from)
    theirs = checkpoints.StoreCheckpoint(commit_log_ms=1, consume_queue_ms=1)
    checkpoints.save(killed / "checkpoint", theirs)
    assert stores.open(killed).reading.queue_range("TopicA", 0) == (0, (COUNT - LOST) // 2)


def test_first_files_are_missed_beside_a_purged_topic_and_not_of_it(stores: Stores) -> None:
    store = stores.open(consume_queue_file_size_bytes=200)
    for n in range(COUNT):
        put(store, b"%d" % n)
        put(store, b"%d" % n, topic="Purged")
    flush_derived_files(store)
    store.visibility.purge_topics(["Purged"])
    stores.close_all()
    for topic in ("TopicA", "Purged"):
        (stores.root / "consumequeue" / topic / "0" / f"{0:020d}").unlink()
    with capture_logs() as logs:
        again = stores.open(consume_queue_file_size_bytes=200)
    assert again.reading.queue_range("TopicA", 0) == (0, COUNT)
    assert again.reading.queue_range("Purged", 0) == (COUNT, COUNT)
    (named,) = [line for line in logs if "first files of a queue" in line["event"]]
    assert named["directory"].endswith("TopicA/0")


def test_the_log_goes_on_behind_a_missing_file_that_only_an_empty_one_follows(
    stores: Stores, tmp_path: Path
) -> None:
    """The next file is made before it is needed, so this is what losing the newest one leaves."""
    store = stores.open()
    while put(store).commit_log_offset < FILE_SIZE_BYTES:
        pass
    flush(store)
    count = put(store).queue_offset + 1
    flush(store)
    killed = copy_killed(stores.root, tmp_path / "killed")
    (killed / "commitlog" / f"{FILE_SIZE_BYTES:020d}").unlink()
    (killed / "commitlog" / f"{2 * FILE_SIZE_BYTES:020d}").write_bytes(bytes(FILE_SIZE_BYTES))
    again = stores.open(killed)
    stored = put(again, b"new")
    assert (stored.queue_offset, stored.commit_log_offset) == (count, 2 * FILE_SIZE_BYTES)
    flush(again)
    third = stores.open(copy_killed(killed, tmp_path / "killed again"))
    assert bodies(third, offset=count) == [b"new"]
    assert put(third).queue_offset == count + 1


@pytest.mark.parametrize("kept", [1, 2])
def test_missing_newest_files_are_told_by_the_queues_alone(
    stores: Stores, tmp_path: Path, kept: int
) -> None:
    """No note of the end was taken since they were begun; SYNC_FLUSH had everything on disk."""
    store = stores.open(flush_disk_type=SYNC)
    while put(store).commit_log_offset < 2 * FILE_SIZE_BYTES:
        pass
    count = put(store, queue_id=0).queue_offset + 1
    flush(store)
    killed = copy_killed(stores.root, tmp_path / "killed")
    for path in sorted((killed / "commitlog").iterdir())[kept:]:
        path.unlink()
    with capture_logs() as lines:
        again = stores.open(killed, flush_disk_type=SYNC)
    assert [line for line in lines if "end of the commit log is missing" in line["event"]]
    assert put(again, b"new").queue_offset == count
    flush(again)
    third = stores.open(copy_killed(killed, tmp_path / "again"), flush_disk_type=SYNC)
    assert bodies(third, offset=count) == [b"new"]


def test_a_rotten_unit_makes_no_file_of_the_log(stores: Stores, tmp_path: Path) -> None:
    store = stores.open(flush_disk_type=SYNC)
    put(store)
    last = put(store)
    flush(store)
    killed = copy_killed(stores.root, tmp_path / "killed")
    queue = killed / "consumequeue" / "TopicA" / "0" / f"{0:020d}"
    data = bytearray(queue.read_bytes())
    data[20 * last.queue_offset] ^= 0x10
    queue.write_bytes(data)
    again = stores.open(killed, flush_disk_type=SYNC)
    assert len(list((killed / "commitlog").iterdir())) == 1
    assert put(again).queue_offset == last.queue_offset + 1


@pytest.mark.parametrize("bit", [10, 24, 40, 62])
@pytest.mark.parametrize("name", ["checkpoint", "rockhopper/checkpoint"])
def test_a_bit_of_a_checkpoint_says_nothing_of_the_end(
    stores: Stores, tmp_path: Path, name: str, bit: int
) -> None:
    store, _ = fill(stores, ASYNC)
    store.flush_service.derived.save_checkpoint()
    end = store.log.written_offset
    killed = copy_killed(stores.root, tmp_path / "killed")
    page = bytearray((killed / name).read_bytes())
    page[47 - bit // 8] ^= 1 << bit % 8
    (killed / name).write_bytes(page)
    again = stores.open(killed, flush_disk_type=ASYNC)
    assert again.opened.report.lost_tail is None
    assert again.log.written_offset == end
    assert put(again, b"new").commit_log_offset < end + FILE_SIZE_BYTES
