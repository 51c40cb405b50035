"""A change of a large table costs what the change is, and survives what the file survives."""

import asyncio
import errno
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.kernel.persistence import Tables
from rockhopper.broker.kernel.tables import json_table
from rockhopper.broker.kernel.tables.checked_table import CheckedTable
from rockhopper.broker.kernel.tables.json_table import JsonTable
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroup
from rockhopper.broker.kernel.tables.table_journal import TableJournal
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.settings.config_file import build_config
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import CorruptFileError
from tests.support.crashing_disk import CrashingDisk, PowerCutError
from tests.support.peers import Clock
from tests.support.turns import until

MANY = 2000
ANY_TEXT = "x" * 100


def _table(root: Path) -> CheckedTable:
    table = CheckedTable(root / "values.json", now_ms=Clock())
    table.changes_journal = TableJournal(root / "changes", root / "quarantine")
    table.load()
    return table


class _CheckedValues(CheckedTable):
    refuses_lost_changes = True


def _large(root: Path) -> CheckedTable:
    """A table whose file is large."""
    table = _table(root)
    for number in range(MANY):
        table.set(f"entry-{number}", ANY_TEXT)
    table.save()
    return table


async def _saving(root: Path) -> CheckedTable:
    table = _large(root)
    table.start_saving()
    await table.saved()
    return table


