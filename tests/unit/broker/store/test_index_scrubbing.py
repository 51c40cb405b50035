"""The scrub's look at the index: wrong entries, links and slots, strays, what is missing."""

import errno
import os
import random
import struct
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.store import index_scrubbing
from rockhopper.broker.store import scrubbing as scrubbing_module
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.index.index_file import HEADER_SIZE_BYTES
from rockhopper.broker.store.log.encoding import INDEX_KEY
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol.java_hash import index_key_hash
from rockhopper.protocol.properties import encode_properties
from tests.support.golden_stores import copy_golden_store
from tests.support.open_stores import Stores, close, put
from tests.support.rot import overwrite

TOPIC = "TopicA"
COUNT = 40
ENTRIES_AT = HEADER_SIZE_BYTES + 16 * 4
WIDE: dict[str, Any] = {"commit_log_file_size_bytes": 65536}


def fill(store: MessageStore, count: int = COUNT) -> None:
    for number in range(count):
        properties = {"UNIQ_KEY": f"U{number}", "KEYS": f"k{number} all", "TAGS": "a"}
        put(store, b"body %d" % number, properties=encode_properties(properties))


@pytest.fixture
def store(stores: Stores) -> MessageStore:
    store = stores.open(**WIDE)
    fill(store)
    return store


def scrub(store: MessageStore) -> list[dict[str, object]]:
    """Do one pass; what was said meanwhile."""
    store.reading.reader.tail_start = store.log.written_offset
    with capture_logs() as logs:
        while store.scrub.passes.step():
            pass
    store.scrub.passes.start_pass()
    return [dict(entry) for entry in logs]


def index_file(stores: Stores, number: int = 0) -> Path:
    return sorted((stores.root / "index").iterdir())[number]


def found(store: MessageStore, key: str) -> int:
    return len(store.reading.query(TOPIC, key, 64, 0, 1 << 60))


def test_a_sound_index_is_left_as_it_is(store: MessageStore, stores: Stores) -> None:
    held = index_file(stores).read_bytes()
    assert scrub(store) == scrub(store) == []
    assert index_file(stores).read_bytes() == held
    assert store.scrub.passes.pass_count == 2


# Hash, offset, time, link; some entries, a page of zeros.
@pytest.mark.parametrize(
    ("number", "at", "data"),
    [
        (20, 0, b"\x55"),
        (20, 3, b"\x7f"),
        (20, 11, b"\x55"),
        (20, 4, b"\x55"),
        (20, 14, b"\x55"),
        (20, 19, b"\x77"),
        (20, 16, b"\x80"),
        (30, 0, bytes(20 * 50)),
        (30, 0, b"\x55" * 20 * 50),
        (2, 0, bytes(20)),
        (COUNT * 3 - 1, 0, bytes(20)),
    ],
)
def test_wrong_entries_are_mended(
    store: MessageStore, stores: Stores, number: int, at: int, data: bytes
) -> None:
    held = overwrite(index_file(stores), ENTRIES_AT + number * 20 + at, data)
    entries = scrub(store)
    assert {entry["log_level"] for entry in entries} == {"warning"}
    assert entries[0]["entry"] == number
    assert index_file(stores).read_bytes() == held
    assert store.scrub.mended_count == sum(int(str(entry["count"])) for entry in entries)
    assert store.scrub.index_fault_count == 0
    assert scrub(store) == []


@pytest.mark.parametrize("data", [bytes(4), b"\0\0\0\5", b"\x55" * 4])
def test_wrong_slots_are_mended(store: MessageStore, stores: Stores, data: bytes) -> None:
    path = index_file(stores)
    held = path.read_bytes()
    used = next(slot for slot in range(16) if struct.unpack_from(">i", held, 40 + slot * 4)[0] > 9)
    overwrite(path, 40 + used * 4, data)
    (entry,) = scrub(store)
    assert (entry["log_level"], entry["part"]) == ("warning", "slots")
    assert path.read_bytes() == held
    assert scrub(store) == []


def test_a_message_is_found_again(store: MessageStore, stores: Stores) -> None:
    overwrite(index_file(stores), ENTRIES_AT + 30 * 20, bytes(20 * 40))
    assert found(store, "all") < COUNT
    scrub(store)
    assert found(store, "all") == COUNT
    assert all(found(store, f"k{number}") == 1 for number in range(COUNT))
    assert all(found(store, f"U{number}") == 1 for number in range(COUNT))


def test_files_behind_each_other_are_compared(stores: Stores) -> None:
    store = stores.open(**WIDE, index_entry_count_max=50)
    fill(store)
    assert scrub(store) == []
    helds = [
        overwrite(index_file(stores, 0), ENTRIES_AT + 45 * 20, bytes(20 * 5)),
        overwrite(index_file(stores, 1), ENTRIES_AT + 20, b"\x55" * 60),
        overwrite(index_file(stores, 1), 40, bytes(64)),
    ]
    scrub(store)
    assert store.scrub.mended_count
    assert index_file(stores, 0).read_bytes() == helds[0]
    assert index_file(stores, 1).read_bytes()[: 40 + 64] == helds[1][: 40 + 64]
    assert scrub(store) == []


