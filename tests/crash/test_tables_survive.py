"""A power cut at any fsync of a table's save leaves the old table or the new one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.broker.kernel.tables.consumer_offsets import ConsumerOffsetTable
from tests.support.crashing_disk import CrashingDisk, PowerCutError

SYNCS_OF_ONE_SAVE_MAX = 8


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir()
    return tmp_path


@pytest.fixture
def disk(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CrashingDisk]:
    disk = CrashingDisk(root, monkeypatch)
    yield disk
    disk.close()


def offsets(root: Path) -> ConsumerOffsetTable:
    return ConsumerOffsetTable(root / "config" / "consumerOffset.json")


@pytest.mark.parametrize("syncs", range(SYNCS_OF_ONE_SAVE_MAX))
def test_power_cut_while_offsets_are_saved(root: Path, disk: CrashingDisk, syncs: int) -> None:
    table = offsets(root)
    for offset in (1, 2):
        table.commit("T", "G", 0, offset)
        table.save()
    disk.cut_after(syncs)
    table.commit("T", "G", 0, 3)
    is_saved = True
    try:
        table.save()
    except PowerCutError:
        is_saved = False
    disk.crash()
    again = offsets(root)
    again.load()
    assert again.get("T", "G", 0) in ((3,) if is_saved else (2, 3))


def test_power_cut_while_the_first_table_is_saved_leaves_none_or_all_of_it(
    root: Path, disk: CrashingDisk
) -> None:
    table = offsets(root)
    table.commit("T", "G", 0, 1)
    disk.cut_after(0)
    with pytest.raises(PowerCutError):
        table.save()
    disk.crash()
    again = offsets(root)
    again.load()
    assert again.get("T", "G", 0) is None
