"""OffsetJournal: commits between two saves survive, and only with the file they belong to."""

from pathlib import Path

import pytest

from broker.consumer_offsets import ConsumerOffsetTable
from broker.offset_journal import OffsetJournal
from tests.support.peers import Clock
from tests.support.raw_peer import until


def table(root: Path) -> ConsumerOffsetTable:
    return ConsumerOffsetTable(
        root / "config" / "consumerOffset.json",
        now_ms=Clock(),
        journal=OffsetJournal(root / "offsets"),
    )


def begun(root: Path) -> ConsumerOffsetTable:
    offsets = table(root)
    offsets.load()
    offsets.start_saving()
    return offsets


def flush(offsets: ConsumerOffsetTable) -> None:
    assert offsets._journal is not None
    offsets._journal.flush()


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
    await until(lambda: b"set" in (tmp_path / "offsets" / "1").read_bytes())


async def test_a_save_takes_the_journal_with_it_and_later_commits_begin_another(
    tmp_path: Path,
) -> None:
    crashed = begun(tmp_path)
    crashed.commit("T", "G", 0, 5)
    flush(crashed)
    await crashed.saved()
    assert [path.name for path in (tmp_path / "offsets").iterdir()] == ["2"]
    crashed.commit("T", "G", 0, 8)
    flush(crashed)
    found = table(tmp_path)
    found.load()
    assert found.get("T", "G", 0) == 8


async def test_a_crash_between_journal_and_file_counts_both_ways(tmp_path: Path) -> None:
    crashed = begun(tmp_path)
    crashed.commit("T", "G", 0, 5)
    await crashed.saved()
    old_file = crashed.path.read_bytes()
    crashed.commit("T", "G", 0, 6)
    flush(crashed)
    (journal,) = (tmp_path / "offsets").iterdir()
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
async def test_a_torn_line_ends_the_reading(tmp_path: Path, torn: str) -> None:
    crashed = begun(tmp_path)
    crashed.commit("T", "G", 0, 5)
    flush(crashed)
    with (tmp_path / "offsets" / "1").open("a") as file:
        file.write(torn)
    found = table(tmp_path)
    found.load()
    assert found.get("T", "G", 0) == 5


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
