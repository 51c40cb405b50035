"""A store comes back as it was, or as far as is wanted."""

from pathlib import Path

import pytest

from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.tools.dumping import DumpSelection, dump
from rockhopper.broker.tools.repair.backing_up import Backup
from rockhopper.broker.tools.repair.choosing import choose
from rockhopper.broker.tools.store_view import StoreView
from tests.support import apache_golden, open_stores, tool_stores
from tests.support.peers import Clock
from tests.support.tool_stores import checked, run


class Killed(BaseException):
    """The process ends here."""


def _dump(root: Path, config: Path | None = None) -> list[dict[str, object]]:
    return list(dump(StoreView(root, config), DumpSelection()))


@pytest.fixture
def backup(root: Path, tmp_path: Path) -> Path:
    """A backup of a store with offsets of a group."""
    path = root / "config" / "consumerOffset.json"
    path.parent.mkdir()
    path.write_text('{"offsetTable":{"Topic1@g":{0:8,1:1}}}')
    assert run("backup", root, tmp_path / "backup", "--write").code == 0
    return tmp_path / "backup"


@pytest.mark.parametrize("number", [1, 17, 41, 59])
def test_only_what_was_stored_before_a_time(
    root: Path, backup: Path, tmp_path: Path, number: int
) -> None:
    everything = _dump(root)
    new = tmp_path / "new"
    time_ms = everything[number]["storeTime"]
    assert run("restore", backup, new, "--to", time_ms, "--write").code == 0
    assert _dump(new) == everything[:number]
    assert checked(new).damages == []
    ends = {}
    for each in everything[:number]:
        ends[each["topic"], each["queue"]] = each["queueOffset"]
    store = open_stores.open_store(new, Clock())
    for topic, queue_id in (("Topic0", 0), ("Topic1", 0), ("Topic1", 1)):
        end = int(str(ends.get((topic, queue_id), -1))) + 1
        assert store.reading.queue_range(topic, queue_id)[1] == end
        assert open_stores.put(store, b"next", topic, queue_id).queue_offset == end
    open_stores.close(store)
    if number == 17:
        assert "0:2" in (new / "config" / "consumerOffset.json").read_text()


def test_points_are_listed_without_write(backup: Path, tmp_path: Path) -> None:
    ended = run("restore", backup, tmp_path / "new")
    assert "Would restore point 1" in ended.out
    value = run("restore", backup, tmp_path / "new", "--json").objects[0]
    assert (value["chosen"], len(value["points"])) == (1, 1)
    assert not (tmp_path / "new").exists()


def test_a_directory_that_holds_something_is_refused(
    root: Path, backup: Path, tmp_path: Path
) -> None:
    assert "is not empty" in run("restore", backup, root, "--write").err
    (tmp_path / "new").mkdir()
    assert run("restore", backup, tmp_path / "new", "--write").code == 0
    assert "is not empty" in run("restore", backup, tmp_path / "new", "--write").err


def test_a_restore_that_was_killed_begins_again(
    root: Path, backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dying(store: MessageStore) -> None:
        store.abandon()
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(MessageStore, "close", dying)
        with pytest.raises(Killed):
            run("restore", backup, tmp_path / "new", "--write")
    assert (tmp_path / "new" / "UNFINISHED").exists()
    for command in (("check",), ("show",), ("dump",), ("backup", tmp_path / "other", "--write")):
        ended = run(command[0], tmp_path / "new", *command[1:])
        assert (ended.code, "is incomplete" in ended.err) == (1, True)
    with pytest.raises(StoreError, match="is incomplete"):
        open_stores.open_store(tmp_path / "new")
    assert run("restore", backup, tmp_path / "new", "--write").code == 0
    assert not (tmp_path / "new" / "UNFINISHED").exists()
    assert _dump(tmp_path / "new") == _dump(root)


def test_queues_of_expired_messages_go_on_where_they_ended(tmp_path: Path) -> None:
    clock, root = Clock(), tmp_path / "store"
    store = open_stores.open_store(root, clock)
    open_stores.put(store, b"old", "Old")
    tool_stores.fill(store, clock, 60)
    open_stores.close(store)
    (root / "commitlog" / f"{0:020d}").unlink()
    assert run("backup", root, tmp_path / "backup", "--write").code == 0
    assert run("restore", tmp_path / "backup", tmp_path / "new", "--write").code == 0
    store = open_stores.open_store(tmp_path / "new", clock)
    assert open_stores.put(store, b"new", "Old").queue_offset == 1
    open_stores.close(store)


@pytest.mark.parametrize("name", ["batch", "killed"])
def test_stores_of_apaches_broker_too(name: str, tmp_path: Path) -> None:
    store = apache_golden.unpack(name, tmp_path)
    config = tmp_path / "broker.conf"
    config.write_text("".join(f"{key}={value}\n" for key, value in store.geometry.items()))
    target, new = tmp_path / "backup", tmp_path / "new"
    assert run("backup", store.path, target, "--write", "-c", config).code == 0
    assert run("restore", target, new, "--write").code == 0
    assert _dump(new) == _dump(store.path, config)
    assert checked(new).damages == []
    assert Backup(target).manifest.points[0].sizes[3:] == [64, 400]


def test_a_topic_that_was_deleted_comes_back(tmp_path: Path) -> None:
    clock, root, new = Clock(), tmp_path / "store", tmp_path / "new"
    store = open_stores.open_store(root, clock)
    open_stores.put(store, b"dear", "Dear")
    clock.advance(1000)
    store.opened.delete_topics(["Dear"], store.log.written_offset)
    open_stores.put(store, b"later", "Other")
    deleted_ms = clock()
    open_stores.close(store)
    assert run("backup", root, tmp_path / "backup", "--write").code == 0
    assert run("restore", tmp_path / "backup", new, "--to", deleted_ms - 1, "--write").code == 0
    assert StoreView(new).queues.ends() == {("Dear", 0): 1}
    assert run("restore", tmp_path / "backup", tmp_path / "all", "--write").code == 0
    assert StoreView(tmp_path / "all").queues.ends() == {("Other", 0): 1}


def test_tables_are_of_the_last_point_before_the_time(root: Path, tmp_path: Path) -> None:
    table = root / "config" / "delayOffset.json"
    table.parent.mkdir()
    backup = Backup(tmp_path / "backup")
    for number in (1, 2, 3):
        table.write_text(f'{{"offsetTable":{{1:{number}}}}}')
        backup.run_locked(StoreView(root), number * 1000, lambda offset: None)
    choice = choose(backup, None, 2500)
    assert (choice.tables.number, choice.log.number) == (2, 3)
    assert choose(backup, None, 500).tables.number == 1
    assert choose(backup, 2, None)[:2] == (backup.manifest.point(2),) * 2


def test_deliveries_behind_the_cut_are_not_believed(root: Path, tmp_path: Path) -> None:
    table = root / "config" / "delayOffset.json"
    table.parent.mkdir()
    table.write_text('{"offsetTable":{1:5}}')
    time_ms = _dump(root)[30]["storeTime"]
    assert run("backup", root, tmp_path / "backup", "--write").code == 0
    assert run("restore", tmp_path / "backup", tmp_path / "a", "--to", time_ms, "--write").code == 0
    assert not (tmp_path / "a" / "config" / "delayOffset.json").exists()
    assert run("restore", tmp_path / "backup", tmp_path / "b", "--write").code == 0
    assert (tmp_path / "b" / "config" / "delayOffset.json").exists()
