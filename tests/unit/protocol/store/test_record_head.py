"""The head of a record, and those that read it beside its owner, by the owner's table."""

import re
import struct
from itertools import product

import numpy as np
import pytest

from rockhopper.broker.store.log import checking, fast_encoding
from rockhopper.pipeline.decoder.records import read_records
from rockhopper.protocol.store import record_head
from rockhopper.protocol.store.message_codec.record import split_record
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT
from rockhopper.protocol.store.record_head import (
    HEAD_SIZE_BYTES_MAX,
    RECORD_HEADS,
    RecordHead,
    body_start,
    head_struct,
    topic_field,
)
from tests.support.records import encode_message

ROWS = [
    (int(at), int(size))
    for at, size in re.findall(r"^ +(\d+) +(\d+)  ", record_head.__doc__ or "", re.MULTILINE)
]
HOSTS = list(product((8, 20), repeat=2))


def record(born: int = 8, store: int = 8) -> bytes:
    """One of whose fields no two are the same."""
    return encode_message(
        topic="Topic",
        body=b"body",
        properties={"KEYS": "k"},
        queue_id=3,
        queue_offset=4,
        commit_log_offset=5000,
        flag=6,
        sys_flag=0x400,
        born_time_ms=7,
        born_host=b"b" * born,
        store_time_ms=8,
        store_host=b"s" * store,
        reconsume_times=9,
        prepared_transaction_offset=10,
    )


def test_each_field_is_where_the_table_says() -> None:
    assert len(ROWS) == len(RecordHead._fields)
    for field, (at, size) in zip(RecordHead._fields, ROWS, strict=True):
        assert head_struct(field).size == at + size
        named = f"{field.removesuffix('_ms').upper()}_AT"
        assert getattr(record_head, named, at) == at
    assert record_head.HEAD_SIZE_BYTES == sum(ROWS[-1]) == 88


def test_some_fields_are_read_as_the_whole_head_has_them() -> None:
    head, *_ = split_record(record())
    for first, second in zip(RecordHead._fields, RecordHead._fields[2:], strict=False):
        values = head_struct(first, second).unpack_from(record())
        assert values == (getattr(head, first), getattr(head, second))


@pytest.mark.parametrize(("born", "store"), HOSTS)
def test_the_body_starts_behind_the_hosts(born: int, store: int) -> None:
    data = record(born, store)
    head, start, _, _ = split_record(data)
    assert head.born_host == b"b" * born
    assert head.store_host == b"s" * store
    assert body_start(head.sys_flag) == start == RECORD_HEADS[born, store].size
    assert start <= HEAD_SIZE_BYTES_MAX
    assert data[start : start + 4] == b"body"


@pytest.mark.parametrize(("born", "store"), HOSTS)
def test_the_columns_of_the_pipeline_are_the_same(born: int, store: int) -> None:
    data = record(born, store)
    head, start, topic_at, properties_at = split_record(data)
    records = read_records(np.frombuffer(data, np.uint8), np.array([0]))
    assert records.sound.all()
    assert [int(column[0]) for column in records.heads.values() if column.dtype.kind != "V"] == [
        value for value in head if not isinstance(value, bytes)
    ]
    places = (records.body_start, records.topic_start, records.properties_start)
    assert [int(place[0]) for place in places] == [start, topic_at, properties_at]


@pytest.mark.parametrize(("born", "store"), HOSTS)
@pytest.mark.parametrize("count_sound", [checking.count_sound, fast_encoding.count_sound])
def test_the_check_of_reads_and_its_compiled_twin_know_the_same_places(
    count_sound: object, born: int, store: int
) -> None:
    data = record(born, store)
    assert callable(count_sound)

    def is_sound(changed: bytes) -> bool:
        unit = CONSUME_QUEUE_UNIT.pack(5000, len(data), 0)
        field = topic_field("Topic")
        return bool(count_sound(field, 3, 4, unit, 1, changed, 1 << 62))

    assert is_sound(data)
    looked_at = ("size_bytes", "magic", "body_crc", "queue_id", "queue_offset", "log_offset")
    for field in looked_at:
        last = head_struct(field).size - 1
        changed = data[:last] + bytes([data[last] ^ 0x40]) + data[last + 1 :]
        assert not is_sound(changed), field
    size_at = body_start(split_record(data)[0].sys_flag) - 4
    assert not is_sound(data[:size_at] + struct.pack(">i", 5) + data[size_at + 4 :])
