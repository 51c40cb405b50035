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
