"""The sizes of derived files, as a store's note and its files tell them."""

from pathlib import Path

import pytest

from rockhopper.pipeline.derived.geometry import find_geometry
from rockhopper.pipeline.errors import PipelineError
from rockhopper.protocol.store.queue_layout import GEOMETRY_FILE, IndexGeometry, encode_geometry

# 16 slots and 40 entries make a file of the same length as 11 and 41.
LENGTH = IndexGeometry(16, 40).file_size_bytes


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "20261120091843715").write_bytes(bytes(LENGTH))
    (tmp_path / "rockhopper").mkdir()
    return tmp_path


def test_a_note_says_which_of_the_pairs_it_is(store: Path) -> None:
    (store / "rockhopper" / GEOMETRY_FILE).write_bytes(encode_geometry(IndexGeometry(11, 41)))
    found = find_geometry(store)
    assert (found.index_slot_count, found.index_entry_count_max) == (11, 41)
    assert not found.index_problem


def test_a_note_whose_checksum_is_wrong_is_not_believed(store: Path) -> None:
    note = encode_geometry(IndexGeometry(16, 40)).replace(b"16", b"11").replace(b"40", b"41")
    (store / "rockhopper" / GEOMETRY_FILE).write_bytes(note)
    assert (find_geometry(store).index_slot_count, bool(find_geometry(store).index_problem)) != (
        11,
        False,
    )


def test_what_is_given_beats_what_is_there(store: Path) -> None:
    found = find_geometry(store, index_slot_count=11, index_entry_count_max=41)
    assert (found.index_slot_count, found.index_entry_count_max) == (11, 41)


@pytest.mark.parametrize(
    ("slots", "entries", "reason"),
    [
        (0, 41, "cannot have 0 slots"),
        (11, 1, "1 entries"),
        (12, 41, "leave the two out, or set --index-slots"),
    ],
)
def test_sizes_that_no_file_can_have_are_refused(
    store: Path, slots: int, entries: int, reason: str
) -> None:
    with pytest.raises(PipelineError, match=reason):
        find_geometry(store, index_slot_count=slots, index_entry_count_max=entries)


def test_one_given_number_and_the_files_tell_the_other(store: Path) -> None:
    found = find_geometry(store, index_slot_count=11)
    assert (found.index_slot_count, found.index_entry_count_max) == (11, 41)
