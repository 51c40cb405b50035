"""Whether an index holds tags is seen from its entries."""

from pathlib import Path

import pytest

from rockhopper.pipeline.derived.geometry import Geometry
from rockhopper.pipeline.derived.tag_keys import has_tag_keys
from rockhopper.pipeline.store_source.directory import open_store
from tests.support.derived_files import write_index_file
from tests.support.log_entries import entries_of
from tests.support.written_logs import WrittenLog

GEOMETRY = Geometry(index_slot_count=16, index_entry_count_max=400)


def write_index(log: WrittenLog, name: str = "20251009083320000", *, with_tags: bool) -> Path:
    """The index of all that a log holds."""
    keys = entries_of(log, has_tag_keys=with_tags).keys()
    path = log.root / "index" / name
    path.parent.mkdir(exist_ok=True)
    write_index_file(path, keys["hash"], keys["position"], keys["ms"], 16, 400, 0)
    return path


def seen(root: Path | None, log: WrittenLog) -> bool:
    return has_tag_keys(root, open_store(str(log.root)), GEOMETRY)


@pytest.mark.parametrize("with_tags", [True, False])
def test_it_follows_from_the_entries(tmp_path: Path, with_tags: bool) -> None:
    log = WrittenLog(tmp_path).add(50)
    write_index(log, with_tags=with_tags)
    assert seen(tmp_path, log) is with_tags


def test_without_a_store_or_an_index_nobody_knows(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path).add(5)
    assert not seen(None, log)
    assert not seen(tmp_path, log)


def test_messages_without_tags_say_nothing(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path).add(5, properties={"KEYS": "k"})
    write_index(log, with_tags=True)
    assert not seen(tmp_path, log)


def test_files_that_cannot_be_read_are_passed_over(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path).add(50)
    path = write_index(log, "20251009083320002", with_tags=True)
    path.with_name("20251009083320000").write_bytes(b"cut off")
    assert seen(tmp_path, log)


def test_an_index_of_what_has_expired_says_nothing(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path, file_size_bytes=8192).add(100)
    write_index(log, with_tags=True)
    log.file_of(0).unlink()
    assert not seen(tmp_path, log)
