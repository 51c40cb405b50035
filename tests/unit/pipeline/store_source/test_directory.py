"""A store whose commit log lies elsewhere (storePathCommitLog), read by its root."""

import shutil
from pathlib import Path

import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.store_source.directory import find_commit_log, open_store
from tests.support.open_stores import Stores, put
from tests.support.written_logs import WrittenLog, read_rows


@pytest.fixture
def apart(tmp_path: Path) -> Path:
    """The root of a store that a broker with storePathCommitLog has written."""
    stores = Stores(tmp_path)
    store = stores.open(commit_log_directory=tmp_path / "fast" / "log")
    for number in range(3):
        put(store, b"%d" % number)
    stores.close_all()
    return stores.root


def test_the_root_leads_to_the_log(apart: Path, tmp_path: Path) -> None:
    assert find_commit_log(str(apart)) == (apart, tmp_path / "fast" / "log")
    assert [row["body"] for row in read_rows(apart)] == [b"0", b"1", b"2"]


def test_a_log_that_is_not_mounted_is_named(apart: Path, tmp_path: Path) -> None:
    shutil.move(tmp_path / "fast", tmp_path / "moved")
    with pytest.raises(PipelineError, match=rf"is in {tmp_path / 'fast' / 'log'} \(storePath"):
        open_store(str(apart))
    moved = tmp_path / "moved" / "log"
    assert [row["body"] for row in read_rows(apart, {"commitLog": moved})] == [b"0", b"1", b"2"]


def test_a_store_that_does_not_say_where_its_log_is_needs_the_option(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "fast").add(3)
    root = tmp_path / "store"
    (root / "consumequeue" / "topic-0" / "0").mkdir(parents=True)
    with pytest.raises(PipelineError, match=r"without its commit log.* the option commitLog"):
        open_store(str(root))
    options = {"commitLog": str(log.commit_log)}
    assert [row["body"] for row in read_rows(root, options)] == [b"body 0", b"body 1", b"body 2"]
    (root / "commitlog").symlink_to(log.commit_log)
    assert len(read_rows(root)) == 3


def test_an_option_that_names_nothing_is_refused(apart: Path, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="set the option commitLog to where"):
        open_store(str(apart), str(tmp_path / "nothing"))


@pytest.mark.parametrize(
    ("made", "asked", "problem"),
    [
        ("", "missing", "there is no directory"),
        ("file", "file", "is a file"),
        ("inside/commitlog/", "", "inside is one"),
        ("", "s3://bucket/store", "mount it on the workers"),
    ],
)
def test_what_is_no_store_is_refused_with_what_to_set(
    tmp_path: Path, made: str, asked: str, problem: str
) -> None:
    if made.endswith("/"):
        (tmp_path / made).mkdir(parents=True)
    elif made:
        (tmp_path / made).touch()
    with pytest.raises(PipelineError, match=problem):
        open_store(asked if "://" in asked else str(tmp_path / asked))


def test_a_log_without_its_root_is_read_by_its_own_name(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path).add(3)
    assert find_commit_log(str(log.commit_log)) == (None, log.commit_log)
    assert find_commit_log(f"file://{log.commit_log}") == (None, log.commit_log)
    found = open_store(str(log.commit_log))
    assert (found.is_live, found.start_offset, found.end_offset) == (False, 0, 65_536)


def test_files_that_are_no_part_of_the_log_are_named_and_empty_ones_left_out(
    tmp_path: Path,
) -> None:
    log = WrittenLog(tmp_path).add(1)
    (log.commit_log / "notes.txt").touch()
    log.file_of(65_536).touch()
    found = open_store(str(log.root))
    assert (found.foreign_files, len(found.segments)) == (("notes.txt",), 1)
    assert found.segments[0].starts_with_record
