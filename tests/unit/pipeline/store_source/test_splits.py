"""Splits: all cores are done at about the same time, and what is in no file has no data."""

import pytest

from rockhopper.pipeline.store_source.pieces import Piece
from rockhopper.pipeline.store_source.splits import data_bytes, split_size_bytes


@pytest.mark.parametrize("cores", [1, 2, 4, 16])
@pytest.mark.parametrize("total_mib", [0, 1, 100, 5_000, 50_000])
def test_the_cores_get_equally_many_splits_or_there_are_few(cores: int, total_mib: int) -> None:
    total = total_mib << 20
    size = split_size_bytes(total, cores)
    assert size > 0
    count = -(-total // size)
    assert count <= 2 * cores or count % cores == 0


def test_a_missing_range_has_no_data_and_one_that_cannot_be_asked_has_all() -> None:
    assert data_bytes(Piece("/gone", 0, 0, 100, 100, True, False, None, True)) == 0
    assert data_bytes(Piece("/gone", 0, 40, 100, 100, True, False)) == 60
