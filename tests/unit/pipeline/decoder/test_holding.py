"""holding: which pieces hold a needle, and which records are worth decoding for it."""

import zlib

import numpy as np
import pytest

from rockhopper.pipeline.decoder import Records, candidates, holding, read_records
from rockhopper.protocol.sys_flags import SYS_FLAG_COMPRESSED
from tests.support.records import encode_message


def test_a_needle_over_the_edge_of_records_is_none() -> None:
    starts, ends = np.array([0, 4, 8]), np.array([4, 8, 12])

    assert holding(b"abneedleneed", starts, ends, b"need").tolist() == [False, False, True]
    assert holding(b"needneedneed", starts, ends, b"need").tolist() == [True] * 3
    assert holding(b"needneedneed", starts, ends, b"dn").tolist() == [False] * 3


def records(*bodies: tuple[bytes, int]) -> Records:
    encoded = [encode_message(topic="T", body=body, sys_flag=flag) for body, flag in bodies]
    starts = np.cumsum([0, *map(len, encoded[:-1])])
    return read_records(np.frombuffer(b"".join(encoded), np.uint8), starts)


def rows(found: Records | None, every: Records) -> list[int]:
    return [] if found is None else np.searchsorted(every.offsets, found.offsets).tolist()


@pytest.mark.parametrize(
    ("needles", "expected"),
    [
        ((), [0, 1, 2, 3]),
        ((b"one",), [0, 2, 3]),
        ((b"one", b"two"), [2, 3]),
        ((b"three",), [3]),
        # Over the border of two records: the end of a body and what follows in its record.
        ((b"one two\x01T\0\0\0\0\0",), [3]),
    ],
)
def test_records_that_cannot_match_are_not_decoded(
    needles: tuple[bytes, ...], expected: list[int]
) -> None:
    compressed = (zlib.compress(b"none of them"), SYS_FLAG_COMPRESSED)
    every = records((b"one", 0), (b"two", 0), (b"one two", 0), compressed)
    assert rows(candidates(every, needles), every) == expected


def test_where_no_record_can_match_there_is_none() -> None:
    assert candidates(records((b"one", 0)), (b"two",)) is None
