"""A store that is taken away under a running broker stops taking messages."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rockhopper.broker.settings.broker_config import FlushDiskType, StoreConfig
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files.errors import StoreError, StoreFailedError, StoreLockedError
from tests.support.open_stores import FILE_SIZE_BYTES, Stores, open_store, put
from tests.support.store_listeners import NotedFailures


def delete_lock(root: Path) -> None:
    (root / "lock").unlink()


def replace_lock(root: Path) -> None:
    (root / "new").write_bytes(b"lock")
    (root / "new").replace(root / "lock")


def delete_log(root: Path) -> None:
    shutil.rmtree(root / "commitlog")


def move_log(root: Path) -> None:
    (root / "commitlog").rename(root / "elsewhere")


def replace_log(root: Path) -> None:
    move_log(root)
    shutil.copytree(root / "elsewhere", root / "commitlog")


def delete_newest_file(root: Path) -> None:
    sorted((root / "commitlog").iterdir())[-1].unlink()


def cut_newest_file(root: Path) -> None:
    os.truncate(sorted((root / "commitlog").iterdir())[-1], FILE_SIZE_BYTES - 1)


def move_root(root: Path) -> None:
    root.rename(root.with_name("moved"))


@pytest.mark.parametrize(
    ("take_away", "named"),
    [
        (delete_lock, "lock was deleted"),
        (replace_lock, "lock was deleted or replaced"),
        (delete_log, "commitlog was deleted"),
        (move_log, "commitlog was deleted, moved"),
        (replace_log, "moved, replaced"),
        (delete_newest_file, "commit log in"),
        (cut_newest_file, "replaced or truncated"),
        (move_root, "lock was deleted"),
    ],
)
def test_what_is_taken_away_is_noticed(
    stores: Stores, take_away: Callable[[Path], None], named: str
) -> None:
    store = stores.open()
    failures = NotedFailures(store)
    put(store)
    store.look_after_files()
    assert store.is_writable
    take_away(stores.root)
    store.look_after_files()
    with pytest.raises(StoreFailedError, match=named):
        put(store)
    store.look_after_files()
    assert (len(failures.errors), store.is_lost) == (1, True)


def test_rolling_and_deleting_old_files_is_no_loss(stores: Stores) -> None:
    store = stores.open()
    for _ in range(8):
        put(store, bytes(FILE_SIZE_BYTES // 2))
        store.look_after_files()
    assert len(list((stores.root / "commitlog").iterdir())) > 3
    store.opened.commit_log.drop_files_before(store.log.written_offset)
    store.look_after_files()
    assert store.is_writable


def test_the_log_behind_a_symbolic_link_is_watched(stores: Stores, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real")
    store = stores.open(commit_log_directory=link)
    put(store)
    store.look_after_files()
    assert store.is_writable
    (tmp_path / "other").mkdir()
    link.unlink()
    link.symlink_to(tmp_path / "other")
    store.look_after_files()
    assert not store.is_writable


async def test_nothing_is_acknowledged_once_the_log_was_deleted(stores: Stores) -> None:
    store = await stores.start(flush_disk_type=FlushDiskType.SYNC)
    await store.safe_point.wait(put(store).end_offset)
    delete_log(stores.root)
    with pytest.raises(StoreError):
        await store.safe_point.wait(put(store).end_offset)
    assert isinstance(store.failure, StoreFailedError)
    await store.close()


def test_a_deleted_lock_file_lets_nobody_else_in(stores: Stores) -> None:
    stores.open()
    delete_lock(stores.root)
    with pytest.raises(StoreLockedError, match="in use by"):
        open_store(stores.root)


def test_two_stores_cannot_have_one_log(stores: Stores, tmp_path: Path) -> None:
    stores.open(commit_log_directory=tmp_path / "log")
    with pytest.raises(StoreLockedError, match=rf"{tmp_path}/log .*\(storePathCommitLog\)"):
        stores.open(tmp_path / "other", commit_log_directory=tmp_path / "log")


def test_a_store_that_was_let_go_can_be_opened_again(stores: Stores) -> None:
    stores.open()
    stores.close_all()
    layout = StoreLayout.from_config(StoreConfig(root=stores.root))
    store = open_store(stores.root)
    assert layout.lock.exists()
    store.look_after_files()
    assert store.is_writable
    stores.opened[stores.root] = store
