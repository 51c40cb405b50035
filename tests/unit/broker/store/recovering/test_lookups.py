"""Looking up records and units by commit log offset."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.broker.store.log.log_scan import record_at, record_start
from tests.support.rot import flip_bit
from tests.support.store_directories import (
    FILE_SIZE_BYTES,
    LogWriter,
    Recovered,
    recover,
    written_store,
)


@pytest.fixture
def log(tmp_path: Path) -> LogWriter:
    return written_store(tmp_path)


@pytest.fixture
def store(tmp_path: Path, log: LogWriter) -> Iterator[Recovered]:
    opened = recover(tmp_path)
    yield opened
    opened.close()


def test_a_whole_record_is_found_where_it_begins_and_nowhere_else(
    log: LogWriter, store: Recovered
) -> None:
    for written in log.written[::7]:
        record = record_at(store.files, written.offset)
        assert record is not None
        assert (record.offset, record.size_bytes) == (written.offset, written.size_bytes)
        assert record.queue_offset == written.queue_offset
        assert record_at(store.files, written.offset + 1) is None
    for nowhere in (-1, log.end, 1 << 40):
        assert record_at(store.files, nowhere) is None


def test_reading_starts_at_the_record_or_its_file_or_the_log(
    log: LogWriter, store: Recovered
) -> None:
    second = next(written for written in log.written if written.offset > FILE_SIZE_BYTES)
    assert record_start(store.files, second.offset) == second.offset
    assert record_start(store.files, second.offset + 3) == FILE_SIZE_BYTES
    assert record_start(store.files, 1 << 40) == store.files.min_offset


def test_a_damaged_record_is_none(tmp_path: Path) -> None:
    log = written_store(tmp_path)
    victim = log.written[3]
    flip_bit(log.path_of(victim.offset), victim.offset + victim.size_bytes // 2)
    store = recover(tmp_path)
    assert record_at(store.files, victim.offset) is None
    store.close()


def test_the_first_unit_not_in_front_of_an_offset(log: LogWriter, store: Recovered) -> None:
    queue = store.queues.get("TopicA", 1)
    assert queue is not None
    mine = [w for w in log.written if (w.topic, w.queue_id) == ("TopicA", 1)]
    for written in mine:
        found = written.queue_offset, (written.offset, written.size_bytes)
        assert queue.find_unit(written.offset) == found
        assert queue.find_unit(written.offset - 1) == found
    assert queue.find_unit(0) == (0, (mine[0].offset, mine[0].size_bytes))
    assert queue.find_unit(mine[-1].offset + 1) is None
    assert queue.commit_log_end == mine[-1].end_offset
