"""A log that is cut while its store is opened: nothing claims that it went further."""

import pytest

from rockhopper.broker.store.files.errors import DeposedError
from rockhopper.broker.store.message_store import MessageStore
from tests.support.open_stores import Stores, bodies, close, fill, flush, flush_derived_files, put


@pytest.fixture
def ends(stores: Stores) -> list[int]:
    """Where each of some messages ends, over several files; the last run ended cleanly."""
    store = stores.open()
    found = [put(store, b"%d" % number * 150).end_offset for number in range(60)]
    flush(store)
    flush_derived_files(store)
    return found


def reopen(stores: Stores, cut_at: int, *, is_clean: bool) -> MessageStore:
    if is_clean:
        return stores.reopen_after_stop(cut_at=cut_at)
    return stores.reopen_after_kill(cut_at=cut_at)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("kept", [1, 20, 59])
def test_what_is_in_front_stays_and_queue_offsets_go_on_there(
    stores: Stores, ends: list[int], kept: int, is_clean: bool
) -> None:
    store = reopen(stores, ends[kept - 1], is_clean=is_clean)
    assert store.log.written_offset == ends[kept - 1]
    assert store.reading.queue_range("TopicA", 0) == (0, kept)
    assert not store.opened.report.holes
    result = put(store, b"instead")
    assert (result.queue_offset, result.commit_log_offset) == (kept, ends[kept - 1])
    assert bodies(store)[-1] == b"instead"


def test_the_next_start_finds_nothing_missing(stores: Stores, ends: list[int]) -> None:
    store = stores.reopen_after_stop(cut_at=ends[9])
    fill(store, 3)
    close(stores.opened.pop(stores.root))
    store = stores.open()
    assert store.reading.queue_range("TopicA", 0) == (0, 13)
    assert not store.opened.report.holes


def test_what_was_cut_is_kept_aside(stores: Stores, ends: list[int]) -> None:
    store = stores.reopen_after_stop(cut_at=ends[9])
    kept = store.opened.layout.quarantine / f"commitlog-{ends[9]:020d}"
    assert kept.read_bytes()[4:8] == bytes.fromhex("daa320a7")


def test_cutting_at_the_end_cuts_nothing(stores: Stores, ends: list[int]) -> None:
    store = stores.reopen_after_stop(cut_at=ends[-1])
    assert store.reading.queue_range("TopicA", 0) == (0, 60)
    assert not store.opened.layout.quarantine.exists()


def test_what_is_sealed_takes_nothing_more(store: MessageStore) -> None:
    end = put(store).end_offset
    store.depose(DeposedError("another leads"))
    with pytest.raises(DeposedError, match="another leads"):
        put(store)
    store.staging.read_clock()
    store.opened.commit_log.stage_encoded(b"x" * 100)
    with pytest.raises(DeposedError):
        store.opened.commit_log.write()
    assert store.log.written_offset == end
