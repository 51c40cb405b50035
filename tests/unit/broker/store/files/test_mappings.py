"""Mappings: no more mapped files than there may be, and those in use go last."""

import gc
import resource
from pathlib import Path

import pytest

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files.errors import TooManyOpenFilesError
from rockhopper.broker.store.files.mapped_file import Mappings
from rockhopper.broker.store.queues.queue_table import ConsumeQueueTable
from rockhopper.broker.store.queues.unit_queue import UnitQueue
from tests.support.no_descriptor import no_descriptor_free
from tests.support.open_files import open_files_in
from tests.support.open_stores import FILE_SIZE_BYTES, Stores, bodies, flush, put

LOG_END = 1 << 20


def new_table(root: Path, mapped_files_max: int) -> ConsumeQueueTable:
    return ConsumeQueueTable(StoreLayout(root), 100, 138, Mappings(mapped_files_max))


def append(table: ConsumeQueueTable, queue_id: int, *offsets: int) -> UnitQueue:
    queue = table.get_or_create("T", queue_id)
    for offset in offsets:
        queue.append(offset, offset * 100, 50, 0)
    return queue


@pytest.fixture(autouse=True)
def mappings_hold_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Map as where there was no compiler."""
    monkeypatch.setattr("rockhopper.broker.store.files.mapped_file._mapping", None)


def mapped(root: Path) -> list[int]:
    return sorted(int(Path(path).parent.name) for path in open_files_in(root))


def test_mappings_of_queues_not_needed_for_longest_are_let_go_of(tmp_path: Path) -> None:
    table = new_table(tmp_path, 3)
    for queue_id in range(5):
        append(table, queue_id, 0)
    assert len(mapped(tmp_path)) == 3
    for queue_id in range(5):
        queue = append(table, queue_id, 1, 2)
        assert [unit[0] for unit in queue.last_units(5)] == [0, 100, 200]
        assert len(mapped(tmp_path)) <= 3
    table.close()


def test_a_queue_that_is_written_is_spared(tmp_path: Path) -> None:
    table = new_table(tmp_path, 3)
    append(table, 0, 0)
    for number in range(1, 5):
        append(table, number, 0)
        append(table, 0, number)
        assert 0 in mapped(tmp_path)
    append(table, 5, 0)
    append(table, 6, 0)
    append(table, 7, 0)
    append(table, 8, 0)
    assert 0 not in mapped(tmp_path)
    table.close()


def test_what_was_written_before_a_mapping_went_is_flushed_all_the_same(tmp_path: Path) -> None:
    table = new_table(tmp_path, 1)
    for queue_id in range(3):
        append(table, queue_id, 0, 1)
    assert table.dirty_count == 3
    assert sum(1 for _ in table.flush_steps(thorough=True)) == 3
    table.close()
    again = new_table(tmp_path, 1)
    again.load()
    for queue in again:
        queue.recover(LOG_END)
        assert queue.max_offset == 2
    assert len(mapped(tmp_path)) <= 1
    again.close()


def test_reading_old_files_takes_no_more_descriptors_either(tmp_path: Path) -> None:
    table = new_table(tmp_path, 2)
    queue = append(table, 0, *range(32))
    batches = table.get_or_create("B", 0, batch=True)
    for number in range(9):
        batches.append(number, 10_000 + number, 1, 0, 1, 0)
    for offset in range(32):
        assert queue.entry(offset) == (offset * 100, 50, 0)
        assert batches.entry(offset % 9) is not None
        assert len(mapped(tmp_path)) <= 2
    append(table, 0, 32)
    assert queue.entry(32) == (3200, 50, 0)
    table.close()


def test_files_that_went_for_other_reasons_are_not_counted(tmp_path: Path) -> None:
    table = new_table(tmp_path, 3)
    for queue_id in range(3):
        append(table, queue_id, 0)
    for _ in table.flush_steps(thorough=True):
        pass
    for _ in range(2):
        list(table.release_idle())
    assert mapped(tmp_path) == []
    append(table, 0, 1)
    append(table, 1, 1)
    append(table, 2, 1)
    assert mapped(tmp_path) == [0, 1, 2]
    table.delete_topic("T").remove()
    for queue_id in range(5):
        append(table, queue_id, 0)
    assert len(mapped(tmp_path)) == 3
    table.close()


@pytest.mark.parametrize("makes_file", [True, False], ids=["a file is made", "a file is mapped"])
def test_without_a_free_descriptor_others_are_let_go_of(tmp_path: Path, makes_file: bool) -> None:
    table = new_table(tmp_path, 100)
    for queue_id in range(4):
        append(table, queue_id, 0)
    if not makes_file:
        append(table, 4, 0).release_if_idle()
        for _ in table.flush_steps(thorough=True):
            pass
        assert table.get_or_create("T", 4).release_if_idle()
    with no_descriptor_free():
        append(table, 4, int(not makes_file))
    assert mapped(tmp_path) == [4]
    for queue_id in range(4):
        append(table, queue_id, 1)
    table.close()


def test_when_nothing_is_left_to_let_go_of_the_limit_is_named(tmp_path: Path) -> None:
    table = new_table(tmp_path, 100)
    # What tests before this one left would be closed, and its descriptors free, at some point.
    gc.collect()
    with no_descriptor_free():
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        with pytest.raises(
            TooManyOpenFilesError, match=rf"may have {limit}; .*LimitNOFILE=.*ulimits:"
        ):
            append(table, 1, 0)
    assert not (tmp_path / "consumequeue").exists()
    append(table, 1, 0, 1)
    table.close()


def test_a_log_that_is_read_takes_no_more_descriptors_either(stores: Stores) -> None:
    store = stores.open(mapped_files_max=4)
    bodies_sent = [b"%d" % number + bytes(1000) for number in range(60)]
    for body in bodies_sent:
        put(store, body)
    for _ in range(2):
        assert bodies(store) == bodies_sent
        assert store.opened.commit_log.written_offset > 10 * FILE_SIZE_BYTES
        flush(store)
        # The newest file is open for writing as well, and the next one while a thread makes it.
        assert len(open_files_in(stores.root / "commitlog")) <= 4 + 2
