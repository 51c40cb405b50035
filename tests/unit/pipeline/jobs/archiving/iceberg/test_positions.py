"""Where a table's position is found, and that it comes back as it was."""

import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.iceberg.positions import (
    AncestorSearch,
    Snapshot,
    Witness,
    decode,
    encode,
    find_newest,
    is_ancestor,
)
from rockhopper.pipeline.jobs.archiving.manifest import Manifest, Reached


def chain(*positions: str | None) -> dict[int, Snapshot]:
    """Snapshots 1, 2, …, each the parent of the next."""
    return {n: Snapshot(n, n - 1 or None, text) for n, text in enumerate(positions, 1)}


def manifest(queues: int) -> Manifest:
    positions = {"orders": {"broker-a": {str(n): n * 1000 for n in range(queues)}}}
    ids = {"orders": {"broker-a": "an id"}}
    return Manifest(3, 7, {"kind": "network"}, ("body",), None, reached=Reached(positions, ids))


def test_it_is_that_of_the_nearest_ancestor_that_has_one() -> None:
    snapshots = chain("first", "second", None, None)

    assert find_newest(snapshots, 4) == AncestorSearch("second")
    assert find_newest(snapshots, 1) == AncestorSearch("first")


def test_a_rollback_takes_it_back_also_if_others_commit_then() -> None:
    snapshots = chain("first", "second")
    snapshots[3] = Snapshot(3, 1)

    assert find_newest(snapshots, 3) == AncestorSearch("first")


def test_a_walk_that_ends_at_an_expired_snapshot_says_so() -> None:
    snapshots = chain("first", None, None)
    del snapshots[1]

    assert find_newest(snapshots, 3) == AncestorSearch(is_cut=True)
    assert find_newest(chain(None), 1) == AncestorSearch()
    assert find_newest({}, None) == AncestorSearch()


def test_ancestors() -> None:
    snapshots = chain(None, None, None)
    snapshots[4] = Snapshot(4, 1)

    assert is_ancestor(snapshots, 1, 3)
    assert is_ancestor(snapshots, 3, 3)
    assert not is_ancestor(snapshots, 2, 4)
    assert not is_ancestor(snapshots, 9, 3)


@pytest.mark.parametrize("queues", [1, 4000])
def test_a_position_comes_back_and_stays_small(queues: int) -> None:
    text = encode(manifest(queues))

    assert decode(text, "lake.db.orders") == manifest(queues)
    assert text.startswith("zlib:") == (queues > 1)
    assert len(text) < 40_000


@pytest.mark.parametrize("text", ["{}", "zlib:eA==", "zlib:_", '{"format": 4}'])
def test_a_damaged_one_is_refused(text: str) -> None:
    with pytest.raises(PipelineError, match=r"rockhopper.position of lake.db.orders is damaged"):
        decode(text, "lake.db.orders")


def test_a_witness_comes_back() -> None:
    witness = Witness("orders", "broker-a", 3, 17)

    assert Witness.from_json(witness.to_json()) == witness
