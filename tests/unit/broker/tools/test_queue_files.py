from pathlib import Path

import pytest

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.tools import queue_files
from rockhopper.broker.tools.queue_files import FoundWitnesses, QueueDirectories
from rockhopper.broker.tools.store_view import StoreView
from rockhopper.protocol.store.expected import Record
from tests.support import apache_golden, open_stores, tool_stores
from tests.support.open_files import open_files_in
from tests.support.peers import Clock


def test_ends_are_those_of_the_open_store(tmp_path: Path) -> None:
    store = open_stores.open_store(tmp_path, Clock(), consume_queue_file_size_bytes=20 * 5)
    for number in range(13):
        open_stores.put(store, b"x", "A", number % 2)
    queues = QueueDirectories(StoreLayout(tmp_path))
    assert queues.ends() == {("A", 0): 7, ("A", 1): 6}
    unit = queues.open("A", 0).unit_at(20 * 6)
    open_stores.close(store)
    assert unit[0] == StoreView(tmp_path).queues.open("A", 0).unit_at(20 * 6)[0] > 0
    assert queues.open("A", 1).range_from(unit[0]) == (6, 6)


def test_a_place_in_the_log_is_found_in_a_queue_whose_first_files_have_expired(
    tmp_path: Path,
) -> None:
    store = open_stores.open_store(tmp_path, Clock(), consume_queue_file_size_bytes=20 * 5)
    places = [open_stores.put(store, b"x", "A").commit_log_offset for _ in range(13)]
    open_stores.close(store)
    (tmp_path / "consumequeue/A/0" / f"{0:020}").unlink()
    queue = QueueDirectories(StoreLayout(tmp_path)).open("A", 0)
    for number, place in enumerate(places):
        assert queue.range_from(place) == (max(number, 5), 13)
    assert queue.range_from(places[-1] + 1) == (13, 13)


def test_a_queue_that_was_read_leaves_no_file_open(root: Path) -> None:
    queues = QueueDirectories(StoreLayout(root))
    assert all(queues.open(*queue).range_from(0)[1] == end for queue, end in queues.ends().items())
    assert open_files_in(root) == []


def test_an_empty_newest_file_ends_a_queue_where_the_one_before_it_does(tmp_path: Path) -> None:
    store = open_stores.open_store(tmp_path, Clock(), consume_queue_file_size_bytes=20 * 5)
    for _ in range(5):
        open_stores.put(store, b"x", "A")
    open_stores.close(store)
    first, second = (tmp_path / "consumequeue/A/0" / f"{base:020}" for base in (0, 100))
    second.write_bytes(bytes(100))
    queues = QueueDirectories(StoreLayout(tmp_path))
    assert queues.open("A", 0).find_end() == 100
    first.write_bytes(first.read_bytes()[:80].ljust(100, b"\0"))
    assert queues.open("A", 0).find_end() == 80
    first.unlink()
    assert queues.open("A", 0).range_from(0) == (5, 5)


def test_batches_are_counted_by_their_messages(tmp_path: Path) -> None:
    store = apache_golden.unpack("batch", tmp_path)
    queues = QueueDirectories(StoreLayout(store.path))
    for topic, found in store.topics.items():
        for queue in found["queues"]:
            is_batch = queues.is_batch(topic)
            _, queue_id, first, end = queue
            files = queues.open(topic, queue_id, is_batch=is_batch)
            assert files.range_from(0) == (first, end)


def test_what_is_not_there_reads_as_zeros(tmp_path: Path) -> None:
    queue = QueueDirectories(StoreLayout(tmp_path)).open("A", 0)
    assert (queue.start, queue.find_end(), queue.read(40, 60)) == (0, 0, bytes(20))
    with pytest.raises(ValueError, match="no directory"):
        QueueDirectories(StoreLayout(tmp_path)).open("../x", 0)


def test_units_witness_for_records(root: Path) -> None:
    view = StoreView(root)
    witnesses = FoundWitnesses(view.queues, view.record_at)
    records = [record for record, _ in view.records()]
    assert all(witnesses.opinion(record) for record in records)
    assert witnesses.end_of(records[3].offset) == records[3].end_offset
    image = records[3]._replace(offset=records[3].offset + 5)
    assert witnesses.opinion(image) is False
    assert witnesses.opinion(image._replace(queue_offset=10**6)) is None
    assert tool_stores.checked(root).is_sound


def test_a_copy_of_a_record_is_known_by_its_original(root: Path) -> None:
    view = StoreView(root)
    records = [record for record, _ in view.records()]
    copy = records[3]._replace(offset=records[-1].end_offset)

    def opinion(holder: Record | None) -> bool | None:
        return FoundWitnesses(view.queues, lambda _offset: holder).opinion(copy)

    assert opinion(records[3]) is False
    assert opinion(records[4]) is None
    assert opinion(None) is None


def test_a_name_that_no_directory_can_have_is_no_evidence(root: Path) -> None:
    view = StoreView(root)
    record = next(record for record, _ in view.records())._replace(topic=b"../x")
    assert FoundWitnesses(view.queues, view.record_at).opinion(record) is None


def test_the_search_for_an_entry_is_given_up_after_many_queues(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = StoreView(root)
    record = next(record for record, _ in view.records())
    found = []
    for searches_max in (0, 99):
        monkeypatch.setattr(queue_files, "_SEARCHES_MAX", searches_max)
        found.append(FoundWitnesses(view.queues, view.record_at).end_of(record.offset))
    assert found == [None, record.end_offset]
