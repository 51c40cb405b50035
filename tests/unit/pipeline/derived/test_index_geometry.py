"""The geometry of index files is found out from the files alone, or is not known."""

import os
from pathlib import Path

import numpy as np
import pytest

from rockhopper.pipeline.derived.index_files import index_paths
from rockhopper.pipeline.derived.index_geometry import complete_geometry, search_geometry
from rockhopper.protocol.store.queue_layout import IndexGeometry
from tests.support import apache_golden, golden_stores
from tests.support.derived_files import write_index_file
from tests.support.rot import overwrite

DEFAULT = IndexGeometry(5_000_000, 20_000_000)


def write(path: Path, geometry: IndexGeometry, count: int, *, keys: int = 2) -> Path:
    """An index file with entries of *keys* for each message, from offset 0 of the log on."""
    random = np.random.default_rng(7)
    hashes = random.integers(1, 2**31 - 1, count, dtype=np.int64)
    positions = np.arange(count, dtype=np.int64) // keys * 230
    write_index_file(path, hashes, positions, 10**12 + positions, *geometry, 0)
    return path


@pytest.mark.parametrize("name", ["plain", "batch", "extended", "killed"])
def test_of_what_apache_wrote(name: str, tmp_path: Path) -> None:
    store = apache_golden.unpack(name, tmp_path).path

    assert search_geometry(index_paths(store / "index"), DEFAULT) == (64, 400)


@pytest.mark.parametrize(("name", "slots", "entries"), [("three_sessions", 16, 4000)])
def test_of_what_the_reference_wrote(name: str, slots: int, entries: int, tmp_path: Path) -> None:
    store = golden_stores.copy_golden_store(name, tmp_path / "store")

    assert search_geometry(index_paths(store / "index"), DEFAULT) == (slots, entries)


@pytest.mark.parametrize(
    ("geometry", "count", "keys"),
    [
        (IndexGeometry(1000, 5000), 4000, 2),
        (IndexGeometry(1000, 5000), 4999, 1),
        (IndexGeometry(7, 5000), 300, 3),
        (IndexGeometry(50_000, 200_000), 1, 1),
        (IndexGeometry(50_000, 200_000), 3, 3),
        (IndexGeometry(50_000, 200_000), 300, 60),
        (IndexGeometry(5_000_005, 19_999_999), 20_000, 2),
        (DEFAULT, 20_000, 2),
    ],
)
def test_of_any_file_with_entries(
    geometry: IndexGeometry, count: int, keys: int, tmp_path: Path
) -> None:
    path = write(tmp_path / "1", geometry, count, keys=keys)

    assert search_geometry([path], DEFAULT) == geometry


def test_a_file_of_another_length_does_not_decide(tmp_path: Path) -> None:
    geometry = IndexGeometry(1000, 5000)
    paths = [write(tmp_path / str(number), geometry, 400) for number in range(3)]
    os.truncate(paths[0], 60_000)

    assert search_geometry(paths, DEFAULT) == geometry


def test_damage_does_not_hide_it(tmp_path: Path) -> None:
    geometry = IndexGeometry(1000, 5000)
    path = write(tmp_path / "1", geometry, 400)
    overwrite(path, 40, bytes(400))
    overwrite(path, 16, (99).to_bytes(8, "big"))

    assert search_geometry([path], DEFAULT) == geometry


def test_an_entry_that_is_counted_and_whose_offset_is_not_noted_yet(tmp_path: Path) -> None:
    geometry = IndexGeometry(1000, 5000)
    path = write(tmp_path / "1", geometry, 400, keys=1)
    overwrite(path, 24, (398 * 230).to_bytes(8, "big"))

    assert search_geometry([path], DEFAULT) == geometry


@pytest.mark.parametrize("slots", [7, 1000])
@pytest.mark.parametrize("counted", [100, 300])
def test_entries_that_came_after_the_header_was_read(
    slots: int, counted: int, tmp_path: Path
) -> None:
    geometry = IndexGeometry(slots, 5000)
    path = write(tmp_path / "1", geometry, 400, keys=1)
    overwrite(path, 36, (counted + 1).to_bytes(4, "big"))
    overwrite(path, 24, ((counted - 1) * 230).to_bytes(8, "big"))

    assert search_geometry([path], DEFAULT) == geometry
    overwrite(path, 36, (counted + 2).to_bytes(4, "big"))
    assert search_geometry([path], DEFAULT) == geometry


def test_files_that_say_nothing(tmp_path: Path) -> None:
    geometry = IndexGeometry(1000, 5000)
    path = write(tmp_path / "1", geometry, 400)
    blank = tmp_path / "2"
    blank.write_bytes(bytes(geometry.file_size_bytes))
    short = tmp_path / "3"
    short.write_bytes(b"\0" * 10)
    overwrite(path, 24, (1 << 40).to_bytes(8, "big"))

    assert search_geometry([], DEFAULT) is None
    for one in (path, blank, short):
        assert search_geometry([one], DEFAULT) is None


def test_one_number_and_the_length_tell_the_other() -> None:
    size = IndexGeometry(64, 400).file_size_bytes

    assert complete_geometry(64, None, size) == complete_geometry(None, 400, size) == (64, 400)
    assert complete_geometry(63, None, size) is None
    assert complete_geometry(None, 4000, size) is None
