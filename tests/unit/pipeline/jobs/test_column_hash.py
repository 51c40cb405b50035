"""Hashes of columns add up over any parts of a queue, and see every change."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from rockhopper.pipeline.jobs.column_hash import (
    HASHED_COLUMNS,
    add_sums,
    column_hashes,
    compute_total,
    sum_columns,
)
from tests.support.where_conditions import log_of_odd_messages
from tests.support.written_logs import store_reader


@pytest.fixture
def batch(tmp_path: Path) -> pa.RecordBatch:
    reader = store_reader(log_of_odd_messages(tmp_path / "store").root)
    (batch,) = (each for part in reader.partitions() for each in reader.read(part))
    return batch


def test_parts_add_up_in_any_order(batch: pa.RecordBatch) -> None:
    whole = sum_columns(column_hashes(batch))
    slices = [
        sum_columns(column_hashes(batch.slice(at, 13))) for at in range(0, batch.num_rows, 13)
    ]
    shuffled = batch.take(pa.array(np.random.default_rng(7).permutation(batch.num_rows)))
    total = slices[-1]
    for each in slices[:-1]:
        total = add_sums(total, each)

    assert total == whole == sum_columns(column_hashes(shuffled))
    assert compute_total(whole) == sum(whole) % (1 << 64)
    assert sum_columns(column_hashes(batch.slice(5, 0))) == (0,) * len(HASHED_COLUMNS)


def test_types_of_other_writers_do_not_matter(batch: pa.RecordBatch) -> None:
    tags = batch.column("tags").dictionary_encode()
    ids = batch.column("queueOffset").cast(pa.int32())
    changed = batch.set_column(batch.schema.get_field_index("tags"), "tags", tags)
    changed = changed.set_column(batch.schema.get_field_index("queueOffset"), "queueOffset", ids)

    assert sum_columns(column_hashes(changed)) == sum_columns(column_hashes(batch))


def test_values_that_change_places_change_the_sums(batch: pa.RecordBatch) -> None:
    order = np.arange(batch.num_rows)
    order[[3, 4]] = order[[4, 3]]
    was = dict(zip(HASHED_COLUMNS, sum_columns(column_hashes(batch)), strict=True))
    for name in ("tags", "keys", "properties", "physOffset", "msgId", "bornTimestamp"):
        at = batch.schema.get_field_index(name)
        changed = batch.set_column(at, name, batch.column(name).take(pa.array(order)))
        found = dict(zip(HASHED_COLUMNS, sum_columns(column_hashes(changed)), strict=True))
        assert [each for each in HASHED_COLUMNS if found[each] != was[each]] == [name]
