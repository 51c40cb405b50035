"""How audit and rebuild go through a log: what is given counts, else what is found."""

from itertools import pairwise
from pathlib import Path

import pytest

from rockhopper.pipeline.derived.geometry import find_geometry
from rockhopper.pipeline.jobs.dispatching import plan_dispatch
from rockhopper.pipeline.jobs.options import StoreOptions
from rockhopper.pipeline.store_source.directory import open_store
from tests.support.derived_stores import write_store

GEOMETRY = find_geometry(None, index_slot_count=16, index_entry_count_max=400)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("store"))


@pytest.mark.parametrize("has_tags", [True, False])
def test_what_is_said_of_tags_counts(root: Path, has_tags: bool) -> None:
    asked = StoreOptions(str(root), index_tags=has_tags)
    rules, _ = plan_dispatch(asked, root, open_store(str(root)), GEOMETRY)
    assert rules.has_tag_keys is has_tags


def test_else_the_index_tells_whether_tags_are_in_it(root: Path) -> None:
    rules, _ = plan_dispatch(StoreOptions(str(root)), root, open_store(str(root)), GEOMETRY)
    assert rules.has_tag_keys is False


def test_topics_that_are_named_have_batch_queues(root: Path) -> None:
    asked = StoreOptions(str(root), batch_topics=["Topic1"])
    rules, _ = plan_dispatch(asked, root, open_store(str(root)), GEOMETRY)
    assert rules.batch_topics == {"Topic1"}


def test_tasks_read_no_more_at_once_than_is_said(root: Path) -> None:
    store = open_store(str(root))
    asked = StoreOptions(str(root), split_size=4096)
    _, small = plan_dispatch(asked, root, store, GEOMETRY)
    _, usual = plan_dispatch(StoreOptions(str(root)), root, store, GEOMETRY)
    assert len(small) > len(usual)
    spans = [(piece.start, piece.end) for pieces in small for piece in pieces]
    assert spans[0][0] == store.start_offset
    assert all(end == start for (_, end), (start, _) in pairwise(spans))
