"""A backup goes on where it was, and holds what it copied."""

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rockhopper.broker.kernel.persistence import Tables
from rockhopper.broker.kernel.tables.table_journal import TableJournal
from rockhopper.broker.kernel.tables.topics import TopicConfig, TopicTable
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.settings.config_file import build_config
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.tools.dumping import DumpSelection, dump
from rockhopper.broker.tools.repair.backing_up import Backup
from rockhopper.broker.tools.store_view import StoreView
from rockhopper.protocol.store.table_changes import TableChange, fingerprint
from tests.support import open_stores, tool_stores
from tests.support.peers import Clock
from tests.support.rot import flip_bit, overwrite
from tests.support.tool_stores import run


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def live(tmp_path: Path, clock: Clock) -> Iterator[MessageStore]:
    """A store that is open in this process."""
    store = open_stores.open_store(tmp_path / "store", clock)
    tool_stores.fill(store, clock, 40)
    yield store
    open_stores.close(store)


def _back_up(root: Path, target: Path, *options: str) -> dict[str, object]:
    ended = run("backup", root, target, "--write", "--json", *options)
    assert ended.code == 0, ended.err
    return ended.objects[0]


def _restored(target: Path, root: Path, *options: object) -> list[dict[str, object]]:
    ended = run("restore", target, root, "--write", *options)
    assert ended.code == 0, ended.err
    assert tool_stores.checked(root).damages == []
    return list(dump(StoreView(root), DumpSelection()))


def test_damage_in_what_is_copied_is_told_and_the_point_is_whole(
    tmp_path: Path, live: MessageStore, clock: Clock
) -> None:
    root, target = tmp_path / "store", tmp_path / "backup"
    assert _back_up(root, target)["damagedRanges"] == 0
    tool_stores.fill(live, clock, 20, 40)
    for number, body in enumerate((b"body 43", b"body 57")):
        (path,) = (each for each in (root / "commitlog").iterdir() if body in each.read_bytes())
        flip_bit(path, path.read_bytes().index(body), number)
    ended = run("backup", root, target, "--write", "--json")
    assert (ended.code, ended.objects[0]["damagedRanges"]) == (1, 2)
    assert _back_up(root, target, "--verify")["damagedRanges"] == 0
    ended = run("restore", target, tmp_path / "new", "--write", "--json")
    assert (ended.code, ended.objects[0]["damagedRanges"]) == (1, 2)


def test_each_run_copies_only_what_is_new(tmp_path: Path, live: MessageStore, clock: Clock) -> None:
    root, target = tmp_path / "store", tmp_path / "backup"
    first = _back_up(root, target)
    tool_stores.fill(live, clock, 20, 40)
    second = _back_up(root, target, "--verify")
    assert first["newBytes"] != 0
    assert second["newBytes"] == live.log.written_offset - int(str(first["logEnd"]))
    assert second["wrong"] == []
    assert _back_up(root, target)["newBytes"] == 0
    bodies = [each["body"] for each in _restored(target, tmp_path / "new")]
    assert bodies == [f"body {number}" for number in range(60)]
    bodies = [each["body"] for each in _restored(target, tmp_path / "old", "--point", 1)]
    assert bodies == [f"body {number}" for number in range(40)]


def test_nothing_is_written_without_write(root: Path, tmp_path: Path) -> None:
    ended = run("backup", root, tmp_path / "backup")
    assert "Would copy" in ended.out
    assert not (tmp_path / "backup").exists()


