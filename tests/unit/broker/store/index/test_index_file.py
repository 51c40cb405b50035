"""IndexFile: RocketMQ's bytes, chains newest first, a full disk and damage noticed."""

import errno
import os
from pathlib import Path

import pytest

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import CorruptFileError
from rockhopper.broker.store.index import index_file
from rockhopper.broker.store.index.index_file import IndexFile
from rockhopper.broker.store.log.encoding import INDEX_KEY
from rockhopper.protocol.store.queue_layout import index_file_size_bytes
from rockhopper.protocol.store.walking import TIMED_KEY
from tests.support.rot import overwrite

SLOTS = 16
ENTRIES = 40
ENTRIES_AT = 40 + 4 * SLOTS
T0 = 0x1A1F8404320

# Hashes, offsets and times of the first message of the store behind store.md's appendix A.
UNIQUE_KEY_HASH = 0x544FD146  # TopicA#UKTopicA0100
K0_HASH = 0x717125CA  # TopicA#k0
KK_HASH = 0x7171258F  # TopicA#kk


def create(path: Path, previous: IndexFile | None = None) -> IndexFile:
    return IndexFile.create(path, SLOTS, ENTRIES, previous)


def reopen(file: IndexFile) -> IndexFile:
    """Open what a kill of the process leaves of *file*."""
    file.close()
    return IndexFile.open(file.path, SLOTS, file.entry_count_max)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "20261120091843715"


def test_the_length_is_that_of_rocketmqs_default_geometry() -> None:
    assert index_file_size_bytes(5_000_000, 20_000_000) == 420_000_040


def test_entries_are_chained_in_their_slots_as_rocketmq_does(path: Path) -> None:
    file = create(path)
    for key_hash, offset, time_ms in (
        (UNIQUE_KEY_HASH, 0, T0),
        (K0_HASH, 0, T0),
        (KK_HASH, 0, T0),
        (KK_HASH, 0xF0, T0 + 1500),
    ):
        file.insert_key(key_hash, offset, time_ms)
    file.flush()
    data = path.read_bytes()
    assert data[:40] == bytes.fromhex(
        "000001a1f8404320 000001a1f84048fc 0000000000000000 00000000000000f0 00000003 00000005"
    )
    slots = {UNIQUE_KEY_HASH % SLOTS: 1, K0_HASH % SLOTS: 2, KK_HASH % SLOTS: 4}
    for slot in range(SLOTS):
        assert int.from_bytes(data[40 + slot * 4 :][:4], "big") == slots.get(slot, 0)
    assert data[ENTRIES_AT : ENTRIES_AT + 100] == bytes.fromhex(
        "00000000 0000000000000000 00000000 00000000"
        "544fd146 0000000000000000 00000000 00000000"
        "717125ca 0000000000000000 00000000 00000000"
        "7171258f 0000000000000000 00000000 00000000"
        "7171258f 00000000000000f0 00000001 00000003"
    )
    assert len(data) == 904


def test_a_file_after_a_full_one_counts_its_first_entry_from_the_former_end(
    tmp_path: Path,
) -> None:
    former = create(tmp_path / "1")
    former.insert_key(KK_HASH, 0xB84, T0)
    file = create(tmp_path / "2", former)
    file.insert_key(KK_HASH, 0xC81, T0 + 7000)
    file.insert_key(KK_HASH, 0xD7F, T0 + 9000)
    file.flush()
    data = file.path.read_bytes()
    assert data[:40] == bytes.fromhex(
        "000001a1f8405e78 000001a1f8406648 0000000000000c81 0000000000000d7f 00000001 00000003"
    )
    seconds = [int.from_bytes(data[ENTRIES_AT + n * 20 + 12 :][:4], "big") for n in (1, 2)]
    assert seconds == [7, 2]
    assert list(file.candidates(KK_HASH, T0 + 7000, T0 + 7000)) == [0xC81]


def test_times_before_the_begin_and_beyond_the_range_are_clamped(path: Path) -> None:
    file = create(path)
    file.insert_key(KK_HASH, 0, T0)
    file.insert_key(KK_HASH, 1, T0 - 50_000)
    file.insert_key(KK_HASH, 2, T0 + (1 << 31) * 1000)
    assert [file.entry(n)[2] for n in (1, 2, 3)] == [0, 0, 2**31 - 1]


def test_a_slot_that_points_to_no_entry_counts_as_empty(path: Path) -> None:
    file = create(path)
    file.insert_key(KK_HASH, 0, T0)
    file.flush()
    overwrite(path, 40 + K0_HASH % SLOTS * 4, bytes.fromhex("fffffff0"))
    file.insert_key(K0_HASH, 5, T0)
    assert file.entry(2) == (K0_HASH, 5, 0, 0)
    assert file.used_slot_count == 2


