"""Where the commit log is, and that a store whose log is not there refuses to start."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.settings.broker_config import FlushDiskType
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files.errors import CorruptFileError, StoreError
from rockhopper.broker.store.recovering import inventory
from rockhopper.broker.store.recovering.opening_checks import check_file_system, save_log_directory
from tests.support.golden_stores import copy_golden_store
from tests.support.killed_store import copy_killed
from tests.support.open_stores import Stores, bodies, close, flush, put
from tests.support.store_directories import queue_files

BODIES = [b"%d" % number for number in range(30)]


def fill(stores: Stores, **fields: Any) -> None:
    store = stores.open(**fields)
    for body in BODIES:
        put(store, body)
    flush(store)


def files_below(root: Path) -> dict[Path, bytes]:
    return {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("spelling", ["absolute", "relative", "symlink"])
def test_the_log_is_where_the_setting_says(
    monkeypatch: pytest.MonkeyPatch, stores: Stores, tmp_path: Path, spelling: str
) -> None:
    monkeypatch.chdir(tmp_path)
    elsewhere = tmp_path / "fast" / "log"
    given = {"absolute": elsewhere, "relative": Path("fast/log"), "symlink": tmp_path / "link"}
    if spelling == "symlink":
        elsewhere.mkdir(parents=True)
        given["symlink"].symlink_to(elsewhere)
    fill(stores, commit_log_directory=given[spelling])
    assert sorted(path.name for path in elsewhere.iterdir())[0] == "0" * 20
    assert not (stores.root / "commitlog").exists()
    again = stores.reopen_after_stop(commit_log_directory=given[spelling])
    assert bodies(again) == BODIES
    assert put(again).queue_offset == len(BODIES)


def test_a_log_that_moved_with_its_setting_is_the_same_store(
    stores: Stores, tmp_path: Path
) -> None:
    fill(stores)
    stores.close_all()
    shutil.move(stores.root / "commitlog", tmp_path / "fast")
    store = stores.open(commit_log_directory=tmp_path / "fast")
    assert bodies(store) == BODIES


def test_two_logs_of_one_store_are_refused(stores: Stores, tmp_path: Path) -> None:
    fill(stores)
    stores.close_all()
    with pytest.raises(StoreError, match=r"Rockhopper before 0\.2\.0 ignored the setting"):
        stores.open(commit_log_directory=tmp_path / "fast")
    assert bodies(stores.open()) == BODIES


@pytest.mark.parametrize("place", ["", "index", "consumequeue/TopicA", "config", "rockhopper/x"])
def test_the_log_is_not_put_among_other_files(stores: Stores, place: str) -> None:
    with pytest.raises(StoreError, match="its own directory"):
        stores.open(commit_log_directory=stores.root / place)


def remove_log(root: Path) -> None:
    shutil.rmtree(root / "commitlog")


def empty_log_directory(root: Path) -> None:
    for path in (root / "commitlog").iterdir():
        path.unlink()


def zero_log(root: Path) -> None:
    for path in (root / "commitlog").iterdir():
        path.write_bytes(bytes(path.stat().st_size))


LOSSES = [remove_log, empty_log_directory, zero_log]


@pytest.mark.parametrize("lose", LOSSES)
@pytest.mark.parametrize("flush_type", FlushDiskType)
def test_a_log_that_is_gone_after_a_kill_on_the_first_run_is_refused(
    stores: Stores, tmp_path: Path, lose: Callable[[Path], None], flush_type: FlushDiskType
) -> None:
    store = stores.open(flush_disk_type=flush_type)
    for body in BODIES:
        put(store, body)
    flush(store)
    store.flush_service.derived.save_checkpoint()
    check_refused(stores, copy_killed(stores.root, tmp_path / "killed"), lose)


@pytest.mark.parametrize("lose", LOSSES)
def test_a_log_that_is_gone_after_a_stop_is_refused(
    stores: Stores, lose: Callable[[Path], None]
) -> None:
    fill(stores)
    stores.close_all()
    check_refused(stores, stores.root, lose)


@pytest.mark.parametrize("lose", [remove_log, empty_log_directory])
def test_units_alone_prove_that_there_was_a_log(
    stores: Stores, tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    put(stores.open())  # Killed before anything was flushed.
    check_refused(stores, copy_killed(stores.root, tmp_path / "killed"), lose)


@pytest.mark.parametrize("lose", LOSSES)
@pytest.mark.parametrize("name", ["basic30", "mix", "three_sessions"])
def test_an_apache_store_without_its_log_is_refused(
    stores: Stores, tmp_path: Path, name: str, lose: Callable[[Path], None]
) -> None:
    check_refused(stores, copy_golden_store(name, tmp_path / "store"), lose)


def test_an_apache_store_with_its_log_elsewhere_opens(stores: Stores, tmp_path: Path) -> None:
    root = copy_golden_store("basic30", tmp_path / "store")
    before = queue_files(root)
    shutil.move(root / "commitlog", tmp_path / "fast")
    fast = tmp_path / "fast"
    store = stores.open(root, commit_log_directory=fast, index_entry_count_max=40)
    assert (
        store.reading.queue_range("TopicA", 0) == store.reading.queue_range("TopicA", 1) == (0, 15)
    )
    assert queue_files(root) == before


def check_refused(stores: Stores, root: Path, lose: Callable[[Path], None]) -> None:
    lose(root)
    before = queue_files(root) | files_below(root / "index")
    with pytest.raises(CorruptFileError) as caught:
        stores.open(root)
    for word in ("commitlog", "mounted", "storePathCommitLog", f"move {root} away"):
        assert word in str(caught.value)
    assert queue_files(root) | files_below(root / "index") == before


def test_zeros_that_were_never_flushed_are_no_lost_log(stores: Stores, tmp_path: Path) -> None:
    put(stores.open())
    killed = copy_killed(stores.root, tmp_path / "killed")
    zero_log(killed)
    assert bodies(stores.open(killed)) == []


def test_a_refusal_names_where_the_log_was_before(stores: Stores, tmp_path: Path) -> None:
    fill(stores, commit_log_directory=tmp_path / "fast")
    stores.close_all()
    with pytest.raises(CorruptFileError, match=f"was in {tmp_path / 'fast'} before"):
        stores.open()


def test_a_refusal_leaves_a_clean_stop_clean(stores: Stores) -> None:
    fill(stores)
    stores.close_all()
    shutil.move(stores.root / "commitlog", stores.root.parent / "aside")
    with pytest.raises(CorruptFileError):
        stores.open()
    assert not (stores.root / "abort").exists()
    shutil.move(stores.root.parent / "aside", stores.root / "commitlog")
    assert bodies(stores.open()) == BODIES


def test_the_first_file_is_durable_before_a_unit_is_written(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr("rockhopper.broker.store.files.disk.sync_directory", synced.append)
    stores.open()
    assert stores.root / "commitlog" in synced
    assert [path.name for path in (stores.root / "commitlog").iterdir()] == ["0" * 20]


def test_tools_are_told_where_the_log_is(tmp_path: Path) -> None:
    note = tmp_path / "store" / "rockhopper" / "commit-log-directory"
    (tmp_path / "store").mkdir()
    save_log_directory(StoreLayout(tmp_path / "store", tmp_path / "fast"))
    assert note.read_text() == f"{tmp_path / 'fast'}\n"
    save_log_directory(StoreLayout(tmp_path / "store"))
    assert not note.exists()


def test_an_inventory_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    layout = StoreLayout(tmp_path)
    noted = inventory.Inventory(10, None, {("T", 0): 1}, (), is_sync=True)
    inventory.save(layout, noted)
    assert inventory.load(layout) == noted


def test_a_store_in_the_making_is_refused_untouched(stores: Stores) -> None:
    fill(stores)
    stores.close_all()
    StoreLayout(stores.root).unfinished.touch()
    before = files_below(stores.root)
    with pytest.raises(StoreError, match="Run that again to its end, or remove the directory"):
        stores.open()
    assert files_below(stores.root) == before
    StoreLayout(stores.root).unfinished.unlink()
    assert bodies(stores.open()) == BODIES


def test_a_new_store_is_made_with_a_warning_and_a_store_that_is_there_without(
    stores: Stores,
) -> None:
    with capture_logs() as lines:
        store = stores.open()
    assert [line["event"] for line in lines if line["log_level"] == "warning"] == [
        "creating a new, empty store: if a store should be here, stop the broker and mount its disk"
    ]
    close(store)
    with capture_logs() as lines:
        stores.open(must_exist=True)
    assert [line for line in lines if line["log_level"] == "warning"] == []


def test_a_store_that_must_exist_is_not_made(stores: Stores, tmp_path: Path) -> None:
    before = files_below(tmp_path)
    with pytest.raises(StoreError, match=r"there is no store in .*storeMustExist=true: mount"):
        stores.open(must_exist=True)
    assert files_below(tmp_path) == before


@pytest.mark.parametrize("has_unnamed_files", [True, False])
def test_trying_a_file_system_leaves_nothing_behind(
    has_unnamed_files: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, opened = os.open, []

    def open_file(path: Any, flags: int, *mode: int, **others: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            opened.append(path)
            if not has_unnamed_files:
                raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return real(path, flags, *mode, **others)

    monkeypatch.setattr(os, "open", open_file)
    # A kill may have left one, and process ids come again.
    (tmp_path / f".tried-{os.getpid()}").write_bytes(b"left")
    check_file_system(tmp_path)
    assert opened == [tmp_path]
    assert has_unnamed_files or not list(tmp_path.iterdir())


def test_a_directory_that_takes_no_files_is_the_systems_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        check_file_system(tmp_path / "missing")
