"""Whatever is damaged is named by its place, and nothing else is."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.broker.tools.checking import check
from rockhopper.broker.tools.findings import Findings
from rockhopper.broker.tools.store_view import StoreView
from rockhopper.protocol.store.record_head import (
    BODY_CRC_AT,
    BORN_TIME_AT,
    FLAG_AT,
    HEAD_SIZE_BYTES,
    LOG_OFFSET_AT,
    MAGIC_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
)
from tests.support import apache_golden, golden_stores, open_stores, tool_stores
from tests.support.killed_store import copy_killed
from tests.support.peers import Clock
from tests.support.rot import flip_bit
from tests.support.tool_stores import checked, run

FLIPS = 60


def test_sound_stores_are_sound(root: Path) -> None:
    findings = Findings(root)
    looked_at = check(StoreView(root), findings, lambda offset: None)
    assert findings.damages == []
    assert (looked_at.record_count, looked_at.unit_count) == (60, 60)
    assert looked_at.entry_count == 180


def test_what_is_in_rocksdb_is_named_with_the_way_out(root: Path) -> None:
    (root / "consumequeue" / "CURRENT").write_bytes(b"MANIFEST-000005\n")
    (damage,) = checked(root).damages
    assert (damage.kind, damage.path) == ("file", "consumequeue")
    assert "the queues of this store in RocksDB" in damage.what
    assert "ha follow" in damage.remedy


@pytest.mark.parametrize("name", ["plain", "batch", "extended", "killed"])
def test_stores_of_apaches_broker_are_sound(name: str, tmp_path: Path) -> None:
    store = apache_golden.unpack(name, tmp_path)
    config = tmp_path / "broker.conf"
    config.write_text("".join(f"{key}={value}\n" for key, value in store.geometry.items()))
    findings = checked(store.path, config)
    assert findings.damages == []
    assert not any("passed over" in note for note in findings.notes)


@pytest.mark.parametrize("name", ["mix", "timer", "prepared_rollback", "crcprop"])
def test_stores_of_the_reference_are_sound(name: str, tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    count = 4000 if name in ("mix", "timer") else 40
    config.write_text(f"maxHashSlotNum=16\nmaxIndexNum={count}\n")
    assert checked(golden_stores.golden_directory() / name, config).damages == []


def test_what_a_kill_leaves_is_no_damage(tmp_path: Path) -> None:
    clock = Clock()
    store = open_stores.open_store(tmp_path / "store", clock)
    tool_stores.fill(store, clock, 30)
    killed = copy_killed(tmp_path / "store", tmp_path / "killed")
    open_stores.close(store)
    view = StoreView(killed)
    assert not view.is_clean
    assert not view.is_live
    assert checked(killed).damages == []


def test_a_record_is_named_with_file_and_place(root: Path) -> None:
    log = root / "commitlog" / f"{0:020d}"
    position = log.read_bytes().index(b"body 3")
    flip_bit(log, position)
    damages = checked(root).damages
    assert [(each.kind, each.path) for each in damages] == [("record", f"commitlog/{log.name}")]
    assert "the CRC of the body" in damages[0].what
    assert damages[0].place["file_position"] < position
    assert "store repair" in damages[0].line()


def test_missing_files_are_named(root: Path) -> None:
    (root / "commitlog" / f"{4096:020d}").unlink()
    shutil.rmtree(root / "consumequeue" / "Topic1" / "2")
    kinds = [(each.kind, each.what) for each in checked(root).damages]
    assert ("record", "a file of the commit log is missing") in kinds
    assert ("queue", "units are missing") in kinds


def _covered(root: Path) -> Iterator[tuple[Path, int]]:
    """Every byte that something vouches for."""
    view = StoreView(root)
    for record, _ in view.records():
        file = view.log.file_at(record.offset)
        assert file is not None
        start = record.offset - file.base_offset
        head = [*range(MAGIC_AT), *range(MAGIC_AT, FLAG_AT), *range(QUEUE_OFFSET_AT, BORN_TIME_AT)]
        assert {BODY_CRC_AT, QUEUE_ID_AT, LOG_OFFSET_AT} <= set(head)
        body_end = record.size_bytes - len(record.properties) - 2
        for at in (*head[:-4], *range(HEAD_SIZE_BYTES - 4, body_end + 2)):
            yield file.path, start + at
    for key in view.queues:
        queue = view.queues.open(*key[:2])
        for position in range(queue.start, queue.find_end()):
            yield queue.path_at(position), queue.file_position(position)
    for path in view.index_files():
        shape = view.geometry
        assert shape is not None
        used = int.from_bytes(path.read_bytes()[36:40], "big")
        end = 40 + 4 * shape.slot_count
        header = (*range(14), *range(16, 40))  # Not the last time's milliseconds.
        for position in (*header, *range(40, end), *range(end + 20, end + 20 * used)):
            yield path, position


@pytest.mark.parametrize("seed", range(3))
def test_each_flipped_bit_is_named(root: Path, seed: int) -> None:
    rng = random.Random(seed)
    places = list(_covered(root))
    unnamed = []
    for path, position in rng.sample(places, FLIPS):
        bit = rng.randrange(8)
        held = flip_bit(path, position, bit)
        if checked(root).is_sound:
            unnamed.append((path.relative_to(root), position, bit))
        path.write_bytes(held)
    assert unnamed == []
    assert checked(root).is_sound


def test_newest_files_that_are_missing_are_named(root: Path, config: Path) -> None:
    config.write_text(f"{config.read_text()}messageIndexEnable=false\n")
    newest = max((root / "commitlog").iterdir())
    end = StoreView(root).log_end()
    newest.unlink()
    shutil.rmtree(root / "index")
    (damage,) = checked(root, config).damages
    assert (damage.kind, damage.what) == (
        "record",
        "the newest commit log files are missing",
    )
    assert damage.place == {"log_offset": int(newest.name), "size": end - int(newest.name)}
    assert run("check", root).code == 1


def test_units_behind_the_log_of_a_clean_store_are_damage(root: Path) -> None:
    max((root / "commitlog").iterdir()).unlink()
    shutil.rmtree(root / "index")
    shutil.rmtree(root / "rockhopper")
    (root / "checkpoint").unlink()
    damages = checked(root).damages
    assert {each.what for each in damages if each.kind == "queue"} == {
        "a unit points to no message of its queue"
    }
