"""OffsetJournal: commits between two saves survive, and only with the file they belong to."""

import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.kernel.tables.consumer_offsets import ConsumerOffsetTable
from rockhopper.broker.kernel.tables.offset_journal import (
    Change,
    OffsetJournal,
    decode_changes,
    encode_changes,
)
from tests.support.peers import Clock
from tests.support.raw_peer import until
from tests.support.rot import flipped

FIRST, SECOND = f"{1:020d}.records", f"{2:020d}.records"


def table(root: Path) -> ConsumerOffsetTable:
    return ConsumerOffsetTable(
        root / "config" / "consumerOffset.json",
        now_ms=Clock(),
        journal=OffsetJournal(root / "offsets", root / "quarantine"),
    )


def begun(root: Path) -> ConsumerOffsetTable:
    offsets = table(root)
    offsets.load()
    offsets.start_saving()
    return offsets


def flush(offsets: ConsumerOffsetTable) -> None:
    assert offsets.journal is not None
    offsets.journal.flush()


async def test_commits_that_no_save_has_seen_are_there_after_a_crash(tmp_path: Path) -> None:
    crashed = begun(tmp_path)
    crashed.commit("T", "G", 0, 5)
    crashed.commit("T", "G", 0, 6)
    crashed.commit("T", "G", 1, 7)
    flush(crashed)
    found = table(tmp_path)
    assert found.load()
    assert found.queues("T", "G") == {0: 6, 1: 7}
    assert not found.is_saved


async def test_commits_are_gathered_for_a_moment_only(tmp_path: Path) -> None:
    crashed = begun(tmp_path)
    crashed.commit("T", "G", 0, 5)
    await until(lambda: b"set" in (tmp_path / "offsets" / FIRST).read_bytes())


async def test_a_save_takes_the_journal_with_it_and_later_commits_begin_another(
    tmp_path: Path,
) -> None:
    crashed = begun(tmp_path)
    crashed.commit("T", "G", 0, 5)
    flush(crashed)
    await crashed.saved()
    await saved_again(crashed)
    await saved_again(crashed)
    names = sorted(path.name for path in (tmp_path / "offsets").iterdir())
    assert names == [f"{number:020d}.records" for number in (4,)]
    crashed.commit("T", "G", 0, 8)
    flush(crashed)
    found = table(tmp_path)
    found.load()
    assert found.get("T", "G", 0) == 8


async def saved_again(offsets: ConsumerOffsetTable) -> None:
    offsets.mark_changed()
    offsets.version.advance(0)
    await offsets.saved()


@pytest.mark.parametrize("damaged", [b'{"offsetTable":{"T@G":{0:9}}}', b"{", b""])
async def test_a_damaged_file_gives_way_to_its_backup_and_no_commit_is_forgotten(
    tmp_path: Path, damaged: bytes
) -> None:
    crashed = begun(tmp_path)
    await saved_again(crashed)
    crashed.commit("T", "G", 0, 5)
    flush(crashed)
    await saved_again(crashed)
    crashed.commit("T", "G", 1, 7)
    flush(crashed)
    await saved_again(crashed)
    crashed.commit("T", "G", 2, 8)
    flush(crashed)
    crashed.path.write_bytes(damaged)
    with capture_logs() as lines:
        found = begun(tmp_path)
    assert found.queues("T", "G") == {0: 5, 1: 7, 2: 8}
    assert {line["log_level"] for line in lines} == {"warning", "info"}
    await found.saved()
    assert begun(tmp_path).queues("T", "G") == {0: 5, 1: 7, 2: 8}


async def test_what_differs_after_a_crash_is_named(tmp_path: Path) -> None:
    crashed = begun(tmp_path)
    crashed.commit("T", "G", 0, 500)
    await crashed.saved()
    crashed.path.write_bytes(crashed.path.read_bytes().replace(b"0:500", b"0:580"))
    with capture_logs() as lines:
        found = table(tmp_path)
        found.load()
    assert found.get("T", "G", 0) == 500
    assert "offsetTable.T@G.0: 580, saved as 500" in lines[0]["reason"]


async def test_an_edit_after_a_clean_stop_counts_and_is_named(tmp_path: Path) -> None:
    offsets = begun(tmp_path)
    offsets.commit("T", "G", 0, 500)
    offsets.commit("T", "G", 1, 7)
    await offsets.saved()
    offsets.close_journal()
    offsets.path.write_bytes(offsets.path.read_bytes().replace(b"0:500", b"0:400"))
    with capture_logs() as lines:
        found = begun(tmp_path)
    assert found.queues("T", "G") == {0: 400, 1: 7}
    (line,) = lines
    assert line["different"] == ["offsetTable.T@G.0: 400, saved as 500"]
    await found.saved()
    assert begun(tmp_path).queues("T", "G") == {0: 400, 1: 7}


async def test_a_file_that_rocketmq_saved_once_counts_alone(tmp_path: Path) -> None:
    crashed = begun(tmp_path)
    await saved_again(crashed)
    crashed.commit("T", "G", 0, 50)
    await saved_again(crashed)
    backup = crashed.path.with_name("consumerOffset.json.bak")
    backup.write_bytes(crashed.path.read_bytes())
    crashed.path.write_text('{"offsetTable":{"T@G":{0:70}}}')
    assert begun(tmp_path).get("T", "G", 0) == 70