def _killed(root: Path) -> CheckedTable:
    """What a process finds that begins after this one was killed."""
    copy = root.with_name(root.name + "-killed")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(root, copy)
    return _table(copy)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were written as a whole."""
    found: list[Path] = []
    write = disk.write_atomically

    def noting(path: Path, *rest: Any, **more: Any) -> None:
        found.append(path)
        write(path, *rest, **more)

    monkeypatch.setattr(json_table, "write_atomically", noting)
    return found


async def test_a_change_of_a_large_table_does_not_write_its_file(
    root: Path, writes: list[Path]
) -> None:
    table = await _saving(root)
    writes.clear()
    table.set("one", 1)
    await table.saved()
    table.set("one", 2)
    table.forget("entry-7")
    await table.saved()
    assert writes == []
    found = _killed(root)
    assert found.entries == table.entries
    assert found.version == table.version
    assert not found.is_saved


async def test_a_change_of_a_small_table_writes_its_file(root: Path, writes: list[Path]) -> None:
    table = _table(root)
    table.set("one", 1)
    table.start_saving()
    await table.saved()
    assert writes == [table.path]
    assert not (root / "changes").exists()


async def test_the_file_is_written_when_the_journal_is_as_long(
    root: Path, writes: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_table, "JOURNALED_FROM_BYTES", 1)
    table = await _saving(root)
    writes.clear()
    size_bytes = table.path.stat().st_size
    written = 0
    while not writes:
        table.set("one", "y" * 10_000)
        await table.saved()
        written += 20_000
        assert written < 2 * size_bytes
    assert list((root / "changes").iterdir()) == []
    assert _killed(root).entries == table.entries


async def test_the_file_is_written_after_some_time_and_at_the_end(
    root: Path, writes: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = await _saving(root)
    writes.clear()
    table.set("one", 1)
    await table.saved()
    table.fold_journal()
    await table.saved()
    assert writes == [table.path]
    table.fold_journal()
    assert table.is_saved
    monkeypatch.setattr(json_table, "REWRITE_AFTER_S", 0.0)
    table.set("one", 2)
    await table.saved()
    await until(lambda: len(writes) == 2)
    await table.saved()
    assert list((root / "changes").iterdir()) == []
    assert _killed(root).entries == table.entries


async def test_a_start_after_a_kill_writes_the_file(root: Path) -> None:
    table = await _saving(root)
    table.set("one", 1)
    await table.saved()
    found = _killed(root)
    found.start_saving()
    await found.saved()
    assert list((found.path.parent / "changes").iterdir()) == []
    assert _table(found.path.parent).entries == table.entries


async def test_changes_are_not_of_a_file_that_another_broker_wrote(root: Path) -> None:
    table = await _saving(root)
    before = table.path.read_bytes()
    table.set("one", 1)
    await table.saved()
    later = _large(root.with_name("other"))
    later.set("two", 2)
    later.save()
    shutil.copy(later.path, table.path)
    disk.backup_path(table.path).write_bytes(before)
    found = _killed(root)
    assert found.entry("two") == 2
    assert found.entry("one") is None


async def test_changes_count_on_top_of_a_file_that_was_edited(root: Path) -> None:
    table = _Plain(root)
    table.load()
    table.texts = {f"entry-{number}": ANY_TEXT for number in range(MANY)}
    table.save()
    table.start_saving()
    await table.saved()
    table.put("one", "1")
    await table.saved()
    edited = table.path.read_text().replace(f'"entry-3":"{ANY_TEXT}"', '"entry-3":"edited"')
    table.path.write_text(edited)
    found = _Plain(root)
    with capture_logs() as lines:
        found.load()
    assert (found.texts["entry-3"], found.texts["one"]) == ("edited", "1")
    assert any("differs from what was saved" in line["event"] for line in lines)


class _Plain(JsonTable):
    """Texts, without a checksum of their own."""

    def __init__(self, root: Path) -> None:
        super().__init__(root / "plain.json", now_ms=Clock())
        self.texts: dict[str, str] = {}
        self.changes_journal = TableJournal(root / "plain", root / "quarantine")

    def to_json(self) -> dict[str, Any]:
        return {"dataVersion": self.version.to_json(), "texts": self.texts.copy()}

    def from_json(self, document: dict[str, Any]) -> None:
        self.texts = document["texts"]

    def entry(self, name: str) -> Any:
        return self.texts.get(name)

    def _replay(self, name: str, value: Any) -> None:
        self.texts[name] = value

    def put(self, name: str, text: str) -> None:
        self.texts[name] = text
        self.version.advance(1)
        self.mark_changed(name)
        self.save_soon()


async def test_a_journal_that_takes_nothing_gives_way_to_the_file(
    root: Path, writes: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = await _saving(root)
    writes.clear()
    sync = os.fdatasync

    def failing(descriptor: int) -> None:
        if "changes" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EIO, "the disk fails")
        sync(descriptor)

    monkeypatch.setattr(os, "fdatasync", failing)
    table.set("one", 1)
    with pytest.raises(OSError, match="the disk fails"):
        await table.saved()
    await table.saved()
    table.stop_saving()
    assert writes == [table.path]
    assert _killed(root).entry("one") == 1


def test_what_was_saved_survives_a_power_cut_at_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_table, "JOURNALED_FROM_BYTES", 1)
    for syncs in range(40):
        root = tmp_path / f"store-{syncs}"
        table = _table(root)
        table.set("old", ANY_TEXT * 10)
        table.save()
        with monkeypatch.context() as patch:
            device = CrashingDisk(root, patch)
            device.syncs_before_cut = syncs
            saved = asyncio.run(_save_numbers(table))
            device.crash()
            device.close()
        found = _table(root).entries
        assert found["old"] == ANY_TEXT * 10
        assert {f"n{number}" for number in range(saved)} <= found.keys()
        if saved == 12:
            return
    raise AssertionError("it did not end")


async def _save_numbers(table: CheckedTable) -> int:
    """Save a change at a time, until the power is cut; how many were saved."""
    table.start_saving()
    for number in range(12):
        table.set(f"n{number}", ANY_TEXT)
        try:
            await table.saved()
        except PowerCutError:
            return number
    return 12


def _topic(tables: Tables, number: int) -> None:
    tables.topics.put(TopicConfig(f"topic-{number}", attributes={"message.type": "FIFO"}))


def _group(tables: Tables, number: int) -> None:
    group = SubscriptionGroup(f"group-{number}")
    group.retry_max_times = number
    tables.groups.put(group)
    tables.groups.forbid(f"group-{number}", "topic-1", readable=False)


def _user(tables: Tables, number: int) -> None:
    tables.users.take_entry(
        f"user-{number}",
        {"password": "secret-secret", "userType": "Normal", "userStatus": "enable"},
    )


def _rule(tables: Tables, number: int) -> None:
    entry = {"resource": f"Topic:t{number}", "actions": ["Pub"], "decision": "Allow"}
    tables.acls.take_entry(f"user-{number}", [{"policyType": "Custom", "entries": [entry]}])


def _topic_id(tables: Tables, number: int) -> None:
    tables.catalog.topic_ids.set(f"topic-{number}", [f"{number:016x}", number])


@pytest.mark.parametrize("change", [_topic, _group, _user, _rule, _topic_id])
async def test_tables_of_the_broker_come_back_from_file_and_journal(
    root: Path, change: Callable[[Tables, int], None], writes: list[Path]
) -> None:
    config = build_config({"storePathRootDir": str(root)})
    tables = Tables(config, BrokerClock(Clock()))
    tables.load()
    for number in range(MANY):
        change(tables, number)
    tables.start()
    await tables.saved()
    writes.clear()
    change(tables, MANY)
    await tables.saved()
    assert writes == []
    copy = root.with_name("killed")
    shutil.copytree(root, copy)
    again = Tables(build_config({"storePathRootDir": str(copy)}), BrokerClock(Clock()))
    again.load()
    for before, after in zip(tables.every, again.every, strict=True):
        if before is not tables.offsets:
            assert after.to_json() == before.to_json()
    for path in (copy / "rockhopper" / "tables").glob("users.json/*"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    await tables.close()
    assert [path for path in (root / "rockhopper" / "tables").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("damage", ["zeroed", "torn"])
async def test_a_table_of_rights_does_not_go_on_without_a_change_that_was_durable(
    root: Path, damage: str
) -> None:
    table = await _saving(root)
    table.set("entry-0", "shut")
    await table.saved()
    (path,) = (root / "changes").iterdir()
    data = path.read_bytes()
    path.write_bytes(bytes(len(data)) if damage == "zeroed" else data[: len(data) // 4])
    values = _CheckedValues(root / "values.json", now_ms=Clock())
    values.changes_journal = TableJournal(root / "changes", root / "quarantine")
    if damage == "torn":  # by a power cut: nobody was told that the door is shut
        values.load()
        assert values.entries["entry-0"] == ANY_TEXT
        return
    with pytest.raises(CorruptFileError, match="some are lost; to start"):
        JsonTable.load(values)  # a CheckedTable forgets what it held
    assert _table(root).entries["entry-0"] == ANY_TEXT
