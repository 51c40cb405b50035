"""A snapshot in pieces."""

import os

import pytest

from rockhopper.broker.kernel.state_records import (
    PIECE_SIZE_BYTES,
    StateKind,
    StateRecordError,
    encode_piece,
)
from rockhopper.broker.replication.state.snapshot import Pieces, pieces_of
from tests.support.state_rig import Pair


def _pieces(pair: Pair) -> list[bytes]:
    master = pair.master

    async def made() -> list[bytes]:
        return [payload for _, payload in pieces_of(master.tables)]

    return master.run(made())


def test_all_pieces_in_a_row_are_a_snapshot(pair: Pair) -> None:
    async def fill() -> None:
        for number in range(40):
            noise = os.urandom(8000).hex()
            pair.master.values.set_value(f"namespace-{number}", "key", noise)
            pair.master.tables.catalog.topic_ids.set(f"topic-{number}", [noise, number])

    pair.master.run(fill())
    pieces = _pieces(pair)
    assert len(pieces) > 1
    assert max(map(len, pieces)) <= PIECE_SIZE_BYTES + 8
    taker = Pieces()
    # A master that was lost in the midst of one.
    assert taker.append(pieces[0]) is None
    *front, last = pieces
    for piece in front:
        assert taker.append(piece) is None
    entries = taker.append(last)
    assert entries is not None
    assert {kind for kind, _ in entries} >= {
        StateKind.DOCUMENT,
        StateKind.ENDS,
        StateKind.TIMERS_ALL,
    }


def test_a_piece_that_is_missing_makes_none(pair: Pair) -> None:
    taker = Pieces()
    assert taker.append(encode_piece(0, 3, b"a")) is None
    assert taker.append(encode_piece(2, 3, b"c")) is None
    assert [taker.append(piece) is not None for piece in _pieces(pair)][-1]


def test_one_that_cannot_be_unpacked_is_refused() -> None:
    with pytest.raises(StateRecordError, match="cannot be unpacked"):
        Pieces().append(encode_piece(0, 1, b"no"))
