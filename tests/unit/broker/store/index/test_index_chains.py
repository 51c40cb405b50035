"""Index chains: one pass says what every link, slot and time must be, and repairs what is not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.broker.store.index.index_chains import IndexChains
from rockhopper.broker.store.index.index_file import IndexFile
from rockhopper.protocol.store.queue_layout import INDEX_ENTRY, INDEX_SLOT

SLOTS, ENTRIES = 4, 20
T0 = 1_700_000_000_000
# Hashes of four keys, of which the first and third share a slot.
HASHES = [1, 2, 5, 3]


@pytest.fixture
def file(tmp_path: Path) -> Iterator[IndexFile]:
    """Eight entries, a second apart; entry n is of the record at 100·n."""
    made = IndexFile.create(tmp_path / "20260101000000000", SLOTS, ENTRIES, None)
    for number in range(1, 9):
        made.insert_key(hash_of(number), 100 * number, T0 + 1000 * (number - 1))
    made.flush()
    yield made
    made.close()


def hash_of(number: int) -> int:
    return HASHES[number % 4]


def repaired(file: IndexFile) -> tuple[list[int], int]:
    """The entries that had to be repaired, by number, and how many slots."""
    chains = IndexChains(file)
    entries = [
        number
        for number in range(1, 9)
        if chains.repair_entry(hash_of(number), 100 * number, T0 + 1000 * (number - 1))
    ]
    slots = 0
    while not chains.is_compared:
        slots += chains.compare_slots()
    chains.close()
    return entries, slots


def test_a_sound_file_is_left_as_it_is(file: IndexFile) -> None:
    before = bytes(file.mapping)
    assert repaired(file) == ([], 0)
    assert bytes(file.mapping) == before
    assert file.is_flushed


@pytest.mark.parametrize("field", range(4), ids=["hash", "offset", "seconds", "link"])
def test_a_wrong_field_of_an_entry_is_set_right(file: IndexFile, field: int) -> None:
    before = bytes(file.mapping)
    at = file.entries_at + 5 * INDEX_ENTRY.size
    fields = list(INDEX_ENTRY.unpack_from(file.mapping, at))
    fields[field] += 1
    INDEX_ENTRY.pack_into(file.mapping, at, *fields)
    assert repaired(file) == ([5], 0)
    assert bytes(file.mapping) == before
    assert not file.is_flushed


def test_a_wrong_slot_is_set_right(file: IndexFile) -> None:
    before = bytes(file.mapping)
    INDEX_SLOT.pack_into(file.mapping, 40 + 4 * 1, 77)
    INDEX_SLOT.pack_into(file.mapping, 40 + 4 * 2, 0)
    assert repaired(file) == ([], 2)
    assert bytes(file.mapping) == before


def test_a_begin_time_that_is_not_its_first_records_is_set_right(file: IndexFile) -> None:
    file.begin_ms = T0 + 500
    chains = IndexChains(file)
    chains.repair_entry(hash_of(1), 100, T0)
    assert chains.has_wrong_times
    assert file.begin_ms == T0
    assert chains.mend_header()
    assert not chains.mend_header()
    chains.close()


def test_an_entry_whose_record_is_gone_keeps_what_it_says(file: IndexFile) -> None:
    chains = IndexChains(file)
    for number in range(1, 9):
        assert not chains.take_as_it_is()
        assert chains.number == number + 1
    assert chains.compare_slots() == 0
    chains.close()


def test_a_link_is_mended_without_its_record(file: IndexFile) -> None:
    at = file.entries_at + 5 * INDEX_ENTRY.size
    fields = list(INDEX_ENTRY.unpack_from(file.mapping, at))
    INDEX_ENTRY.pack_into(file.mapping, at, *fields[:3], 99)
    chains = IndexChains(file)
    assert [chains.take_as_it_is() for _ in range(8)] == [number == 5 for number in range(1, 9)]
    chains.close()
    assert list(INDEX_ENTRY.unpack_from(file.mapping, at)) == fields


def test_an_entry_is_reached_by_the_chain_of_its_own_hash(file: IndexFile) -> None:
    chains = IndexChains(file)
    assert chains.is_reachable_without(hash_of(1) + 1)
    assert not chains.is_reachable_without(hash_of(1))
    INDEX_SLOT.pack_into(file.mapping, 40 + 4 * (hash_of(1) % SLOTS), 0)
    assert not chains.is_reachable_without(hash_of(1) + 1)
    chains.close()


def test_a_header_that_is_not_what_is_known_is_written_anew(file: IndexFile) -> None:
    chains = IndexChains(file)
    assert not chains.mend_header()
    file.mapping[0:8] = bytes(8)
    assert chains.mend_header()
    chains.close()


def test_slots_are_compared_in_slices(file: IndexFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rockhopper.broker.store.index.index_chains.SLOT_SLICE_BYTES", 8)
    chains = IndexChains(file)
    for _ in range(8):
        chains.take_as_it_is()
    places = []
    while not chains.is_compared:
        places.append(chains.place()[1:])
        chains.compare_slots()
    assert places == [(40, 8), (48, 8)]
    chains.close()
