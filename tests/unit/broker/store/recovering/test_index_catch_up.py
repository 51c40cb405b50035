"""Indexing from the log: which keys, in which order, and none of them twice."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockhopper.broker.store.index.index import MessageIndex
from rockhopper.broker.store.log.encoding import INDEX_KEY
from rockhopper.broker.store.log.log_scan import Record
from rockhopper.broker.store.log.record_properties import (
    KeysAndTags,
    KeysAndTagsReader,
    keys_and_tags,
)
from rockhopper.broker.store.recovering.index_catch_up import IndexCatchUp, key_hashes
from rockhopper.protocol.java_hash import index_key_hash
from rockhopper.protocol.properties import decode_properties

T0 = 1_795_166_323_715
PREPARED, ROLLBACK = 0x4, 0xC


def record(properties: bytes, offset: int = 0, sys_flag: int = 0, time_ms: int = T0) -> Record:
    return Record(offset, 100, 0, 0, sys_flag, time_ms, b"T", properties)


def hashes(*keys: str) -> list[int]:
    return [index_key_hash("T", key) for key in keys]


@pytest.mark.parametrize(
    ("properties", "keys"),
    [
        (b"", []),
        (b"UNIQ_KEY\x01u\x02", ["u"]),
        (b"KEYS\x01a b\x02UNIQ_KEY\x01u\x02", ["u", "a", "b"]),
        (b"KEYS\x01 a  b \x02", ["a", "b"]),
        (b"UNIQ_KEY\x01u", ["u"]),
        (b"XKEYS\x01no\x02", []),
        (b"KEYS\x01\x02UNIQ_KEY\x01u\x02", ["u"]),
    ],
)
def test_unique_key_first_then_each_key(properties: bytes, keys: list[str]) -> None:
    assert key_hashes(record(properties)) == hashes(*keys)


def test_prepared_messages_are_indexed_and_rolled_back_ones_are_not() -> None:
    assert key_hashes(record(b"UNIQ_KEY\x01u\x02", sys_flag=PREPARED)) == hashes("u")
    assert key_hashes(record(b"UNIQ_KEY\x01u\x02", sys_flag=ROLLBACK)) == []


_PIECES = st.sampled_from(
    [b"KEYS", b"TAGS", b"UNIQ_KEY", b"X", b"a b", b"\x01", b"\x02", b"\x01", b"\x02", b"\xff"]
)


@given(st.lists(_PIECES, max_size=20).map(b"".join))
def test_the_quick_way_finds_what_decoding_finds(properties: bytes) -> None:
    found = decode_properties(properties)
    assert keys_and_tags(properties) == KeysAndTags(
        found.get("UNIQ_KEY", ""), found.get("KEYS", ""), found.get("TAGS", "")
    )


def open_index(directory: Path) -> MessageIndex:
    index = MessageIndex(directory, 8, 10, now_ms=lambda: T0)
    index.load(last_exit_clean=True)
    return index


def entries(index: MessageIndex, *keys: str) -> dict[str, list[int]]:
    return {key: index.query("T", key, 100, 0, 2**60) for key in keys}


@pytest.mark.parametrize("already_put", [0, 1, 2, 3])
def test_of_the_newest_message_only_missing_keys_are_put(already_put: int, tmp_path: Path) -> None:
    index = open_index(tmp_path)
    index.put_many(INDEX_KEY.pack(index_key_hash("T", "old"), 50), T0)
    keys = ["u", "same", "same"]
    for key in keys[:already_put]:
        index.put_many(INDEX_KEY.pack(index_key_hash("T", key), 100), T0)
    catch_up = IndexCatchUp(index, KeysAndTagsReader())
    assert catch_up.from_offset == (100 if already_put else 50)
    newest = record(b"KEYS\x01same same\x02UNIQ_KEY\x01u\x02", 100)
    later = record(b"UNIQ_KEY\x01v\x02", 200, time_ms=T0 + 5)
    for each in (newest, later):
        catch_up.place(each)
    catch_up.finish()
    assert catch_up.put_count == 4 - already_put
    assert entries(index, "old", "u", "same", "v") == {
        "old": [50],
        "u": [100],
        "same": [100],
        "v": [200],
    }


def test_many_messages_are_put_over_many_files(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    catch_up = IndexCatchUp(index, KeysAndTagsReader())
    for number in range(300):
        catch_up.place(record(b"UNIQ_KEY\x01u%d\x02" % number, number, time_ms=T0 + number // 200))
    catch_up.finish()
    assert catch_up.put_count == 300
    assert [index.query("T", f"u{n}", 9, 0, 2**60) for n in range(300)] == [[n] for n in range(300)]
