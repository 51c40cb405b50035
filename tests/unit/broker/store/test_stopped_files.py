"""What a clean stop left and the start does not find is named."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.record_journal import RecordJournal
from rockhopper.protocol.store.journal_records import encode_record
from tests.support.killed_store import copy_killed
from tests.support.open_stores import Stores, put

JOURNAL = "rockhopper/pop/00000000000000000000"
TABLE = "config/consumerOffset.json"
EPOCHS = "rockhopper/ha/epochs.json"


async def stop(stores: Stores) -> Path:
    """A store with a table and a journal that was stopped."""
    store = stores.open()
    put(store, b"one")
    journal = RecordJournal(stores.root / "rockhopper/pop", stores.root, what="notes")
    for _ in range(2):
        journal.append(encode_record(1, b"noted"))
    journal.close()
    (stores.root / "config").mkdir()
    (stores.root / TABLE).write_text('{"offsetTable":{}}')
    (stores.root / EPOCHS).parent.mkdir()
    (stores.root / EPOCHS).write_text('{"epochs":[[1,0]]}')
    await store.close()
    return stores.root


def named(stores: Stores, root: Path) -> list[str]:
    with capture_logs() as logs:
        stores.open(root)
    entries = [entry for entry in logs if "at the last stop" in entry["event"]]
    assert [entry["log_level"] for entry in entries] in ([], ["warning"])
    return [name for entry in entries for name in entry["files"]]


def cut_to(size_bytes: int) -> Any:
    return lambda path: path.write_bytes(path.read_bytes()[:size_bytes])


@pytest.mark.parametrize(
    ("name", "harm", "now"),
    [
        (JOURNAL, cut_to(0), "0 bytes"),
        (JOURNAL, cut_to(28), "28 bytes"),
        (JOURNAL, Path.unlink, "missing"),
        (TABLE, cut_to(0), "0 bytes"),
        (TABLE, Path.unlink, "missing"),
        (EPOCHS, Path.unlink, "missing"),
    ],
)
async def test_what_is_gone_is_named(stores: Stores, name: str, harm: Any, now: str) -> None:
    root = await stop(stores)
    size_bytes = (root / name).stat().st_size
    harm(root / name)
    assert named(stores, root) == [f"{name}: {now}, {size_bytes} bytes at the stop"]


async def test_what_is_there_is_not(stores: Stores) -> None:
    root = await stop(stores)
    (root / TABLE).write_text("{}")  # As RocketMQ, or an editor, may write it.
    (root / EPOCHS).write_text('{"epochs":[]}')  # As --leave-set does.
    assert named(stores, root) == []


async def test_behind_a_kill_it_says_nothing(stores: Stores, tmp_path: Path) -> None:
    root = await stop(stores)
    stores.open(root)
    killed = copy_killed(root, tmp_path / "killed")
    (killed / JOURNAL).unlink()
    assert named(stores, killed) == []


async def test_nor_where_another_release_has_stopped_since(stores: Stores) -> None:
    root = await stop(stores)
    (root / JOURNAL).unlink()
    note = root / "rockhopper/stopped-files.json"
    kept = note.read_bytes()
    store = stores.open(root)
    put(store, b"two")
    await store.close()
    note.write_bytes(kept)
    assert named(stores, root) == []


async def test_a_full_disk_does_not_keep_the_stop_from_being_clean(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_atomically = disk.write_atomically

    def fail(path: Path, data: bytes, backup: bytes | None = None) -> None:
        if path.name == "stopped-files.json":
            raise OSError("No space left on device")
        write_atomically(path, data, backup)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "write_atomically", fail)
        root = await stop(stores)
    assert not (root / "abort").exists()
    shutil.rmtree(root / "rockhopper/pop")
    assert named(stores, root) == []


@pytest.mark.parametrize("content", [b"", b"{}\n00000000\n", b"\xff\n\n", None])
async def test_a_damaged_note_says_nothing(stores: Stores, content: bytes | None) -> None:
    root = await stop(stores)
    (root / JOURNAL).unlink()
    note = root / "rockhopper/stopped-files.json"
    note.unlink() if content is None else note.write_bytes(content)
    assert named(stores, root) == []