def test_a_header_is_written_anew(stores: Stores) -> None:
    store = stores.open(**WIDE, index_entry_count_max=50)
    fill(store)
    assert store.opened.index is not None
    store.opened.index.flush()
    held = overwrite(index_file(stores), 4, b"\x55\x55")
    (entry,) = scrub(store)
    assert entry["part"] == "header"
    store.opened.index.flush()
    assert index_file(stores).read_bytes() == held
    assert scrub(store) == []


@pytest.mark.parametrize("at", [3, 11])
def test_times_of_a_header_are_those_of_its_records(stores: Stores, at: int) -> None:
    store = stores.open(**WIDE, index_entry_count_max=50)
    for _ in range(3):
        fill(store, 20)
        stores.clock.now_ms += 5000
    path = index_file(stores)
    close(stores.opened.pop(stores.root))
    held = overwrite(path, at, b"\x55")
    store = stores.open(**WIDE, index_entry_count_max=50)
    (entry,) = scrub(store)
    assert entry["part"] == "header"
    assert scrub(store) == []
    assert store.opened.index is not None
    store.opened.index.flush()
    assert path.read_bytes() == held


def test_strays_are_named_once(store: MessageStore, stores: Stores) -> None:
    assert store.opened.index is not None
    store.opened.index.put_many(INDEX_KEY.pack(12345, 0), stores.clock())
    store.opened.index.put_many(INDEX_KEY.pack(777, store.log.written_offset - 9), stores.clock())
    fill(store, 2)
    (entry,) = scrub(store)
    assert (entry["entry"], entry["count"]) == (121, 2)
    assert store.scrub.index_fault_count == 2
    assert scrub(store) == []


def test_entries_that_java_puts_besides_are_fine(store: MessageStore, stores: Stores) -> None:
    """For tags, and all those of the last message again."""
    offset = put(
        store, properties=encode_properties({"KEYS": "last x", "TAGS": "b"})
    ).commit_log_offset
    assert store.opened.index is not None
    for key in ("T#b", "last", "x"):
        store.opened.index.put_many(
            INDEX_KEY.pack(index_key_hash(TOPIC, key), offset), stores.clock()
        )
    fill(store, 2)
    assert scrub(store) == []


def test_missing_entries_are_named_and_put_back_at_the_next_start(stores: Stores) -> None:
    store = stores.open(**WIDE)
    fill(store)
    index = store.opened.index
    assert index is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store.dispatch, "_index", None)
        fill(store, 3)
    fill(store, 5)
    held = index_file(stores).read_bytes()
    name = index_file(stores).name
    (entry,) = scrub(store)
    assert (entry["log_level"], entry["count"]) == ("error", 9)
    assert store.scrub.index_fault_count == 9
    assert scrub(store) == []
    store = stores.reopen_after_stop(**WIDE)
    (aside,) = (stores.root / "rockhopper" / "quarantine" / "index").iterdir()
    assert aside.name == name
    assert aside.read_bytes()[ENTRIES_AT:] == held[ENTRIES_AT:]
    assert found(store, "all") == COUNT + 8
    assert scrub(store) == []
    assert not (stores.root / "rockhopper" / "index-to-rebuild").exists()


def test_a_damaged_key_is_not_taken_over(store: MessageStore, stores: Stores) -> None:
    log_file = stores.root / "commitlog" / f"{0:020d}"
    data = log_file.read_bytes()
    overwrite(log_file, data.index(b"k17 all"), b"j")
    held = index_file(stores).read_bytes()
    (entry,) = scrub(store)
    assert entry["commit_log_offset"] == data.rindex(b"body 17", 0, data.index(b"k17 all")) - 88
    assert index_file(stores).read_bytes() == held
    assert store.scrub.index_fault_count == 1
    assert scrub(store) == []


def test_records_of_deleted_topics_and_damaged_ones_may_have_entries(
    store: MessageStore, stores: Stores
) -> None:
    put(store, b"other", topic="Other", properties=encode_properties({"KEYS": "o"}))
    fill(store, 2)
    log_file = stores.root / "commitlog" / f"{0:020d}"
    overwrite(log_file, log_file.read_bytes().index(b"body 7"), b"B")
    overwrite(log_file, log_file.read_bytes().index(b"body 9") - 84, b"\0\0\0\0")
    store.visibility.delete_topics(["Other"])
    assert all("index" not in str(entry["event"]) for entry in scrub(store))
    assert store.scrub.index_fault_count == store.scrub.mended_count == 0


