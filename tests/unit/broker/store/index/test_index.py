"""MessageIndex: rolls, finds newest first, survives crashes, follows the commit log."""

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.index.index import MessageIndex
from rockhopper.broker.store.log.encoding import INDEX_KEY
from rockhopper.protocol.java_hash import index_key_hash
from tests.support.golden_stores import copy_golden_store, golden_directory
from tests.support.open_files import open_files_in
from tests.support.rot import overwrite

T0 = 1_795_166_323_715
FOREVER = 2**62


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """File names are local time."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def open_index(directory: Path, clean: bool = True, now_ms: int = T0) -> MessageIndex:
    """An index of 8 slots and 9 entries to a file."""
    index = MessageIndex(directory, 8, 10, now_ms=lambda: now_ms)
    index.load(clean)
    return index


def put(index: MessageIndex, key: str, offset: int, time_ms: int = T0) -> None:
    index.put_many(INDEX_KEY.pack(index_key_hash("T", key), offset), time_ms)


def find(index: MessageIndex, key: str) -> list[int]:
    return index.query("T", key, 100, 0, FOREVER)


def kill(index: MessageIndex) -> None:
    """End it as a killed process does: what was put is in the page cache, nothing more."""
    index.close()


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_no_file_is_made_before_the_first_put(tmp_path: Path) -> None:
    index = open_index(tmp_path / "index")
    assert index.end_commit_log_offset == -1
    assert find(index, "a") == []
    assert not (tmp_path / "index").exists()


def test_a_file_is_named_after_the_local_time(tmp_path: Path) -> None:
    put(open_index(tmp_path), "a", 0)
    assert names(tmp_path) == ["20261120091843715"]


def test_names_never_go_back_nor_collide_when_the_clock_does(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    for offset in range(20):
        put(index, "a", offset)
    index.close()
    index = open_index(tmp_path, clean=False, now_ms=T0 - 3_600_000)
    for offset in range(20, 30):
        put(index, "a", offset)
    assert names(tmp_path) == [f"202611200918437{n}" for n in (15, 16, 17, 18)]
    assert find(index, "a") == list(range(29, -1, -1))


def test_keys_without_room_in_the_file_go_to_the_next(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    put(index, "a", 0)
    keys = [INDEX_KEY.pack(index_key_hash("T", "a"), offset) for offset in range(1, 31)]
    index.put_many(b"".join(keys), T0)
    assert find(index, "a") == list(range(30, -1, -1))
    assert len(names(tmp_path)) == 4


def test_queries_are_limited_in_number_and_to_topic_and_key(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    for offset in range(12):
        put(index, "ab"[offset % 2], offset)
    assert index.query("T", "b", 3, 0, FOREVER) == [11, 9, 7]
    assert index.query("U", "b", 3, 0, FOREVER) == []
    assert index.query("T", "b", 0, 0, FOREVER) == []


def test_a_message_that_was_put_twice_is_found_once(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    for offset in (1, 1, 2, 2):
        put(index, "a", offset)
    assert find(index, "a") == [2, 1]


def test_what_was_flushed_and_closed_is_found_again(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    for offset in range(25):
        put(index, f"k{offset}", offset, T0 + offset)
    assert index.flush()
    index.close()
    index = open_index(tmp_path)
    assert [find(index, f"k{offset}") for offset in range(25)] == [[n] for n in range(25)]
    assert index.end_commit_log_offset == 24
    assert index.begin_commit_log_offset == 0
    assert not index.flush()


def test_a_killed_process_loses_no_entry_even_of_files_that_were_never_flushed(
    tmp_path: Path,
) -> None:
    index = open_index(tmp_path)
    for offset in range(25):
        put(index, f"k{offset}", offset)
    kill(index)
    index = open_index(tmp_path, clean=False)
    assert [find(index, f"k{offset}") for offset in range(25)] == [[n] for n in range(25)]
    assert index.end_commit_log_offset == 24


def test_names_that_are_no_number_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("left by somebody")
    index = open_index(tmp_path)
    put(index, "a", 0)
    index.flush()
    index.close()
    assert find(open_index(tmp_path), "a") == [0]
    assert (tmp_path / "notes.txt").exists()


def test_a_damaged_file_goes_with_those_behind_it(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    for offset in range(25):
        put(index, "a", offset)
    index.flush()
    index.close()
    damaged = tmp_path / names(tmp_path)[1]
    overwrite(damaged, 24, bytes.fromhex("00000000000000ff"))
    index = open_index(tmp_path)
    assert index.end_commit_log_offset == 8
    for offset in range(9, 25):
        put(index, "a", offset)
    assert find(index, "a") == list(range(24, -1, -1))


def test_a_file_of_another_length_is_built_again(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    put(index, "a", 0)
    index.close()
    os.truncate(tmp_path / names(tmp_path)[0], 100)
    assert open_index(tmp_path).end_commit_log_offset == -1
    assert names(tmp_path) == []


def test_a_file_behind_one_that_a_power_cut_left_half_written_is_dropped(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    for offset in range(12):
        put(index, "a", offset)
    kill(index)
    first = tmp_path / names(tmp_path)[0]
    overwrite(first, 40 + 8 * 4 + 6 * 20, bytes(20))
    index = open_index(tmp_path, clean=False)
    assert find(index, "a") == [4, 3, 2, 1, 0]
    assert names(tmp_path) == [first.name]


def test_an_index_in_front_of_the_logs_end_is_cut_to_it(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    for offset in range(25):
        put(index, "a", offset)
    assert index.discard_from(5) == 20
    assert find(index, "a") == [4, 3, 2, 1, 0]
    put(index, "b", 5)
    assert find(index, "b") == [5]
    assert len(names(tmp_path)) == 1
    assert index.discard_from(0) == 6
    assert index.end_commit_log_offset == -1
    put(index, "b", 0)
    assert find(index, "b") == [0]


def test_files_of_deleted_messages_go_but_never_the_newest(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    for offset in range(25):
        put(index, "a", offset)
    assert index.delete_expired(8) == 0
    assert index.delete_expired(9) == 1
    assert index.delete_expired(1000) == 1
    assert find(index, "a") == list(range(24, 17, -1))


def test_hashes_of_a_message_split_over_two_files_are_known(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    for offset in range(8):
        index.put_many(INDEX_KEY.pack(1, offset), T0)
    for key_hash in (5, 6, 7):
        index.put_many(INDEX_KEY.pack(key_hash, 8), T0)
    assert len(names(tmp_path)) == 2
    assert index.hashes_at_end() == [5, 6, 7]


def test_three_failures_to_make_a_file_are_told_and_a_later_success_clears_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = open_index(tmp_path)
    tries = []

    def fail(descriptor: int, size_bytes: int, offset: int = 0) -> None:
        tries.append(size_bytes)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(disk, "preallocate", fail)
        with pytest.raises(OSError, match="No space left"):
            put(index, "a", 0)
    assert len(tries) == 3
    assert index.failed
    put(index, "a", 0)
    assert not index.failed
    assert find(index, "a") == [0]


def test_rocketmqs_files_are_read(tmp_path: Path) -> None:
    store = copy_golden_store("basic30", tmp_path / "store")
    index = MessageIndex(store / "index", 16, 40, now_ms=lambda: T0)
    index.load(last_exit_clean=True)
    assert index.query("TopicA", "k0", 5, 0, FOREVER) == [0]
    assert len(index.query("TopicA", "kk", 100, 0, FOREVER)) == 30
    assert index.end_commit_log_offset == 0x1D5B


def test_the_same_keys_give_rocketmqs_files(tmp_path: Path) -> None:
    golden = golden_directory() / "basic30" / "index"
    index = MessageIndex(tmp_path, 16, 40, now_ms=lambda: T0)
    for path in sorted(golden.iterdir()):
        data = path.read_bytes()
        begin_ms, end_ms = (int.from_bytes(data[at : at + 8], "big") for at in (0, 8))
        count = int.from_bytes(data[36:40], "big")
        for number in range(1, count):
            entry = data[40 + 64 + number * 20 :]
            key_hash = int.from_bytes(entry[:4], "big")
            offset = int.from_bytes(entry[4:12], "big")
            time_ms = begin_ms if number < count - 1 else end_ms
            index.put_many(INDEX_KEY.pack(key_hash, offset), time_ms)
    index.flush()
    written = [path.read_bytes() for path in sorted(tmp_path.iterdir())]
    assert written == [path.read_bytes() for path in sorted(golden.iterdir())]


def test_a_closed_index_holds_no_file_open(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    for number in range(12):
        put(index, f"k{number}", number * 100)
    assert open_files_in(tmp_path)
    index.close()
    assert open_files_in(tmp_path) == []
