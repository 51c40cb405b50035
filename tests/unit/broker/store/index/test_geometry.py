"""The store's index geometry: noted, and a setting that contradicts it refused."""

from pathlib import Path

import pytest

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files.errors import GeometryError
from rockhopper.broker.store.index.index import check_geometry, load_geometry, save_geometry
from rockhopper.protocol.store.queue_layout import GEOMETRY_FILE
from rockhopper.protocol.store.queue_layout import IndexGeometry as Geometry
from tests.support.golden_stores import copy_golden_store
from tests.support.rot import flipped

BASIC30 = Geometry(16, 40)


@pytest.fixture
def layout(tmp_path: Path) -> StoreLayout:
    """A store with one index file of 16 slots and 40 entries."""
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "20261120091843715").write_bytes(bytes(904))
    return StoreLayout(tmp_path)


def test_a_new_store_takes_what_is_configured(tmp_path: Path) -> None:
    layout = StoreLayout(tmp_path)
    check_geometry(layout, BASIC30)
    assert load_geometry(layout) == BASIC30


def test_a_store_without_a_note_is_known_by_the_length_of_its_files(layout: StoreLayout) -> None:
    with pytest.raises(GeometryError) as caught:
        check_geometry(layout, Geometry(5_000_000, 20_000_000))
    assert "is 904 bytes long" in str(caught.value)
    assert "maxHashSlotNum=5000000 and maxIndexNum=20000000 make 420000040" in str(caught.value)
    assert load_geometry(layout) is None
    check_geometry(layout, BASIC30)
    assert load_geometry(layout) == BASIC30


def test_another_pair_of_the_same_length_is_refused_once_it_was_noted(layout: StoreLayout) -> None:
    check_geometry(layout, BASIC30)
    with pytest.raises(GeometryError) as caught:
        check_geometry(layout, Geometry(11, 41))
    assert "created with maxHashSlotNum=16 and maxIndexNum=40" in str(caught.value)
    assert "the settings are maxHashSlotNum=11 and maxIndexNum=41" in str(caught.value)
    assert f"delete {layout.index}" in str(caught.value)
    assert load_geometry(layout) == BASIC30


def test_no_flipped_bit_of_the_note_stops_a_start(layout: StoreLayout) -> None:
    check_geometry(layout, BASIC30)
    path = layout.own / GEOMETRY_FILE
    content = path.read_bytes()
    for bit in range(len(content) * 8):
        damaged = flipped(content, bit)
        path.write_bytes(damaged)
        assert load_geometry(layout) in (None, BASIC30)
        check_geometry(layout, BASIC30)
    assert path.read_bytes() == content


def test_a_note_of_early_builds_counts_and_gets_a_checksum(layout: StoreLayout) -> None:
    save_geometry(layout, BASIC30)
    path = layout.own / GEOMETRY_FILE
    path.write_text('{"indexSlotCount": 16, "indexEntryCountMax": 40}')
    assert load_geometry(layout) == BASIC30
    check_geometry(layout, BASIC30)
    assert b"crc32" in path.read_bytes()


def test_without_index_files_another_geometry_takes_over(layout: StoreLayout) -> None:
    check_geometry(layout, BASIC30)
    (layout.index / "20261120091843715").unlink()
    check_geometry(layout, Geometry(11, 41))
    assert load_geometry(layout) == Geometry(11, 41)


def test_a_file_of_another_length_beside_the_note_is_not_the_settings_fault(
    layout: StoreLayout,
) -> None:
    check_geometry(layout, BASIC30)
    (layout.index / "20261120091843715").write_bytes(bytes(100))
    check_geometry(layout, BASIC30)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"indexSlotCount": 16}', b"\xff"])
def test_an_unreadable_note_is_written_anew(content: bytes, layout: StoreLayout) -> None:
    layout.own.mkdir()
    (layout.own / GEOMETRY_FILE).write_bytes(content)
    check_geometry(layout, BASIC30)
    assert load_geometry(layout) == BASIC30


def test_rocketmqs_stores_are_recognised(tmp_path: Path) -> None:
    layout = StoreLayout(copy_golden_store("three_sessions", tmp_path / "store"))
    with pytest.raises(GeometryError, match="80104 bytes"):
        check_geometry(layout, BASIC30)
    check_geometry(layout, Geometry(16, 4000))