def test_candidates_come_newest_first_and_within_the_window(path: Path) -> None:
    file = create(path)
    for second in range(8):
        file.insert_key(KK_HASH, second, T0 + second * 1000)
    assert list(file.candidates(KK_HASH, 0, T0 * 2)) == [7, 6, 5, 4, 3, 2, 1, 0]
    assert list(file.candidates(KK_HASH, T0 + 3000, T0 + 4000)) == [5, 4, 3, 2]
    assert list(file.candidates(KK_HASH, T0 + 9000, T0 * 2)) == []
    assert list(file.candidates(KK_HASH, 0, T0 - 2000)) == []
    assert list(file.candidates(K0_HASH, 0, T0 * 2)) == []


def test_what_a_look_up_passes_over_is_walked_in_steps(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_file, "ENTRIES_PER_STEP", 3)
    file = create(path)
    file.insert_key(KK_HASH, 0, T0)
    for number in range(1, 8):
        file.insert_key(KK_HASH, number, T0 + 10_000)
    for number in range(8, 14):
        file.insert_key(KK_HASH + SLOTS, number, T0 + 20_000)
    assert list(file.candidates(KK_HASH, 0, T0)) == [None, None, None, None, 0]
    assert list(file.candidates(KK_HASH, T0 + 5000, T0 * 2)) == [None, None, *range(7, 0, -1)]


def test_a_look_up_ends_when_its_file_is_deleted_meanwhile(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_file, "ENTRIES_PER_STEP", 3)
    file = create(path)
    for number in range(8):
        file.insert_key(KK_HASH, number, T0 + (number > 0) * 10_000)
    found, nothing_yet = (file.candidates(KK_HASH, 0, end) for end in (T0 * 2, T0))
    assert (next(found), next(nothing_yet)) == (7, None)
    file.delete()
    assert list(found) == list(nothing_yet) == []


def test_keys_of_one_slot_are_told_apart_by_their_hash(path: Path) -> None:
    file = create(path)
    file.insert_key(3, 100, T0)
    file.insert_key(3 + SLOTS, 200, T0)
    file.insert_key(3, 300, T0)
    assert list(file.candidates(3, 0, T0)) == [300, 100]
    assert list(file.candidates(3 + SLOTS, 0, T0)) == [200]


def test_a_chain_that_runs_in_a_circle_ends(path: Path) -> None:
    file = create(path)
    file.insert_key(3, 100, T0)
    file.insert_key(3, 200, T0)
    file.flush()
    overwrite(path, ENTRIES_AT + 20 + 16, (2).to_bytes(4, "big"))
    assert list(file.candidates(3, 0, T0)) == [200, 100]


def test_the_last_entry_number_is_never_used(path: Path) -> None:
    file = IndexFile.create(path, SLOTS, 4, None)
    assert [file.insert_key(7, offset, T0) for offset in range(5)] == [True] * 3 + [False] * 2
    assert file.is_full
    assert list(file.candidates(7, 0, T0)) == [2, 1, 0]


def test_a_full_disk_is_an_error_of_the_put_that_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = create(path)
    with monkeypatch.context() as patch:
        patch.setattr(index_file, "STEP_ENTRY_COUNT", 2)
        file.insert_key(1, 10, T0)
        file.insert_key(2, 20, T0)

        def fail(descriptor: int, size_bytes: int, offset: int = 0) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        patch.setattr(disk, "preallocate", fail)
        with pytest.raises(OSError, match="No space left"):
            file.insert_key(3, 30, T0)
    assert file.next_number == 3
    assert file.end_offset == 20
    file.insert_key(3, 30, T0)
    assert list(file.candidates(3, 0, T0)) == [30]


def test_the_slot_table_has_its_blocks_from_the_start_and_the_entries_have_not(
    tmp_path: Path,
) -> None:
    file = IndexFile.create(tmp_path / "1", 250_000, 1_000_000, None)
    status = file.path.stat()
    assert status.st_size == 40 + 1_000_000 + 20_000_000
    assert 1_000_000 <= status.st_blocks * 512 < 2_000_000


def test_nothing_is_left_behind_when_there_is_no_room_for_the_slot_table(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int, size_bytes: int, offset: int = 0) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(disk, "preallocate", fail)
    with pytest.raises(OSError, match="No space left"):
        create(path)
    assert not path.exists()


def test_another_length_is_noticed(path: Path) -> None:
    path.write_bytes(bytes(903))
    with pytest.raises(CorruptFileError, match="903 bytes long, not 904"):
        IndexFile.open(path, SLOTS, ENTRIES)


