"""A log that is another store's is refused; oldest files that are gone are named."""

import asyncio
import shutil
from errno import ENOSPC
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.settings.broker_config import FlushDiskType
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import checked_line, disk
from rockhopper.broker.store.files.errors import CorruptFileError
from rockhopper.broker.store.files.mapped_file import MappedFile
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.recovering import log_identity
from tests.support.killed_store import copy_killed
from tests.support.open_stores import FILE_SIZE_BYTES, Stores, bodies, flush, put

BODIES = [b"%d" % number for number in range(120)]


def files_below(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def replace_log(root: Path, by: Path) -> None:
    shutil.rmtree(root / "commitlog")
    shutil.copytree(by, root / "commitlog")


def rot(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


@pytest.fixture
def store(stores: Stores) -> MessageStore:
    """A store with a log of several files, which knows its log from a clean stop."""
    store = stores.open(flush_disk_type=FlushDiskType.SYNC)
    for body in BODIES:
        put(store, body)
    flush(store)
    return stores.reopen_after_stop(flush_disk_type=FlushDiskType.SYNC)


@pytest.fixture
def killed(store: MessageStore, tmp_path: Path) -> Path:
    """What kill -9 leaves of it."""
    return copy_killed(store.opened.layout.root, tmp_path / "killed")


@pytest.mark.parametrize("count", [1, 40, 300])
def test_the_log_of_another_store_is_refused_before_anything_changes(
    stores: Stores, killed: Path, tmp_path: Path, count: int
) -> None:
    other = stores.open(tmp_path / "other")
    stores.clock.advance(1)
    for number in range(count):
        put(other, b"other %d" % number)
    flush(other)
    replace_log(killed, other.opened.layout.commit_log)
    before = files_below(killed)
    with pytest.raises(CorruptFileError, match="does not belong to the store"):
        stores.open(killed)
    assert files_below(killed) == before


def test_an_older_copy_of_the_log_is_the_stores_own(
    stores: Stores, store: MessageStore, killed: Path, tmp_path: Path
) -> None:
    count = put(store, b"newer").queue_offset
    flush(store)
    newer = shutil.copytree(store.opened.layout.root, tmp_path / "newer")
    replace_log(newer, killed / "commitlog")
    assert bodies(stores.open(newer))[:count] == BODIES


@pytest.mark.parametrize("position", [8, 40, 56])
def test_a_rotten_head_makes_no_stranger(stores: Stores, killed: Path, position: int) -> None:
    (killed / "commitlog" / f"{FILE_SIZE_BYTES:020d}").unlink()
    for path in (killed / "commitlog").iterdir():
        rot(path, position)
    assert stores.open(killed).log.written_offset >= FILE_SIZE_BYTES


def test_oldest_files_that_are_gone_are_named_once(stores: Stores, killed: Path) -> None:
    (killed / "commitlog" / f"{0:020d}").unlink()
    found = []
    for _ in range(2):
        with capture_logs() as lines:
            stores.open(killed)
        found += [
            (line["from_offset"], line["to_offset"])
            for line in lines
            if "the oldest commit log files are missing" in line["event"]
        ]
        stores.close_all()
    assert found == [(0, FILE_SIZE_BYTES)]


@pytest.mark.parametrize("is_disk_full", [False, True])
def test_files_that_expired_before_a_kill_are_not_missed(
    stores: Stores,
    store: MessageStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_disk_full: bool,
) -> None:
    stores.clock.advance(100 * 3_600_000)
    service = store.retention
    service.trusted_ms.written_ms = stores.clock()
    service.ask()
    log_directory = store.opened.layout.commit_log
    if is_disk_full:
        count = len(list(log_directory.iterdir()))
        save = disk.write_atomically

        def save_if_there_is_room(path: Path, data: bytes) -> None:
            if len(list(log_directory.iterdir())) == count:
                raise OSError(ENOSPC, "No space left on device")
            save(path, data)

        monkeypatch.setattr(disk, "write_atomically", save_if_there_is_room)
    assert asyncio.run(service.run_once()) > 0
    killed = copy_killed(store.opened.layout.root, tmp_path / "killed")
    with capture_logs() as lines:
        stores.open(killed)
    assert not [line for line in lines if line["log_level"] == "error"]


@pytest.mark.parametrize("damage", [b"", b"{}\n00000000\n", b"\xff\xfe"])
def test_without_a_sound_note_the_log_is_taken_as_it_is(
    stores: Stores, killed: Path, damage: bytes
) -> None:
    path = StoreLayout(killed).own / log_identity.IDENTITY_FILE
    whole = path.read_bytes()
    path.write_bytes(damage)
    assert bodies(stores.open(killed)) == BODIES
    assert path.read_bytes() == whole


def test_the_origin_stays_when_its_record_expires(stores: Stores, killed: Path) -> None:
    path = StoreLayout(killed).own / log_identity.IDENTITY_FILE
    whole = path.read_bytes()
    first = checked_line.decode(whole)["heads"]["0"]
    # A broker that has been up since before there were origins, or since its first message.
    without = {key: value for key, value in checked_line.decode(whole).items() if key != "origin"}
    path.write_bytes(checked_line.encode(without))
    oldest = killed / "commitlog" / f"{0:020d}"
    leaving = MappedFile(oldest, 0, FILE_SIZE_BYTES)
    log_identity.save_start(StoreLayout(killed), FILE_SIZE_BYTES, leaving)
    leaving.unmap()
    oldest.unlink()
    stores.open(killed)
    assert checked_line.decode(path.read_bytes())["origin"] == first
