"""JsonTable: what loading does with missing and damaged files, and when saving writes."""

import asyncio
import errno
import json
import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest
import structlog

from rockhopper.broker.kernel.state_channels import Channel, StateChannels
from rockhopper.broker.kernel.tables import json_table
from rockhopper.broker.kernel.tables.json_table import JsonObject, JsonTable, TableVersion
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import CorruptFileError, TooManyOpenFilesError
from tests.support.held_call import HeldCall
from tests.support.noting_writer import NotingWriter
from tests.support.rot import flipped

GOOD = '{"dataVersion":{"counter":3,"stateVersion":0,"timestamp":5},"values":{0:"a"}}'
OLDER = '{"values":{"0":"older"}}'


class Values(JsonTable):
    """Queue id -> text."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.values: dict[str, str] = {}

    def to_json(self) -> JsonObject:
        return {"dataVersion": self.version.to_json(), "values": dict(self.values)}

    def from_json(self, document: JsonObject) -> None:
        values = document.get("values")
        if not isinstance(values, dict):
            raise ValueError("it has no values")
        self.values = values

    def put(self, value: str) -> None:
        self.values = {"0": value}
        self.mark_changed()
        self.save_soon()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "values.json"


def write(path: Path, *, main: str | None = None, backup: str | None = None) -> Values:
    path.parent.mkdir(parents=True)
    if main is not None:
        path.write_text(main)
    if backup is not None:
        path.with_name("values.json.bak").write_text(backup)
    return Values(path)


def test_an_empty_file_is_an_empty_table_and_said(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")
    with structlog.testing.capture_logs() as lines:
        assert not Values(path).load()
    assert [line["event"] for line in lines] == ["a table's file is empty"]


def test_nothing_there_is_an_empty_table(path: Path) -> None:
    assert Values(path).load() is False


def test_bare_and_quoted_keys_are_read_and_the_version_is_taken(path: Path) -> None:
    table = write(path, main=GOOD)
    assert table.load() is True
    assert table.values == {"0": "a"}
    assert table.version == TableVersion(3, 5)


@pytest.mark.parametrize("main", [None, "", " \n", "{", '{"values":1}', "[]", "\x00\x00"])
def test_a_file_that_cannot_be_read_gives_way_to_its_backup(path: Path, main: str | None) -> None:
    table = write(path, main=main, backup=OLDER)
    assert table.load() is True
    assert table.values == {"0": "older"}


def test_loading_writes_nothing(path: Path) -> None:
    write(path, main="{", backup=OLDER).load()
    assert sorted(entry.name for entry in path.parent.iterdir()) == [
        "values.json",
        "values.json.bak",
    ]


@pytest.mark.parametrize(
    ("main", "backup"), [("{", "{"), ("{", None), ("{", ""), (None, "{"), ('{"values":1}', "[]")]
)
def test_damage_without_a_good_backup_is_refused_with_what_to_do(
    path: Path, main: str | None, backup: str | None
) -> None:
    table = write(path, main=main, backup=backup)
    table.without = "values begin at 0"
    with pytest.raises(CorruptFileError) as refused:
        table.load()
    said = str(refused.value)
    if backup is None:
        assert "has no backup yet" in said
        assert "move it away to start with an empty table: values begin at 0" in said
    else:
        assert "move both away to start with an empty table: values begin at 0" in said


def test_a_damaged_file_is_kept_aside_and_the_good_backup_survives_the_next_save(
    path: Path,
) -> None:
    table = write(path, main="{damaged", backup=OLDER)
    table.load()
    assert not table.is_saved
    table.save()
    assert path.with_name("values.json.damaged").read_text() == "{damaged"
    assert '"older"' in path.with_name("values.json.bak").read_text()
    again = Values(path)
    again.load()
    assert again.values == {"0": "older"}


@pytest.fixture
def saved(path: Path) -> Path:
    """Saved twice by us, the last time with the value "b"."""
    table = Values(path)
    for value in ("a", "b"):
        table.values = {"0": value}
        table.save()
    return path


def loaded(path: Path) -> tuple[Values, list[MutableMapping[str, Any]]]:
    with structlog.testing.capture_logs() as lines:
        table = Values(path)
        table.load()
    return table, lines


def test_a_file_as_it_was_saved_is_taken_in_silence_and_not_saved_again(saved: Path) -> None:
    table, lines = loaded(saved)
    assert (table.values, lines, table.is_saved) == ({"0": "b"}, [], True)


def test_no_flipped_bit_of_file_or_backup_is_silent(saved: Path) -> None:
    for damaged in (saved, saved.with_name("values.json.bak")):
        good = damaged.read_bytes()
        for bit in range(0, len(good) * 8, 7):
            damaged.write_bytes(flipped(good, bit))
            table, lines = loaded(saved)
            assert {line["log_level"] for line in lines} == {"warning"}, bit
            assert str(saved) in lines[0]["file"]
            assert table.altered_count == 1, bit
            assert not table.is_saved
        damaged.write_bytes(good)


def test_an_edited_file_counts_and_what_differs_is_named_and_kept(saved: Path) -> None:
    saved.write_bytes(saved.read_bytes().replace(b'"b"', b'"edited"'))
    table, (line,) = loaded(saved)
    assert table.values == {"0": "edited"}
    assert "differs from what was saved" in line["event"]
    assert line["file"] == str(saved)
    assert line["different"] == ['values.0: "edited", saved as "b"']
    table.save()
    assert b'"b"' in saved.with_name("values.json.saved").read_bytes()
    assert loaded(saved)[1] == []


def test_a_bound_holds_for_what_is_named(saved: Path) -> None:
    many = {str(number): "x" for number in range(1000)}
    saved.write_text(json.dumps({"values": many}))
    _, (line,) = loaded(saved)
    assert len(line["different"]) == json_table.DIFFERENCES_NAMED_MAX + 1
    assert line["different"][-1].startswith("and 9")


def test_a_crash_between_backup_and_file_is_no_rot(saved: Path) -> None:
    before = saved.read_bytes()
    table, _ = loaded(saved)
    table.values = {"0": "c"}
    table.save()
    saved.write_bytes(before)
    table, lines = loaded(saved)
    assert (table.values, lines) == ({"0": "b"}, [])
    assert not table.is_saved


def test_what_rocketmq_saved_since_counts_in_silence(saved: Path) -> None:
    backup = saved.with_name("values.json.bak")
    saved.replace(backup)
    saved.write_text(GOOD)
    table, lines = loaded(saved)
    assert (table.values, lines) == ({"0": "a"}, [])
    assert not table.is_saved


def test_a_damaged_file_gives_way_to_exactly_what_was_saved(saved: Path) -> None:
    saved.write_bytes(saved.read_bytes()[:-3])
    table, _ = loaded(saved)
    assert table.values == {"0": "b"}


@pytest.mark.parametrize("name", ["values.json", "values.json.bak"])
@pytest.mark.parametrize("damage", [b"", b"{}", None])
async def test_the_scrub_names_and_rewrites_what_was_altered(
    saved: Path, name: str, damage: bytes | None
) -> None:
    table, _ = loaded(saved)
    table.start_saving()
    good = saved.read_bytes()
    damaged = saved.with_name(name)
    if damage is None:
        damaged.unlink()
    else:
        damaged.write_bytes(damage)
    with structlog.testing.capture_logs() as lines:
        await table.scrub()
        await table.saved()
    assert [line["file"] for line in lines] == [str(damaged)]
    assert table.altered_count == 1
    assert saved.read_bytes() == good
    assert loaded(saved)[1] == []


async def test_the_scrub_names_what_differs(saved: Path) -> None:
    table, _ = loaded(saved)
    table.start_saving()
    saved.write_bytes(saved.read_bytes().replace(b'"b"', b'"c"'))
    with structlog.testing.capture_logs() as lines:
        await table.scrub()
    assert lines[0]["different"] == ['values.0: "c", saved as "b"']
    await table.saved()


async def test_a_scrub_that_is_cancelled_waits_for_its_thread(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, _ = loaded(saved)
    table.start_saving()
    held = HeldCall()
    monkeypatch.setattr(table, "_find_altered", held)
    scrubbing = asyncio.ensure_future(table.scrub())

    async def cancel() -> None:
        scrubbing.cancel()
        await asyncio.gather(scrubbing, return_exceptions=True)

    assert await held.is_awaited_by(cancel())


async def test_the_scrub_is_content_with_what_is_as_saved(saved: Path) -> None:
    table, _ = loaded(saved)
    table.start_saving()
    table.put("c")
    await table.saved()
    with structlog.testing.capture_logs() as lines:
        await table.scrub()
    assert (lines, table.is_saved) == ([], True)


async def test_without_a_free_descriptor_the_scrub_takes_nothing_for_altered(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, _ = loaded(saved)
    table.start_saving()

    def fail(_path: Path) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch, structlog.testing.capture_logs() as lines:
        patch.setattr(Path, "read_bytes", fail)
        with pytest.raises(TooManyOpenFilesError):
            await table.scrub()
    assert (lines, table.altered_count, table.is_saved) == ([], 0, True)


async def test_the_scrub_writes_nothing_into_a_store_that_was_taken_away(saved: Path) -> None:
    table, _ = loaded(saved)
    table.start_saving()
    table.stop_saving()
    saved.write_bytes(b"another's")
    await table.scrub()
    await table.saved()
    assert saved.read_bytes() == b"another's"


async def test_nothing_is_written_before_saving_starts(path: Path) -> None:
    table = Values(path)
    table.put("a")
    await table.saved()
    assert not path.exists()
    table.start_saving()
    await table.saved()
    assert path.exists()


async def test_changes_during_a_write_share_the_next_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[bytes] = []
    real = disk.write_atomically

    def counting(path: Path, data: bytes, backup: bytes | None = None) -> None:
        writes.append(data)
        real(path, data, backup)

    monkeypatch.setattr(json_table, "write_atomically", counting)
    table = Values(path)
    table.start_saving()
    for number in range(100):
        table.put(str(number))
    await table.saved()
    assert len(writes) <= 2
    assert b'"99"' in writes[-1]


async def test_saved_waits_for_a_change_made_while_a_write_runs(path: Path) -> None:
    table = Values(path)
    table.start_saving()
    table.put("first")
    await asyncio.sleep(0)
    table.put("second")
    await table.saved()
    assert '"second"' in path.read_text()


async def test_a_write_that_fails_is_raised_kept_and_made_good(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes, backup: bytes | None = None) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    table = Values(path)
    table.start_saving()
    with monkeypatch.context() as patched:
        patched.setattr(json_table, "write_atomically", full)
        table.put("a")
        with pytest.raises(OSError, match="No space left"):
            await table.saved()
        assert table.save_failure is not None
    await table.saved()
    assert table.save_failure is None
    assert '"a"' in path.read_text()


def test_a_version_counts_changes() -> None:
    version = TableVersion(1, 10)
    version.advance(20)
    assert version == TableVersion(2, 20)
    assert version != TableVersion(2, 21)
    assert TableVersion.from_json({"counter": 2, "timestamp": 20}) == version
    assert TableVersion.from_json("nonsense") == TableVersion()


async def test_saved_waits_for_what_else_must_confirm(path: Path) -> None:
    table = Values(path)
    asked: list[bool] = []

    class Writer(NotingWriter):
        async def wait_until_confirmed(self) -> None:
            asked.append(table.is_saved)

    channels = StateChannels()
    channels.writer = Writer()
    table.channel = channels.table_channel(table, Channel.CONFIRMED)
    table.start_saving()
    table.put("a")
    await table.saved()
    assert asked == [True]
