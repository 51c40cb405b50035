"""Batches: all messages or none; inner batches give their messages back."""

import struct

import pytest

from rockhopper.protocol.compression import compress_zlib
from rockhopper.protocol.errors import MalformedBatchError, MalformedMessageError
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.store.message_codec import (
    SYS_FLAG_COMPRESSED_ZLIB,
    SYS_FLAG_INNER_BATCH,
    SYS_FLAG_NEED_UNWRAP,
    decode_batch,
    decode_messages,
    encode_batch,
    unwrap_inner_batch,
)
from tests.support.records import encode_message

# Two messages as the reference packed them: b1 with KEYS, WAIT and TAGS, b2 with WAIT.
BATCH = bytes.fromhex(
    "00000034000000000000000000000000000000026231001c4b455953016b31025741495401747275650254"
    "41475301546167410200000022000000000000000000000000000000026232000a57414954017472756502"
)
MESSAGES = [
    (0, b"b1", b"KEYS\x01k1\x02WAIT\x01true\x02TAGS\x01TagA\x02"),
    (0, b"b2", b"WAIT\x01true\x02"),
]
INNER = SYS_FLAG_INNER_BATCH | SYS_FLAG_NEED_UNWRAP


def test_reads_and_writes_the_batch_of_the_reference() -> None:
    assert decode_batch(BATCH) == MESSAGES
    assert encode_batch(MESSAGES) == BATCH


def test_flag_and_empty_parts_travel() -> None:
    messages = [(-5, b"", b""), (7, b"\0" * 10, b"\xff")]
    assert decode_batch(encode_batch(messages)) == messages


def changed(offset: int, layout: str, value: int) -> bytes:
    copy = bytearray(BATCH)
    struct.pack_into(layout, copy, offset, value)
    return bytes(copy)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(changed(0, ">i", 0), id="total 0"),
        pytest.param(changed(0, ">i", -1), id="total -1"),
        pytest.param(changed(0, ">i", 51), id="total too small"),
        pytest.param(changed(0, ">i", 53), id="total too large"),
        pytest.param(changed(16, ">i", 2**31 - 1), id="body of 2 GiB"),
        pytest.param(changed(16, ">i", -1), id="body -1"),
        pytest.param(changed(16, ">i", -22), id="body size that leads back"),
        pytest.param(changed(16, ">i", 3), id="body too large"),
        pytest.param(changed(22, ">h", -3), id="properties -3"),
        pytest.param(changed(22, ">h", 0x7FFF), id="properties beyond the end"),
        pytest.param(BATCH[:-1], id="tail cut"),
        pytest.param(BATCH[: 0x34 + 10], id="second head cut"),
        pytest.param(BATCH + b"\0", id="one byte more"),
        pytest.param(b"hello", id="not a batch"),
    ],
)
def test_batch_whose_sizes_do_not_add_up_is_refused_whole(body: bytes) -> None:
    with pytest.raises(MalformedBatchError):
        decode_batch(body)


def test_more_messages_than_allowed_are_refused() -> None:
    body = encode_batch([(0, b"", b"")] * 3)
    assert len(decode_batch(body, count_max=3)) == 3
    with pytest.raises(MalformedBatchError, match="more than 2 messages"):
        decode_batch(body, count_max=2)


def test_as_many_messages_as_a_body_holds_are_taken() -> None:
    body = encode_batch([(0, b"", b"")])
    assert len(decode_batch(body * ((4 << 20) // len(body)))) == 190_650


def test_what_does_not_fit_is_not_written() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        encode_batch([(0, b"", bytes(32_768))])


def inner_record(body: bytes, sys_flag: int = INNER, **properties: str) -> bytes:
    return encode_message(
        topic="T",
        body=body,
        sys_flag=sys_flag,
        queue_offset=3,
        commit_log_offset=77,
        store_time_ms=5,
        reconsume_times=2,
        properties={"INNER_NUM": "2", "UNIQ_KEY": "U", **properties},
    )


def test_messages_of_an_inner_batch_count_from_its_base() -> None:
    first, second = decode_messages(inner_record(BATCH, INNER_BASE="10"))
    assert (first.queue_offset, first.body, first.keys, first.tags) == (10, b"b1", ["k1"], "TagA")
    assert (second.queue_offset, second.body) == (11, b"b2")
    assert second.properties == {"WAIT": "true"}
    assert (second.commit_log_offset, second.store_time_ms, second.reconsume_times) == (77, 5, 2)
    assert second.sys_flag == 0


def test_without_a_base_the_queue_offset_counts() -> None:
    assert [each.queue_offset for each in decode_messages(inner_record(BATCH))] == [3, 4]


@pytest.mark.parametrize("base", ["x", "-1", "٣", "9" * 19, "9" * 5000])
def test_base_that_is_no_offset_does_not_count(base: str) -> None:
    messages = decode_messages(inner_record(BATCH, INNER_BASE=base))
    assert [message.queue_offset for message in messages] == [3, 4]


def test_compressed_inner_batch_is_unwrapped() -> None:
    record = inner_record(compress_zlib(BATCH), INNER | SYS_FLAG_COMPRESSED_ZLIB)
    messages = decode_messages(record)
    assert [message.decompressed_body() for message in messages] == [b"b1", b"b2"]


def test_record_itself_is_there_for_who_wants_it() -> None:
    (record,) = decode_messages(inner_record(BATCH), unwrap=False)
    assert record.body == BATCH
    assert record.properties["INNER_NUM"] == "2"


def test_ordinary_record_is_its_own_only_message() -> None:
    message = StoredMessage("T", 0, 0, 0, b"x")
    assert list(unwrap_inner_batch(message)) == [message]


def test_inner_batch_that_is_broken_is_an_error() -> None:
    with pytest.raises(MalformedMessageError, match="offset 77"):
        decode_messages(inner_record(BATCH[:-1]))
