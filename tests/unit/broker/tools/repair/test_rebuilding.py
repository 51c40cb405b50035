"""Queues and index come back from the log, whatever a kill left."""

import os
import shutil
from pathlib import Path

import pytest

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import StoreLockedError
from rockhopper.broker.store.files.lock_file import StoreLock
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.tools.repair.rebuilding import rebuild
from rockhopper.broker.tools.store_view import StoreView
from tests.support import apache_golden, golden_stores, open_stores, tool_stores
from tests.support.peers import Clock
from tests.support.tool_stores import checked, run


class Killed(BaseException):
    """The process ends here."""


def _derived(root: Path) -> dict[str, bytes]:
    paths = [*(root / "consumequeue").rglob("*"), *(root / "batchconsumequeue").rglob("*")]
    return {str(path.relative_to(root)): path.read_bytes() for path in paths if path.is_file()}


def test_nothing_is_written_without_write(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "Topic1")
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    ended = run("rebuild", root)
    assert ended.code == 0
    assert "add --write" in ended.out
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


def test_a_queue_file_of_another_size_is_among_what_is_wrong(root: Path) -> None:
    os.truncate(root / "consumequeue" / "Topic1" / "1" / f"{0:020d}", 20 * 30)
    assert run("rebuild", root, "--json").objects[0]["wrong"] == {"queue": 1, "index": 0}


def test_queues_and_index_are_as_they_were(root: Path) -> None:
    before = _derived(root)
    shutil.rmtree(root / "consumequeue" / "Topic1")
    (root / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "0" / f"{0:020d}").write_bytes(bytes(600))
    (root / "consumequeue" / "Topic0" / "0" / f"{0:020d}").write_bytes(bytes(1000))
    ended = run("rebuild", root, "--write", "--json")
    assert ended.objects == [
        {
            "written": True,
            "records": 60,
            "queues": 7,
            "units": 60,
            "keys": 180,
            "damagedRanges": 0,
        }
    ]
    assert _derived(root) == before
    assert checked(root).is_sound
    assert not (root / "rockhopper" / "rebuild").exists()


@pytest.mark.parametrize("name", ["plain", "batch", "killed"])
def test_so_are_those_of_apaches_broker(name: str, tmp_path: Path) -> None:
    store = apache_golden.unpack(name, tmp_path)
    config = tmp_path / "broker.conf"
    config.write_text("".join(f"{key}={value}\n" for key, value in store.geometry.items()))
    before = _derived(store.path)
    rebuild(StoreView(store.path, config))
    assert _derived(store.path) == before
    assert checked(store.path, config).is_sound


@pytest.mark.parametrize(
    ("name", "entries"),
    [("basic30", 40), ("mix", 4000), ("crcprop", 40), ("prepared_rollback", 40)],
)
def test_so_are_those_of_the_reference(name: str, entries: int, tmp_path: Path) -> None:
    root = golden_stores.copy_golden_store(name, tmp_path / "store")
    config = tmp_path / "broker.conf"
    config.write_text(f"maxHashSlotNum=16\nmaxIndexNum={entries}\n")
    before, index = _derived(root), _index(root)
    rebuild(StoreView(root, config))
    assert _derived(root) == before
    assert _index(root) == index


def _index(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((root / "index").iterdir())]


def test_queues_of_expired_messages_go_on_where_they_ended(tmp_path: Path) -> None:
    clock = Clock()
    store = open_stores.open_store(tmp_path, clock)
    open_stores.put(store, b"old", "Old")
    tool_stores.fill(store, clock, 60)
    open_stores.close(store)
    (tmp_path / "commitlog" / f"{0:020d}").unlink()
    rebuild(StoreView(tmp_path))
    store = open_stores.open_store(tmp_path, clock)
    assert open_stores.put(store, b"new", "Old").queue_offset == 1
    open_stores.close(store)


def test_a_store_that_is_served_is_refused(root: Path) -> None:
    layout = StoreLayout(root)
    view = StoreView(root)
    with StoreLock(root, layout.lock, layout.abort), pytest.raises(StoreLockedError):
        rebuild(view)
    assert checked(root).is_sound


@pytest.mark.parametrize("step", range(3))
def test_a_kill_costs_nothing(root: Path, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    before = _derived(root)
    moves: list[Path] = []
    move = disk.move

    def dying(source: Path, target: Path) -> None:
        if len(moves) == step:
            raise Killed
        moves.append(source)
        move(source, target)

    def dying_close(store: MessageStore) -> None:
        store.abandon()
        raise Killed

    with monkeypatch.context() as patched:
        if step < 2:
            patched.setattr(disk, "move", dying)
        else:
            patched.setattr(MessageStore, "close", dying_close)
        with pytest.raises(Killed):
            rebuild(StoreView(root))
    rebuild(StoreView(root))
    assert _derived(root) == before
    assert checked(root).is_sound


@pytest.mark.parametrize("kind", ["stray", "short", "none", "zeros"])
def test_a_log_that_no_broker_opens_is_refused_and_nothing_moved(root: Path, kind: str) -> None:
    (root / "config").mkdir()
    first, *others = sorted((root / "commitlog").iterdir())
    if kind == "stray":
        first.with_name(f"{777:020d}").write_bytes(first.read_bytes())
    elif kind == "short":
        first.write_bytes(first.read_bytes()[:1000])
    else:
        for other in others:
            other.unlink()
        first.unlink() if kind == "none" else first.write_bytes(bytes(4096))
    before = {path: path.stat().st_ino for path in root.rglob("*")}
    for options in ((), ("--write",)):
        ended = run("rebuild", root, *options)
        assert (ended.code, "commitlog" in ended.err) == (1, True)
    assert {path: path.stat().st_ino for path in root.rglob("*")} == before


def test_what_would_be_made_does_not_hang_on_what_is_there(root: Path) -> None:
    shutil.rmtree(root / "index")
    assert "at most 60 queue units and 180 index entries" in run("rebuild", root).out