@pytest.mark.parametrize(
    ("position", "value"),
    [(0, 0xFF), (16, 0x01), (24, 0x01), (36, 0x7F), (39, 0x03), (ENTRIES_AT + 20 + 11, 0x07)],
    ids=["begin time", "begin offset", "end offset", "count", "count off by one", "entry 1"],
)
def test_a_header_that_the_entries_contradict_is_noticed(
    position: int, value: int, path: Path
) -> None:
    file = create(path)
    for offset in (0x10, 0x20, 0x30):
        file.insert_key(KK_HASH, offset, T0)
    file.flush()
    assert file.damage() is None
    overwrite(path, position, bytes([value]))
    assert reopen(file).damage() is not None


def test_flush_syncs_the_entries_before_the_header_that_counts_them(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = create(path)
    counts_when_synced = []
    sync_file = disk.sync_file

    def sync(descriptor: int) -> None:
        counts_when_synced.append(int.from_bytes(os.pread(descriptor, 4, 36), "big"))
        sync_file(descriptor)

    monkeypatch.setattr(disk, "sync_file", sync)
    file.insert_key(1, 10, T0)
    file.insert_key(2, 20, T0)
    assert file.flush()
    assert counts_when_synced == [1, 3]
    assert not file.flush()


def test_entries_of_a_log_that_was_cut_are_taken_out(path: Path) -> None:
    file = create(path)
    for number in range(10):
        file.insert_key(number % 3, number * 10, T0 + number * 1000)
    file.flush()
    before = path.read_bytes()
    for number in range(10, 15):
        file.insert_key(number % 4, number * 10, T0 + number * 1000)
    file.flush()
    assert file.discard_from(100) == 5
    file.flush()
    after = path.read_bytes()
    assert after[16:] == before[16:]
    assert T0 + 9000 <= file.end_ms < T0 + 10_000
    assert reopen(file).damage() is None


def test_the_newest_message_s_hashes_are_known_in_order(path: Path) -> None:
    file = create(path)
    file.insert_key(1, 10, T0)
    for key_hash in (9, 8, 9):
        file.insert_key(key_hash, 20, T0)
    assert file.hashes_at_end() == [9, 8, 9]


def test_many_keys_are_put_one_by_one_only_where_room_is_reserved(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_file, "STEP_ENTRY_COUNT", 8)
    keys = [(K0_HASH + number % 5, 100 + number) for number in range(ENTRIES + 3)]
    packed = b"".join(INDEX_KEY.pack(*key) for key in keys)
    one_by_one = create(tmp_path / "20261120091843716")
    for key_hash, offset in keys[: ENTRIES - 1]:
        one_by_one.insert_key(key_hash, offset, T0)
    put, puts = IndexFile.insert_key, list[int]()

    def counted(file: IndexFile, key_hash: int, offset: int, time_ms: int) -> bool:
        puts.append(offset)
        return put(file, key_hash, offset, time_ms)

    file = create(path)
    with monkeypatch.context() as counting:
        counting.setattr(IndexFile, "insert_key", counted)
        rest = file.put_many(packed, T0)
    assert rest == packed[(ENTRIES - 1) * INDEX_KEY.size :]
    assert len(puts) <= ENTRIES // 8 + 1
    one_by_one.flush()
    file.flush()
    assert path.read_bytes() == one_by_one.path.read_bytes()


@pytest.mark.parametrize("step", [4, 8, 1000])
def test_keys_with_their_times_are_put_as_one_by_one(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    monkeypatch.setattr(index_file, "STEP_ENTRY_COUNT", step)
    keys = [(K0_HASH + n % 5, 100 + n, T0 + 700 * n - 1400 * (n % 3)) for n in range(ENTRIES + 3)]
    one_by_one = create(tmp_path / "20261120091843716")
    for key in keys[: ENTRIES - 1]:
        one_by_one.insert_key(*key)
    file = create(path)
    for some in (keys[:1], keys[1:3], keys[3:3]):
        assert file.put_timed(timed(some)) is None
    rest = file.put_timed(timed(keys[3:]))
    assert rest is not None
    assert bytes(rest) == bytes(timed(keys[ENTRIES - 1 :]))
    assert (file.end_ms, file.end_offset) == (one_by_one.end_ms, one_by_one.end_offset)
    one_by_one.flush()
    file.flush()
    assert path.read_bytes() == one_by_one.path.read_bytes()


def timed(keys: list[tuple[int, int, int]]) -> memoryview:
    return memoryview(b"".join(TIMED_KEY.pack(*key) for key in keys))