async def test_a_crash_between_journal_and_file_counts_both_ways(tmp_path: Path) -> None:
    crashed = begun(tmp_path)
    crashed.commit("T", "G", 0, 5)
    await crashed.saved()
    old_file = crashed.path.read_bytes()
    crashed.commit("T", "G", 0, 6)
    flush(crashed)
    journal = max((tmp_path / "offsets").iterdir())
    kept = journal.read_bytes()
    await crashed.saved()
    # The file was about to be replaced, and was not: old file, old journal and the new one.
    crashed.path.write_bytes(old_file)
    journal.write_bytes(kept)
    found = table(tmp_path)
    found.load()
    assert found.get("T", "G", 0) == 6


async def test_a_file_that_another_broker_wrote_counts_alone(tmp_path: Path) -> None:
    crashed = begun(tmp_path)
    crashed.commit("T", "G", 0, 50)
    flush(crashed)
    crashed.path.parent.mkdir(exist_ok=True)
    crashed.path.write_text('{"offsetTable":{"T@G":{0:7}}}')
    found = table(tmp_path)
    found.load()
    assert found.get("T", "G", 0) == 7


@pytest.mark.parametrize("torn", ["set T@G 0 9", "set T@G 0\n", "\0\0\0\n", "set T@G x 9\n"])
async def test_a_torn_line_of_early_builds_ends_the_reading_and_is_named(
    tmp_path: Path, torn: str
) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "1").write_text(f"file -\nset T@G 0 5\n{torn}")
    found = table(tmp_path)
    with capture_logs() as logs:
        found.load()
    assert found.get("T", "G", 0) == 5
    assert [entry["line"] for entry in logs if entry["log_level"] == "error"] == [2]
    found.start_saving()
    await found.saved()
    assert sorted(path.name for path in (tmp_path / "offsets").iterdir()) == [SECOND]


async def test_any_flipped_bit_is_mended_and_any_cut_is_named(tmp_path: Path) -> None:
    crashed = begun(tmp_path)
    crashed.commit("T", "G", 0, 5)
    flush(crashed)
    crashed.commit("T", "G", 0, 6)
    crashed.commit("T", "G", 1, 7)
    flush(crashed)
    path = tmp_path / "offsets" / FIRST
    data = path.read_bytes()
    for bit in range(len(data) * 8):
        damaged = flipped(data, bit)
        path.write_bytes(damaged)
        found = table(tmp_path)
        found.load()
        assert found.queues("T", "G") == {0: 6, 1: 7}, bit
    for size_bytes in range(len(data)):
        path.write_bytes(data[:size_bytes])
        found = table(tmp_path)
        found.load()
        assert found.queues("T", "G") in ({}, {0: 5}, {0: 6, 1: 7}), size_bytes
    path.write_bytes(data + b"torn")
    found = table(tmp_path)
    found.load()
    with capture_logs() as logs:
        found.start_saving()
    assert [(entry["what"], entry["file"]) for entry in logs] == [("committed offsets", str(path))]
    assert [kept.name for kept in (tmp_path / "quarantine").iterdir()] == [f"offsets-{FIRST}"]


async def test_a_short_write_loses_nothing_of_what_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed = begun(tmp_path)
    crashed.commit("T", "G", 0, 1)
    real = os.pwrite
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda d, data, at: real(d, bytes(data)[:7], at))
        patch.setattr(os, "write", lambda d, data: real(d, data[:7], os.fstat(d).st_size))
        flush(crashed)
    for number in range(4):
        crashed.commit("T", "G", number, 10)
        flush(crashed)
    found = table(tmp_path)
    found.load()
    assert found.queues("T", "G") == {0: 10, 1: 10, 2: 10, 3: 10}


async def test_what_a_full_disk_refused_is_noted_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed = begun(tmp_path)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        crashed.commit("T", "G", 0, 1)
        crashed.commit("U", "G", 0, 1)
        flush(crashed)
        crashed.delete_topic("T")
        crashed.commit("T", "G", 1, 2)
        flush(crashed)
    flush(crashed)
    found = table(tmp_path)
    found.load()
    assert (found.queues("T", "G"), found.queues("U", "G")) == ({1: 2}, {0: 1})


async def test_what_is_deleted_stays_deleted_and_resets_stay(tmp_path: Path) -> None:
    crashed = begun(tmp_path)
    crashed.commit("T", "G", 0, 5)
    crashed.commit("U", "G", 0, 5)
    crashed.delete_topic("T")
    crashed.reset("U", "G", 0, 1)
    crashed.copy_group("G", "H", "U")
    flush(crashed)
    found = table(tmp_path)
    found.load()
    assert [(topic, group, queues) for topic, group, queues in found.entries()] == [
        ("U", "G", {0: 1}),
        ("U", "H", {0: 1}),
    ]


async def test_a_clean_end_leaves_no_journal(tmp_path: Path) -> None:
    offsets = begun(tmp_path)
    offsets.commit("T", "G", 0, 5)
    await offsets.saved()
    offsets.close_journal()
    assert list((tmp_path / "offsets").iterdir()) == []
    offsets.commit("T", "G", 0, 6)


async def test_a_copy_takes_the_place_of_what_the_group_had(tmp_path: Path) -> None:
    """Also after a crash, when only the journal tells."""
    offsets = begun(tmp_path)
    offsets.commit("T", "old", 0, 5)
    offsets.commit("T", "new", 0, 9)
    offsets.commit("T", "new", 2, 7)
    offsets.copy_group("old", "new", "T")
    assert offsets.queues("T", "new") == {0: 5}
    flush(offsets)
    again = table(tmp_path)
    again.load()
    assert again.queues("T", "new") == {0: 5}


def test_changes_travel_as_lines() -> None:
    changes = [Change("orders@billing", 3, 7), Change("orders@other", -1, 0)]
    assert encode_changes(changes) == b"set orders@billing 3 7\ndrop orders@other\n"
    assert decode_changes(encode_changes(changes) + b"nonsense\n") == changes
