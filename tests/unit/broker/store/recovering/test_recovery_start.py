"""Where recovery starts to read, and up to where the log is known to have been on disk."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files.checkpoint import StoreCheckpoint
from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue
from rockhopper.broker.store.queues.queue_table import ConsumeQueueTable
from rockhopper.broker.store.recovering import inventory
from rockhopper.broker.store.recovering.inventory import Inventory
from rockhopper.broker.store.recovering.queue_repair import QueueRules
from rockhopper.broker.store.recovering.recovery_start import (
    LoadedStore,
    ProvenEnd,
    QueueState,
    RecoveryStart,
)
from tests.support.store_directories import FILE_SIZE_BYTES, LogWriter, recover, written_store

NOTHING = StoreCheckpoint()
SYNC = Inventory(0, None, {}, is_sync=True)
ASYNC = Inventory(0, None, {})


@pytest.fixture
def log(tmp_path: Path) -> LogWriter:
    """A store of several files, whose queues are whole."""
    writer = written_store(tmp_path)
    recover(tmp_path, clean=False).close(clean=False)
    assert writer.end > FILE_SIZE_BYTES
    return writer


@pytest.fixture
def prove(log: LogWriter) -> Callable[..., int]:
    """What is proven once the files were reached for and the queues asked."""

    def prove(
        checkpoint: StoreCheckpoint = NOTHING,
        noted: Inventory | None = None,
        *states: QueueState,
        is_clean: bool = False,
        is_ours: bool = True,
    ) -> int:
        layout = StoreLayout(log.root)
        files = MappedFileQueue(layout.commit_log, FILE_SIZE_BYTES)
        files.load()
        queues = ConsumeQueueTable(layout, 200, 460)
        queues.load()
        proof = ProvenEnd(files, checkpoint, noted, is_clean=is_clean, is_ours=is_ours)
        proof.reach(queues)
        for queue in queues:
            queue.recover(files.next_base_offset)
        proof.ask(queues, states, None)
        queues.close()
        files.close()
        return proof.offset

    return prove


def test_the_later_of_checkpoint_and_inventory_counts(prove: Callable[..., int]) -> None:
    noted = ASYNC._replace(log_end=300)
    assert prove(NOTHING, noted) == 300
    assert prove(StoreCheckpoint(flushed_offset=200), noted) == 300
    assert prove(StoreCheckpoint(flushed_offset=400), noted) == 400


def test_units_count_under_sync_flush_and_where_all_notes_of_ours_are_gone(
    log: LogWriter, prove: Callable[..., int]
) -> None:
    assert prove(NOTHING, SYNC) == log.end
    assert prove(NOTHING, None) == log.end
    assert prove(NOTHING, ASYNC) == 0
    assert prove(NOTHING, None, is_ours=False) == 0
    assert prove(StoreCheckpoint(consume_queue_ms=1), None) == 0


def test_what_queues_have_proven_counts_after_a_clean_stop_alone(
    prove: Callable[..., int],
) -> None:
    states = QueueState(proven_end=500), QueueState(proven_end=700)
    assert prove(NOTHING, ASYNC, *states, is_clean=True) == 700
    assert prove(NOTHING, ASYNC, *states) == 0


def test_a_newest_file_that_is_gone_is_there_again_and_blank(
    log: LogWriter, prove: Callable[..., int]
) -> None:
    newest = log.path_of(log.end - 1)
    newest.unlink()
    assert prove(NOTHING, SYNC) == log.end
    assert newest.read_bytes() == bytes(FILE_SIZE_BYTES)


def test_a_newest_file_that_nobody_speaks_of_is_not_made(
    log: LogWriter, prove: Callable[..., int]
) -> None:
    newest = log.path_of(log.end - 1)
    newest.unlink()
    prove(NOTHING, ASYNC)
    assert not newest.exists()


@pytest.fixture
def find_start(log: LogWriter) -> Iterator[Callable[..., RecoveryStart]]:
    """What a store that was stopped cleanly shows, with another inventory."""
    layout = StoreLayout(log.root)
    files = MappedFileQueue(layout.commit_log, FILE_SIZE_BYTES)
    files.load()
    queues = ConsumeQueueTable(layout, 200, 460)
    queues.load()

    def find_start(noted: Inventory | None, *, deleted: str = "") -> RecoveryStart:
        loaded = LoadedStore(layout, files, queues, None, NOTHING, noted, is_clean=True)
        rules = QueueRules(
            lambda topic: False,
            lambda topic, offset: topic == deleted,
            lambda level: 0,
            lambda topic: topic == deleted,
        )
        start = RecoveryStart(loaded, rules)
        start.look_at_queues(ProvenEnd(files, NOTHING, noted, is_clean=True, is_ours=True))
        return start

    yield find_start
    queues.close()
    files.close()


def test_after_a_clean_stop_reading_starts_at_the_newest_message_in_a_queue(
    log: LogWriter, find_start: Callable[..., RecoveryStart]
) -> None:
    noted = inventory.load(StoreLayout(log.root))
    start = find_start(noted)
    assert len(start.states) == 4
    assert not any(state.is_suspect for state in start.states.values())
    assert start.last_store_time_ms == log.time_ms - 1
    assert start.choose(verify_bytes=0, adopt_bytes=0) == log.end


def test_a_small_log_is_read_whole_and_a_larger_one_without_inventory(
    log: LogWriter, find_start: Callable[..., RecoveryStart]
) -> None:
    noted = inventory.load(StoreLayout(log.root))
    assert find_start(noted).choose(verify_bytes=log.end, adopt_bytes=0) == 0
    assert find_start(noted).choose(verify_bytes=0, adopt_bytes=log.end) == log.end
    assert find_start(None).choose(verify_bytes=0, adopt_bytes=log.end) == 0
    assert find_start(None).choose(verify_bytes=0, adopt_bytes=0) == log.end


def test_a_queue_that_the_inventory_knows_and_that_is_missing_needs_the_whole_log(
    log: LogWriter, find_start: Callable[..., RecoveryStart]
) -> None:
    noted = inventory.load(StoreLayout(log.root))
    assert noted is not None
    longer = noted._replace(queue_ends={**noted.queue_ends, ("Lost", 0): 7})
    assert find_start(longer).choose(verify_bytes=0, adopt_bytes=0) == 0
    start = find_start(longer, deleted="Lost")
    assert dict(start.read_noted_ends()) == noted.queue_ends
    assert start.choose(verify_bytes=0, adopt_bytes=0) == log.end
