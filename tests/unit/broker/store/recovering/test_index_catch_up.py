"""Indexing from the log: which keys, in which order, and none of them twice."""

from pathlib import Path

import pytest

from rockhopper.broker.store.index.index import MessageIndex
from rockhopper.broker.store.log.encoding import INDEX_KEY
from rockhopper.broker.store.recovering.index_catch_up import IndexCatchUp
from rockhopper.protocol.java_hash import index_key_hash
from rockhopper.protocol.store.expected import Record

T0 = 1_795_166_323_715
PREPARED, ROLLBACK = 0x4, 0xC


def record(properties: bytes, offset: int = 0, sys_flag: int = 0, time_ms: int = T0) -> Record:
    return Record(offset, 100, 0, 0, sys_flag, time_ms, b"T", properties)


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
    catch_up = IndexCatchUp(index)
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
    catch_up = IndexCatchUp(index)
    for number in range(300):
        catch_up.place(record(b"UNIQ_KEY\x01u%d\x02" % number, number, time_ms=T0 + number // 200))
    catch_up.finish()
    assert catch_up.put_count == 300
    assert [index.query("T", f"u{n}", 9, 0, 2**60) for n in range(300)] == [[n] for n in range(300)]
