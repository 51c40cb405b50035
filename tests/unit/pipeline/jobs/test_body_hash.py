"""Hashes of bodies: the same in any order and from any part, another for every change."""

import zlib

import numpy as np
import pyarrow as pa
import pytest

from rockhopper.pipeline.jobs.body_hash import (
    CRC_BITS,
    Numbers,
    body_crcs,
    body_edges,
    body_hashes,
    mix,
    stored_crcs,
)

BODIES = [b"", b"one", None, b"two" * 100]


def sizes_of(*sizes: int) -> "np.ndarray[tuple[int], np.dtype[np.int32]]":
    return np.array(sizes, np.int32)


def hashes(crcs: list[int], sizes: list[int], offsets: list[int], bits: int = CRC_BITS) -> Numbers:
    return body_hashes(
        np.array(crcs, np.uint64), sizes_of(*sizes), np.array(offsets, np.int64), bits
    )


def test_a_body_has_the_crc_of_its_bytes_and_null_that_of_nothing() -> None:
    crcs = body_crcs(pa.array(BODIES, pa.binary()))
    assert crcs.tolist() == [0, zlib.crc32(b"one"), 0, zlib.crc32(b"two" * 100)]
    assert body_crcs(pa.array([], pa.binary())).tolist() == []


def test_a_slice_has_its_own_edges() -> None:
    bodies = pa.array([b"ab", b"c", b"def"], pa.binary()).slice(1)
    assert np.diff(body_edges(bodies)).tolist() == [1, 3]
    assert body_crcs(bodies).tolist() == [zlib.crc32(b"c"), zlib.crc32(b"def")]


def test_stored_sums_are_believed_but_of_what_was_compressed_or_empty() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "bodyCrc": pa.array([5, -1, 7, 9], pa.int32()),
            "body": pa.array([b"a", b"b", b"", b"c"], pa.binary()),
            "sysFlag": pa.array([0, 0, 0, 1], pa.int32()),
        }
    )
    wanted = [5, 0x7FFFFFFF, 0, zlib.crc32(b"c") & 0x7FFFFFFF]
    assert stored_crcs(batch).tolist() == wanted


def test_sums_do_not_depend_on_the_order_and_see_every_change() -> None:
    whole = hashes([1, 2, 3], [10, 20, 30], [0, 1, 2]).sum(dtype=np.uint64)
    turned = hashes([3, 1, 2], [30, 10, 20], [2, 0, 1]).sum(dtype=np.uint64)
    assert whole == turned
    for changed in (
        hashes([2, 1, 3], [10, 20, 30], [0, 1, 2]),
        hashes([1, 2, 3], [10, 20, 31], [0, 1, 2]),
        hashes([1, 2, 3], [10, 20, 30], [0, 1, 3]),
        hashes([1, 2], [10, 20], [0, 1]),
        hashes([1, 2, 3, 3], [10, 20, 30, 30], [0, 1, 2, 2]),
    ):
        assert changed.sum(dtype=np.uint64) != whole


@pytest.mark.parametrize(("bits", "is_same"), [(31, True), (32, False)])
def test_the_highest_bit_of_a_crc_counts_only_in_hashes_of_former_days(
    bits: int, is_same: bool
) -> None:
    one, other = hashes([5], [1], [0], bits), hashes([5 | 1 << 31], [1], [0], bits)
    assert (one == other).all() == is_same


def test_mixing_is_that_of_splitmix64() -> None:
    # From the reference implementation, seeded with 0: its state is the weight, then twice that.
    numbers = np.array([0x9E3779B97F4A7C15, 0x3C6EF372FE94F82A], np.uint64)
    assert mix(numbers).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]
