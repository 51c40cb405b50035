"""Index files that are to be built again: noted, moved aside at the next start, kept."""

import os
from pathlib import Path

import pytest

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.index.index import mark_for_rebuilding, move_marked_aside
from tests.support.crashing_disk import CrashingDisk, PowerCutError

NAMES = ["20260101000000000", "20260102000000000", "20260103000000000"]


@pytest.fixture
def layout(tmp_path: Path) -> StoreLayout:
    made = StoreLayout(tmp_path)
    made.index.mkdir(parents=True)
    for name in NAMES:
        (made.index / name).write_text(name)
    return made


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir()) if directory.exists() else []


def test_without_a_note_all_files_stay(layout: StoreLayout) -> None:
    move_marked_aside(layout)
    assert names(layout.index) == NAMES
    assert not layout.quarantine.exists()


@pytest.mark.parametrize("first", range(3))
def test_the_noted_file_goes_and_those_behind_it(layout: StoreLayout, first: int) -> None:
    mark_for_rebuilding(layout, NAMES[first])
    move_marked_aside(layout)
    assert names(layout.index) == NAMES[:first]
    assert names(layout.quarantine / "index") == NAMES[first:]
    assert not layout.index_to_rebuild.exists()


@pytest.mark.parametrize("order", [(0, 2), (2, 0), (1, 0)])
def test_of_several_notes_the_first_file_counts(layout: StoreLayout, order: list[int]) -> None:
    for number in order:
        mark_for_rebuilding(layout, NAMES[number])
    move_marked_aside(layout)
    assert names(layout.index) == []


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\xff\xfe"])
def test_a_note_that_cannot_be_read_is_one_on_all(layout: StoreLayout, content: bytes) -> None:
    layout.index_to_rebuild.parent.mkdir(parents=True, exist_ok=True)
    layout.index_to_rebuild.write_bytes(content)
    move_marked_aside(layout)
    assert names(layout.index) == []


def test_what_was_kept_before_is_not_overwritten(layout: StoreLayout) -> None:
    for content in ("first", "second", "third"):
        (layout.index / NAMES[2]).write_text(content)
        mark_for_rebuilding(layout, NAMES[2])
        move_marked_aside(layout)
    aside = layout.quarantine / "index"
    kept = {path.name: path.read_text() for path in aside.iterdir()}
    assert kept == {NAMES[2]: "first", f"{NAMES[2]}-1": "second", f"{NAMES[2]}-2": "third"}


def test_a_crash_on_the_way_leaves_an_index_without_its_end(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark_for_rebuilding(layout, NAMES[0])
    moved: list[Path] = []
    rename = os.rename

    def rename_once(source: Path, target: Path) -> None:
        if moved:
            raise OSError(5, "power cut")
        moved.append(source)
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", rename_once)
        with pytest.raises(OSError, match="power cut"):
            move_marked_aside(layout)
    assert names(layout.index) == NAMES[:2]
    move_marked_aside(layout)
    assert names(layout.index) == []
    assert names(layout.quarantine / "index") == NAMES


def test_a_power_cut_on_the_way_loses_no_file(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark_for_rebuilding(layout, NAMES[1])
    disk = CrashingDisk(layout.root, monkeypatch)
    is_cut, syncs = True, 0
    while is_cut:
        disk.cut_after(syncs)
        try:
            move_marked_aside(layout)
            is_cut = False
        except PowerCutError:
            syncs += 1
        disk.crash()
        found = [path.read_text() for path in layout.root.rglob("20*")]
        assert set(found) == set(NAMES)
        if is_cut:
            assert layout.index_to_rebuild.exists()
    assert syncs
    assert names(layout.index) == NAMES[:1]
    assert not layout.index_to_rebuild.exists()
    disk.close()
