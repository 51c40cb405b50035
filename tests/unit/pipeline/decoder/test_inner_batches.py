"""Unwrapped: each message of a batch becomes a record of its own, and others stay as they are."""

import zlib

import numpy as np
import pytest

from rockhopper.pipeline.decoder.inner_batches import Unwrapped
from rockhopper.pipeline.decoder.records import Records, read_records
from rockhopper.protocol.store.message_codec import decode_message, encode_batch
from rockhopper.protocol.sys_flags import (
    SYS_FLAG_COMPRESSED_ZLIB,
    SYS_FLAG_INNER_BATCH,
    SYS_FLAG_NEED_UNWRAP,
)
from tests.support.records import encode_message

WRAPPED = SYS_FLAG_INNER_BATCH | SYS_FLAG_NEED_UNWRAP
BATCH = encode_batch([(1, b"one", b"k\x01v\x02"), (0, b"", b"")])


def records_of(*records: bytes) -> Records:
    starts = np.cumsum([0, *(len(record) for record in records)])[:-1].astype(np.int64)
    return read_records(np.frombuffer(b"".join(records), np.uint8), starts)


def plain(body: bytes, queue_offset: int) -> bytes:
    return encode_message(topic="T", body=body, queue_offset=queue_offset)


def batch(body: bytes = BATCH, base: str = "5", sys_flag: int = WRAPPED, place: int = 0) -> bytes:
    properties = f"INNER_BASE\x01{base}\x02INNER_NUM\x012\x02"
    return encode_message(
        topic="T",
        body=body,
        properties=properties,
        sys_flag=sys_flag,
        queue_offset=9,
        commit_log_offset=place,
    )


def messages(unwrapped: Unwrapped) -> list[tuple[int, bytes, int]]:
    found = []
    for start, end in zip(unwrapped.records.offsets, unwrapped.records.ends, strict=True):
        message = decode_message(unwrapped.records.data[start:end].tobytes())
        found.append((message.queue_offset, message.body, message.sys_flag))
    return found


def test_records_without_a_batch_are_handed_on() -> None:
    records = records_of(plain(b"a", 0), plain(b"b", 1))
    unwrapped = Unwrapped(records)
    assert unwrapped.records is records
    assert (unwrapped.row_of, unwrapped.failures) == (None, {})


@pytest.mark.parametrize("flag", [SYS_FLAG_INNER_BATCH, SYS_FLAG_NEED_UNWRAP])
def test_one_flag_alone_makes_no_batch(flag: int) -> None:
    records = records_of(batch(sys_flag=flag))
    assert Unwrapped(records).records is records


def test_each_message_has_its_offset_and_the_place_of_the_batch() -> None:
    unwrapped = Unwrapped(records_of(plain(b"a", 4), batch(place=777), plain(b"z", 7)))
    assert messages(unwrapped) == [(4, b"a", 0), (5, b"one", 0), (6, b"", 0), (7, b"z", 0)]
    assert unwrapped.row_of is not None
    assert unwrapped.row_of.tolist() == [0, 1, 1, 2]
    start, end = unwrapped.records.offsets[1], unwrapped.records.ends[1]
    first = decode_message(unwrapped.records.data[start:end].tobytes())
    assert (first.flag, first.properties) == (1, {"k": "v"})
    assert first.commit_log_offset == 777


@pytest.mark.parametrize("base", ["", "-1", "x", "9" * 19, "\N{SUPERSCRIPT TWO}"])
def test_without_a_base_the_records_own_offset_counts(base: str) -> None:
    assert [offset for offset, _, _ in messages(Unwrapped(records_of(batch(base=base))))] == [9, 10]


def test_a_compressed_batch_is_decompressed() -> None:
    flags = WRAPPED | SYS_FLAG_COMPRESSED_ZLIB
    unwrapped = Unwrapped(records_of(batch(zlib.compress(BATCH), sys_flag=flags)))
    assert messages(unwrapped) == [(5, b"one", 0), (6, b"", 0)]


@pytest.mark.parametrize(
    ("body", "flags"), [(BATCH[:-1], 0), (b"no zlib", SYS_FLAG_COMPRESSED_ZLIB)]
)
def test_what_cannot_be_unwrapped_stays_and_is_named(body: bytes, flags: int) -> None:
    broken = batch(body, sys_flag=WRAPPED | flags)
    unwrapped = Unwrapped(records_of(plain(b"a", 0), broken, plain(b"b", 1)))
    assert list(unwrapped.failures) == [1]
    assert unwrapped.failures[1]
    start, end = unwrapped.records.offsets[1], unwrapped.records.ends[1]
    assert unwrapped.records.data[start:end].tobytes() == broken
    assert len(unwrapped.records.offsets) == 3
