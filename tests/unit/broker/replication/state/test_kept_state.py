"""What a follower keeps, entry by entry, and that the same entries may come again."""

import pytest

from rockhopper.broker.kernel.scheduled.timers.entries import SLOT_MS
from rockhopper.broker.kernel.state_records import (
    StateKind,
    StateRecordError,
    encode_numbers,
    encode_slots,
)
from tests.support.state_rig import Pair


def test_a_kind_that_is_not_known_is_named(pair: Pair) -> None:
    with pytest.raises(StateRecordError, match="kind 99"):
        pair.follower.applier.kept.apply(99, b"", 0)


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (StateKind.ENTRY, b""),
        (StateKind.ENTRY, b"\0\1x\0\1yz"),
        (StateKind.DELAYED, b"short"),
        (StateKind.DELETED, b"{"),
        (StateKind.PURGED, b"[]"),
        (StateKind.DOCUMENT, b"\0\x0btopics.json{}"),
        (StateKind.TIMERS, b"123"),
    ],
)
def test_what_makes_no_sense_is_told(pair: Pair, kind: StateKind, payload: bytes) -> None:
    async def take() -> None:
        with pytest.raises(StateRecordError):
            pair.follower.applier.kept.apply(kind, payload, 0)

    pair.follower.run(take())


def test_a_pass_leaves_the_one_before_it_behind(pair: Pair) -> None:
    kept = pair.follower.applier.kept

    async def take() -> None:
        kept.apply(StateKind.DELAYED, encode_numbers(1, 5, 8), 100)
        kept.apply(StateKind.DELAYED, encode_numbers(1, 8, 9), 200)

    pair.follower.run(take())
    assert pair.follower.tables.delay_offsets.offsets[1] == 8
    assert kept.passes[1] == (1, 8, 9, 200)


def test_a_timer_that_is_noted_twice_counts_once_and_comes_back(pair: Pair) -> None:
    now_ms = pair.clock()
    for body in (b"1", b"2"):
        pair.master.put_timer("orders", body, now_ms + 600_000)
    pair.take()
    timers = pair.follower.applier.kept.timers
    assert timers.pending_count == 2
    slot = encode_slots([((now_ms + 600_000) // SLOT_MS, 0)])

    async def take(kind: StateKind) -> None:
        pair.follower.applier.kept.apply(kind, slot, 100)

    for _ in range(2):
        pair.follower.run(take(StateKind.TIMERS))
        assert timers.pending_count == 1
    pair.follower.run(take(StateKind.TIMERS_UNDONE))
    assert timers.pending_count == 2
