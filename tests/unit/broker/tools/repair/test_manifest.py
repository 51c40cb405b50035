from dataclasses import replace
from pathlib import Path

import pytest

from rockhopper.broker.store.files.errors import CorruptFileError, StoreError
from rockhopper.broker.tools.repair import manifest as manifests
from rockhopper.broker.tools.repair.manifest import BackupManifest, CopiedLogFile, Point
from tests.support.rot import flip_bit


@pytest.fixture
def saved(tmp_path: Path) -> BackupManifest:
    point = Point(1, 5, 1, 0, 100, 4, {"config/a": ["00", 2]}, "11", [4096, 0, 0, 0, 0])
    manifest = BackupManifest("/s", {"1": [CopiedLogFile(0, "0-1", 100, 7)]}, [point])
    manifest.save(tmp_path)
    return manifest


def test_it_comes_back_as_it_was(tmp_path: Path, saved: BackupManifest) -> None:
    assert manifests.load(tmp_path) == saved
    assert manifests.load(tmp_path / "other") is None
    assert saved.point(None) is saved.point(1)
    with pytest.raises(StoreError, match="no point 2; it has 1"):
        saved.point(2)


def test_a_damaged_one_gives_way_to_its_copy(tmp_path: Path, saved: BackupManifest) -> None:
    flip_bit(tmp_path / manifests.FILE_NAME, 20)
    assert manifests.load(tmp_path) == saved
    flip_bit(tmp_path / f"{manifests.FILE_NAME}.bak", 20)
    with pytest.raises(CorruptFileError, match="its copy are damaged"):
        manifests.load(tmp_path)


@pytest.mark.parametrize("path", ["../x", "/x", "config/../../x", "a//b", ""])
def test_no_name_in_it_leads_out_of_its_directory(
    tmp_path: Path, saved: BackupManifest, path: str
) -> None:
    point = saved.points[0]
    for points, segment in (
        ([replace(point, tables={path: ["00", 2]})], "0-1"),
        ([replace(point, tables={"config/a": [path, 2]})], "0-1"),
        ([replace(point, ends=path)], "0-1"),
        ([point], path),
    ):
        BackupManifest("/s", {"1": [CopiedLogFile(0, segment, 100, 7)]}, points).save(tmp_path)
        with pytest.raises(CorruptFileError, match="is not the"):
            manifests.load(tmp_path)


def test_a_backup_that_was_cut_off_has_no_point() -> None:
    with pytest.raises(StoreError, match="run it again"):
        BackupManifest("/s").point(None)
