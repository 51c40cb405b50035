import multiprocessing
from pathlib import Path

import pytest

from rockhopper.broker.store.files.lock_file import StoreLock
from rockhopper.broker.tools.store_view import NoStoreError, StoreView, holder_of, load_config


def _hold(root: Path, held: "multiprocessing.synchronize.Event", done: object) -> None:
    with StoreLock(root, root / "lock", root / "abort"):
        held.set()
        done.wait()  # type: ignore[attr-defined]


def test_the_lock_of_another_process_is_seen_and_not_taken(root: Path) -> None:
    context = multiprocessing.get_context("spawn")
    held, done = context.Event(), context.Event()
    process = context.Process(target=_hold, args=(root, held, done))
    process.start()
    held.wait()
    view = StoreView(root)
    assert (view.is_live, view.holder) == (True, process.pid)
    assert f"process {process.pid}" in view.state()
    done.set()
    process.join()
    assert holder_of(root / "lock") is None
    assert StoreView(root).state() == "stopped cleanly"
    with StoreLock(root, root / "lock", root / "abort"):
        pass


def test_a_directory_without_a_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoStoreError, match="storePathRootDir"):
        StoreView(tmp_path)
    with pytest.raises(NoStoreError, match="is not a directory"):
        StoreView(tmp_path / "missing")


def test_the_stores_of_several_brokers_are_named(root: Path) -> None:
    root.rename(root.parent / "broker-a-1")
    (root.parent / "logs").mkdir()
    (root.parent / "broker-a-0" / "config").mkdir(parents=True)
    with pytest.raises(NoStoreError, match=r"'brokers': name one of them: broker-a-0, broker-a-1$"):
        StoreView(root.parent)


def test_the_configuration_may_name_several_directories(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("storePathCommitLog=/a,/b\nstorePathRootDir=/elsewhere\nmaxIndexNum=400\n")
    config, directories = load_config(tmp_path, path)
    assert directories == [Path("/a"), Path("/b")]
    assert config.store.root == tmp_path
    assert config.store.index_entry_count_max == 400


def test_the_log_is_found_where_the_store_says_it_is(root: Path) -> None:
    elsewhere = root.parent / "log"
    (root / "commitlog").rename(elsewhere)
    (root / "rockhopper" / "commit-log-directory").write_text(f"{elsewhere}\n")
    assert len([record for record, _ in StoreView(root).records()]) == 60


def test_files_that_retention_deletes_meanwhile_are_left_out(root: Path) -> None:
    view = StoreView(root)
    view.holder = 1
    first, second, *_ = [file.path for file in view.log.files]
    seen: list[int] = []
    for record, _ in view.records():
        if not seen:
            second.unlink()
            first.unlink()
        seen.append(record.offset)
    assert seen[0] == 0
    assert not [offset for offset in seen if 4096 <= offset < 8192]
    assert seen[-1] >= 8192
    assert view.holes == []
