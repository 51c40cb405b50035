"""Entries: their bytes, the slot that one belongs to, and the hash that a recall looks for."""

import pytest

from rockhopper.broker.kernel.scheduled.timers.entries import (
    ENTRY,
    ENTRY_SIZE_BYTES,
    KIND_AT,
    KIND_WITHDRAWAL,
    LAST_FIELD_AT,
    TimerEntry,
    key_hash,
)


def test_entry_layout() -> None:
    entry = TimerEntry(1, 2, 3, 1, 4, 5)
    assert ENTRY.pack(*entry).hex(" ", 8) == (
        "0000000000000001 0000000000000002 0000000300000001 0000000000000004 0000000000000005"
    )
    assert ENTRY_SIZE_BYTES == 40


def test_fields_that_are_looked_for_without_unpacking_are_where_they_are_said_to_be() -> None:
    packed = ENTRY.pack(*TimerEntry(-1, -1, -1, KIND_WITHDRAWAL, -1, 0x0102030405060708))
    assert packed[KIND_AT] == KIND_WITHDRAWAL
    assert packed[KIND_AT - 3 : KIND_AT] == bytes(3)
    assert packed[LAST_FIELD_AT:] == bytes.fromhex("0102030405060708")


@pytest.mark.parametrize(("due_ms", "slot"), [(0, 0), (59_999, 0), (60_000, 1), (119_999, 1)])
def test_a_slot_is_a_minute(due_ms: int, slot: int) -> None:
    assert TimerEntry(due_ms, 0, 0, 0, 0, 0).slot == slot


def test_the_hash_tells_topic_and_key_apart_and_stays_what_files_hold() -> None:
    """The number was computed with coreutils: ``printf 'orders+K1' | b2sum -l 64``."""
    assert key_hash("orders", "K1") == 0x65BFC4579B60B1A2
    hashes = {key_hash(topic, key) for topic in ("a", "b", "") for key in ("a", "b", "\ud800")}
    assert len(hashes) == 9