@pytest.mark.parametrize("writes", [0, 1, 3, 5])
def test_a_run_that_was_killed_goes_on(
    root: Path, tmp_path: Path, writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "backup"
    count = 0

    def dying(path: Path, *args: object, **kwargs: object) -> None:
        nonlocal count
        count += 1
        if count > writes:
            path.with_name(path.name + ".tmp").write_bytes(b"half of it")
            raise Killed
        write_atomically(path, *args, **kwargs)  # type: ignore[arg-type]

    write_atomically = disk.write_atomically
    with monkeypatch.context() as patched:
        patched.setattr(disk, "write_atomically", dying)
        with pytest.raises(Killed):
            Backup(target).run_locked(StoreView(root), 1, lambda offset: None)
    _back_up(root, target, "--verify")
    assert _restored(target, tmp_path / "new") == list(dump(StoreView(root), DumpSelection()))


def test_what_retention_deletes_stays_unless_pruned(root: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    _back_up(root, target)
    everything = list(dump(StoreView(root), DumpSelection()))
    (root / "commitlog" / f"{0:020d}").unlink()
    _back_up(root, target)
    assert _restored(target, tmp_path / "new") == everything
    assert _back_up(root, target, "--prune")["pruned"] == 1
    left = _restored(target, tmp_path / "pruned")
    assert left == [each for each in everything if int(str(each["logOffset"])) >= 4096]


def test_a_log_whose_end_was_cut_off_begins_a_new_line(root: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    _back_up(root, target)
    former = list(dump(StoreView(root), DumpSelection()))
    store = open_stores.open_store(root, Clock(), cut_at=int(str(former[50]["logOffset"])))
    open_stores.put(store, b"another")
    open_stores.close(store)
    assert _back_up(root, target)["differsAt"] == 4096
    now = list(dump(StoreView(root), DumpSelection()))
    assert now[-1]["body"] == "another"
    assert _restored(target, tmp_path / "new") == now
    assert _restored(target, tmp_path / "former", "--point", 1) == former


def test_backups_of_other_stores_and_odd_places_are_refused(root: Path, tmp_path: Path) -> None:
    other = tool_stores.write(tmp_path / "other", 10, Clock(1_800_000_000_000))
    _back_up(root, tmp_path / "backup")
    assert "another store" in run("backup", other, tmp_path / "backup", "--write").err
    assert "is not a backup" in run("backup", root, other, "--write").err
    assert "inside the store" in run("backup", root, root / "backup", "--write").err
    assert "no backup in" in run("restore", other, tmp_path / "new").err


def test_another_store_is_refused_that_has_no_file_in_common(root: Path, tmp_path: Path) -> None:
    other, target = tool_stores.write(tmp_path / "other", 10, Clock(1_800_000_000_000)), "backup"
    _back_up(other, tmp_path / target)
    for base in (0, 4096):
        (root / "commitlog" / f"{base:020d}").unlink(missing_ok=True)
    assert StoreView(root).log.min_offset >= StoreView(other).log_end()
    for options in ((), ("--write",)):
        ended = run("backup", root, tmp_path / target, *options)
        assert (ended.code, "belongs to another store" in ended.err) == (1, True)
    assert len(Backup(tmp_path / target).manifest.points) == 1


def test_rot_in_a_backup_is_named(root: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    _back_up(root, target)
    flip_bit(target / "log" / f"{4096:020d}-1", 5)
    ended = run("backup", root, target, "--verify")
    assert ended.code == 1
    assert f"{4096:020d}-1 differs from what was copied" in ended.out
    ended = run("restore", target, tmp_path / "new", "--write")
    assert (ended.code, "differs from what was copied" in ended.err) == (1, True)
    overwrite(target / "log" / f"{4096:020d}-1", 0, b"")
    (target / "log" / f"{0:020d}-1").unlink()
    assert "0 bytes of this file" in run("backup", root, target, "--write").err


def test_a_full_disk_is_a_sentence(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/backup")

    with monkeypatch.context() as patched:
        patched.setattr(disk, "write_fully", full)
        ended = run("backup", root, tmp_path / "backup", "--write")
    assert ended.code == 1
    assert "more needed" in ended.err
    assert _back_up(root, tmp_path / "backup")["point"] == 1


@pytest.mark.parametrize("place", ["middle", "newest", "stray"])
def test_a_log_that_is_not_whole_is_refused(root: Path, tmp_path: Path, place: str) -> None:
    target = tmp_path / "backup"
    _back_up(root, target)
    everything = list(dump(StoreView(root), DumpSelection()))
    files = sorted((root / "commitlog").iterdir())
    stray = root / "commitlog" / f"{777:020d}"
    if place == "stray":
        stray.write_bytes(files[0].read_bytes())
    else:
        files[1 if place == "middle" else -1].unlink()
    told = str(stray) if place == "stray" else "is missing"
    for options in ((), ("--write",)):
        ended = run("backup", root, target, *options)
        assert (ended.code, told in ended.err, "store repair" in ended.err) == (1, True, True)
    assert len(Backup(target).manifest.points) == 1
    assert _restored(target, tmp_path / "new") == everything


def test_a_log_with_a_gap_comes_back_around_the_gap(root: Path, tmp_path: Path) -> None:
    gone = root / "commitlog" / f"{4096:020d}"
    data = gone.read_bytes()
    gone.unlink()
    target, new = tmp_path / "backup", tmp_path / "new"
    kept = list(dump(StoreView(root), DumpSelection()))
    assert {int(str(each["logOffset"])) // 4096 for each in kept} >= {0, 2}
    _back_up(root, target, "--incomplete")
    told = "the log from 4096 to 8192 is missing"
    assert told in run("restore", target, new).out
    ended = run("restore", target, new, "--write")
    assert (ended.code, told in ended.out) == (1, True)
    assert list(dump(StoreView(new), DumpSelection())) == kept
    gone.write_bytes(data)
    _back_up(root, target)
    assert _restored(target, tmp_path / "whole") == list(dump(StoreView(root), DumpSelection()))


@pytest.mark.parametrize("is_copy_sound", [True, False])
def test_a_table_that_cannot_be_read_is_named(
    root: Path, tmp_path: Path, is_copy_sound: bool
) -> None:
    table, saved = "config/consumerOffset.json", b'{"offsetTable":{"Topic1@g":{"0":1}}}'
    (root / "config").mkdir()
    (root / table).write_bytes(b"{")
    (root / f"{table}.bak").write_bytes(saved if is_copy_sound else b"{")
    target, new = tmp_path / "backup", tmp_path / "new"
    ended = run("backup", root, target, "--write")
    assert (ended.code, f"{table} cannot be read" in ended.out) == (not is_copy_sound, True)
    ended = run("restore", target, new, "--write")
    assert (ended.code, f"Left out: {table}" in ended.out) == ((not is_copy_sound,) * 2)
    assert (new / table).exists() == is_copy_sound
    assert list(dump(StoreView(new), DumpSelection())) == list(
        dump(StoreView(root), DumpSelection())
    )
    assert run("restore", target, tmp_path / "b", "--write", "--json").objects[0][
        "tablesLeftOut"
    ] == ([] if is_copy_sound else [table])
    if is_copy_sound:
        name, _ = Backup(target).manifest.points[0].tables[table]
        assert Backup(target).objects.get(name) == saved


def test_a_point_has_topics_with_what_changed_since_their_file_was_written(
    tmp_path: Path, live: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, target = tmp_path / "store", tmp_path / "backup"
    layout = StoreLayout(root)
    config = build_config({"storePathRootDir": str(root)})
    topics = TopicTable(layout.config / "topics.json", config)

    def journaled() -> None:
        topics.changes_journal = TableJournal(layout.table_changes(topics.path), layout.quarantine)
        topics.changes_journal.append(fingerprint(topics.path.read_bytes()), [change])

    change = TableChange("new", {"perm": 6}, topics.version.to_json())
    topics.put(TopicConfig("old"))
    topics.save()
    # A journal of an earlier file, which goes while the log is copied.
    journaled()
    copy_log = Backup._copy_log

    def meanwhile(*args: Any) -> None:
        topics.put(TopicConfig("newer"))
        topics.save()
        journaled()
        copy_log(*args)

    monkeypatch.setattr(Backup, "_copy_log", meanwhile)
    _back_up(root, target)
    monkeypatch.undo()
    _restored(target, tmp_path / "restored")
    tables = Tables(
        build_config({"storePathRootDir": str(tmp_path / "restored")}), BrokerClock(Clock())
    )
    tables.load()
    assert {"old", "newer", "new"} <= tables.topics.configs.keys()
