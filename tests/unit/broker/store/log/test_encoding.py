"""Records, keys and properties as the store writes them, field by field.

The bytes of whole records are held against RocketMQ's in test_staging.py, and against the compiled
twin in tests/property; here is what each argument does.
"""

import struct
from binascii import crc32

import pytest

from rockhopper.broker.store.log.encoding import (
    INDEX_KEY,
    drop_own_properties,
    encode_record,
    index_keys,
    queue_constants,
)
from rockhopper.broker.store.log.fast_encoding import encode_plain
from rockhopper.protocol.java_hash import index_key_hash
from rockhopper.protocol.store.message_codec import decode_message

HOST, HOST_V6 = b"\x0a\0\0\1\0\0\x16\x2e", bytes(15) + b"\1\0\0\x16\x2e"


def record(topic: str = "T", properties: bytes = b"", sys_flag: int = 0, **hosts: bytes) -> bytes:
    return encode_record(
        queue_constants(topic, 3),
        1000,
        7,
        50,
        hosts.get("store_host", HOST),
        b"body",
        properties,
        11,
        sys_flag,
        40,
        hosts.get("born_host", HOST),
        2,
        900,
    )


def test_every_field_comes_back() -> None:
    message = decode_message(record(properties=b"a\x01b\x02"))
    assert (message.topic, message.queue_id, message.queue_offset) == ("T", 3, 7)
    assert (message.commit_log_offset, message.body, message.flag) == (1000, b"body", 11)
    assert (message.born_time_ms, message.store_time_ms) == (40, 50)
    assert (message.born_host, message.born_port) == ("10.0.0.1", 5678)
    assert (message.reconsume_times, message.prepared_transaction_offset) == (2, 900)
    assert message.properties == {"a": "b"}


@pytest.mark.parametrize(
    ("topic", "magic", "field"),
    [
        ("T" * 127, 0xDAA320A7, b"\x7f" + b"T" * 127),
        ("T" * 128, 0xDAA320AB, b"\0\x80" + b"T" * 128),
    ],
)
def test_a_long_topic_takes_the_second_version(topic: str, magic: int, field: bytes) -> None:
    data = record(topic)
    size, found = struct.unpack_from(">II", data)
    assert (size, found) == (len(data), magic)
    assert field in data
    assert queue_constants(topic, 3)[1] == field


def test_the_sum_is_that_of_the_body_without_its_sign() -> None:
    assert struct.unpack_from(">I", record(), 8)[0] == crc32(b"body") & 0x7FFFFFFF


def test_the_sum_of_compiled_code_is_that_of_zlib_at_every_length() -> None:
    text = bytes(number * 37 % 251 for number in range(700))
    constants = queue_constants("T", 0)
    for size in range(600):
        body = text[size % 67 : size % 67 + size]
        plain = encode_plain(
            constants, 0, 0, 0, HOST, body, "UNIQ_KEY\x01A\x02", b"", 0, 0, 0, HOST, 0
        )
        assert plain is not None
        assert struct.unpack_from(">I", plain[0], 8)[0] == crc32(body) & 0x7FFFFFFF


@pytest.mark.parametrize("claimed", [0, 0x10, 0x20, 0x30])
def test_widths_of_hosts_are_what_they_are(claimed: int) -> None:
    for born, store, flags in (
        (HOST, HOST, 0),
        (HOST_V6, HOST, 0x10),
        (HOST, HOST_V6, 0x20),
        (HOST_V6, HOST_V6, 0x30),
    ):
        message = decode_message(record(sys_flag=claimed | 2, born_host=born, store_host=store))
        assert message.sys_flag == flags | 2
        assert (message.born_port, message.store_port) == (5678, 5678)


def test_the_longest_properties_fit_and_longer_ones_do_not() -> None:
    assert decode_message(record(properties=b"a\x01" + b"b" * 32_764 + b"\x02")).properties
    with pytest.raises(struct.error):
        record(properties=bytes(32_768))


def test_keys_are_the_unique_one_and_each_word() -> None:
    constants = queue_constants("T", 0)
    packed = index_keys(constants, 1000, "U", "k1  k2")
    assert list(INDEX_KEY.iter_unpack(packed)) == [
        (index_key_hash("T", key), 1000) for key in ("U", "k1", "k2")
    ]
    assert index_keys(constants, 1000, None, "") == index_keys(constants, 1000, "", None) == b""


def test_what_is_the_brokers_own_is_left_out_of_copies() -> None:
    kept = drop_own_properties({"a": "b", "TIMER_ORIGIN": "x", "KEYS": "k"})
    assert kept == {"a": "b", "KEYS": "k"}