def test_entries_of_expired_messages_are_passed_by(stores: Stores) -> None:
    store = stores.open()
    fill(store)
    assert store.opened._files.delete_files_before(4096) == 1
    assert scrub(store) == []
    overwrite(index_file(stores), ENTRIES_AT + 60, b"\x55" * 20)
    assert {entry["log_level"] for entry in scrub(store)} == {"warning"}
    assert store.scrub.index_fault_count == 0
    assert scrub(store) == []


def test_too_much_to_be_laid_side_by_side_is_built_again(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_scrubbing, "WINDOW", 20)
    store = stores.open(**WIDE, index_entry_count_max=50)
    fill(store)
    overwrite(index_file(stores), ENTRIES_AT + 10 * 20, b"\x55" * 20 * 25)
    assert [entry["log_level"] for entry in scrub(store)] == ["error"]
    assert scrub(store) == []
    store = stores.reopen_after_stop(**WIDE, index_entry_count_max=50)
    assert found(store, "all") == COUNT
    assert scrub(store) == []


@pytest.mark.parametrize("seed", range(30))
def test_whatever_rots_the_index_is_whole_again(stores: Stores, seed: int) -> None:
    chance = random.Random(seed)
    store = stores.open(**WIDE, index_entry_count_max=chance.choice([30, 50, 400]))
    fill(store)
    paths = sorted((stores.root / "index").iterdir())
    helds = [path.read_bytes() for path in paths]
    for _ in range(chance.randrange(1, 8)):
        path, held = chance.choice(list(zip(paths, helds, strict=True)))
        used = len(held.rstrip(b"\0"))
        size = chance.choice([1, 1, 4, 20, 100])
        # Entry 0 is never used, and entry 1 counts from what is gone.
        at = chance.randrange(ENTRIES_AT + 40, max(used - size, ENTRIES_AT + 41))
        if size < 64 and chance.random() < 0.3:
            at = chance.randrange(40, ENTRIES_AT - size)
        overwrite(path, at, chance.choice([bytes(size), chance.randbytes(size)]))
    for _ in range(2):
        scrub(store)
    assert [path.read_bytes()[40:] for path in paths] == [held[40:] for held in helds]
    assert scrub(store) == []


def test_what_comes_while_a_pass_ends_is_no_fault(store: MessageStore) -> None:
    scrubbing = store.scrub.passes
    with capture_logs() as logs:
        for _ in range(60):
            store.reading.reader.tail_start = store.log.written_offset
            scrubbing.step()
            fill(store, 1)
        assert scrubbing.pass_count == 0
        while scrubbing.step():
            pass
    assert logs == []


@pytest.mark.parametrize(
    ("name", "log_size_bytes", "entry_count_max"),
    [
        ("basic30", 4096, 40),
        ("crcprop", 4096, 40),
        ("eof_exact8", 4096, 40),
        ("mix", 1 << 20, 4000),
        ("prepared_rollback", 4096, 40),
        ("three_sessions", 4096, 4000),
        ("timer", 65536, 4000),
    ],
)
def test_what_rocketmq_indexed_is_sound(
    stores: Stores, name: str, log_size_bytes: int, entry_count_max: int
) -> None:
    copy_golden_store(name, stores.root)
    store = stores.open(
        commit_log_file_size_bytes=log_size_bytes,
        index_entry_count_max=entry_count_max,
        batch_consume_queue_file_size_bytes=460,
    )
    assert store.opened.index is not None
    assert store.opened.index.files
    assert scrub(store) == scrub(store) == []


def test_a_step_is_bounded_and_so_is_what_is_said(stores: Stores) -> None:
    store = stores.open(commit_log_file_size_bytes=1 << 20, index_entry_count_max=4000)
    fill(store, 1200)
    for number in range(2, 3600, 12):
        overwrite(index_file(stores), ENTRIES_AT + number * 20, b"\x55")
    scrubbing = store.scrub.passes
    store.reading.reader.tail_start = store.log.written_offset
    before = 0
    with capture_logs() as logs:
        while cost := scrubbing.step():
            assert cost <= 64 << 10
            assert store.scrub.mended_count - before <= 128
            before = store.scrub.mended_count
    assert store.scrub.mended_count == 300
    assert len(logs) == 101


async def test_its_pages_are_read_beside_the_loop(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.open(**WIDE)
    fill(store)
    store.reading.reader.tail_start = store.log.written_offset
    read: list[str] = []
    monkeypatch.setattr(scrubbing_module, "_bring_into_memory", lambda path, *_: read.append(path))
    await store.scrub.do_a_chunk()
    assert read == [str(stores.root / "commitlog" / f"{0:020d}"), str(index_file(stores))]


def no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_ends_the_pass_and_not_the_index(
    store: MessageStore, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = overwrite(index_file(stores), ENTRIES_AT + 20 * 20, bytes(100))
    with monkeypatch.context() as patch:
        patch.setattr(disk, "reserve", no_room)
        with pytest.raises(OSError, match="No space left"):
            scrub(store)
        assert scrub(store) == []
    assert store.scrub.index_fault_count == 0
    assert scrub(store) != []
    assert index_file(stores).read_bytes() == held
