"""Records of messages: the reference's bytes in and out, damage noticed."""

import mmap
import struct

import pytest

from rockhopper.protocol.errors import MalformedMessageError
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.store.message_codec import (
    body_crc,
    check_record,
    decode_message,
    decode_messages,
    encode_stored_message,
    host_bytes,
)
from rockhopper.protocol.store.record_head import MAGIC_V1, MAGIC_V2
from tests.support.records import encode_message

# Topic TopicTest, body hello, tag TagA, as the reference encoded it.
V1_RECORD = bytes.fromhex(
    "00000073daa320a73610a686000000010000000000000000000000020000000000000400000000000000"
    "018bcfe568007f0000010000c3500000018bcfe568017f00000100002a9f000000000000000000000000"
    "0000000568656c6c6f09546f70696354657374000a54414753015461674102"
)
V1_MESSAGE = StoredMessage(
    topic="TopicTest",
    queue_id=1,
    queue_offset=2,
    commit_log_offset=1024,
    body=b"hello",
    born_time_ms=1_700_000_000_000,
    born_host="127.0.0.1",
    born_port=50000,
    store_time_ms=1_700_000_000_001,
    store_host="127.0.0.1",
    store_port=10911,
    body_crc=907060870,
    properties={"TAGS": "TagA"},
    size_bytes=115,
)
# The first record of a store that the reference wrote.
STORE_RECORD = (
    bytes.fromhex(
        "000000f0 daa320a7 1988c6ca 00000000 00000007 0000000000000000 0000000000000000 00000000"
        "0000018bcfe5687b 010203040000162e 000001a1f8404320 0a00000100002a9f 00000000"
        "0000000000000000 00000064"
    )
    + bytes(100)
    + b"\x06TopicA\x00\x2bKEYS\x01k0 kk\x02UNIQ_KEY\x01UKTopicA0100\x02TAGS\x01TagA\x02"
)


def changed(record: bytes, offset: int, layout: str, value: int) -> bytes:
    """The record with one number in it replaced."""
    copy = bytearray(record)
    struct.pack_into(layout, copy, offset, value)
    return bytes(copy)


def test_reads_the_record_of_the_reference() -> None:
    assert decode_message(V1_RECORD, check_crc=True) == V1_MESSAGE


def test_reads_the_record_of_a_store_of_the_reference() -> None:
    message = decode_message(STORE_RECORD, check_crc=True)
    assert message.topic == "TopicA"
    assert message.flag == 7
    assert (message.born_host, message.born_port) == ("1.2.3.4", 5678)
    assert (message.store_host, message.store_port) == ("10.0.0.1", 10911)
    assert message.keys == ["k0", "kk"]
    assert message.message_id == "UKTopicA0100"
    assert message.size_bytes == 0xF0


@pytest.mark.parametrize("record", [V1_RECORD, STORE_RECORD])
def test_writes_what_the_reference_wrote(record: bytes) -> None:
    assert encode_stored_message(decode_message(record)) == record


def test_a_stored_message_is_written_with_separators_in_its_values() -> None:
    message = decode_message(V1_RECORD)
    message.properties = {"my": "a\x01b", "UNIQ_KEY": "K"}
    again = decode_message(encode_stored_message(message))
    assert again.properties == message.properties
    with pytest.raises(ValueError, match="separate properties"):
        encode_message(topic="T", properties=message.properties)


def test_a_stored_message_is_written_without_optional_properties_that_do_not_fit() -> None:
    message = decode_message(V1_RECORD)
    own = {"my": "x" * 32_763}
    message.properties = own | {"TRANSACTION_CHECK_TIMES": "1"}
    assert decode_message(encode_stored_message(message)).properties == own
    message.properties = own | {"POP_CK": "1"}
    with pytest.raises(ValueError, match="32767 are allowed"):
        encode_stored_message(message)


def test_crc_is_that_of_the_reference() -> None:
    assert body_crc(b"hello") == 907060870
    assert body_crc(b"") == 0


def test_topic_above_127_bytes_makes_a_v2_record() -> None:
    short, long = encode_message(topic="x" * 127), encode_message(topic="x" * 128)
    assert short[4:8] == MAGIC_V1.to_bytes(4, "big")
    assert long[4:8] == MAGIC_V2.to_bytes(4, "big")
    assert len(long) - len(short) == 2
    assert decode_message(long).topic == "x" * 128
    assert decode_message(encode_message(topic="ü" * 64)).topic == "ü" * 64


@pytest.mark.parametrize("born", ["1.2.3.4", "fe80::1"])
@pytest.mark.parametrize("store", ["10.0.0.1", "::1"])
def test_hosts_may_be_ipv6(born: str, store: str) -> None:
    record = encode_message(
        topic="T",
        body=b"b",
        sys_flag=0x30 | 1,
        born_host=host_bytes(born, 1),
        store_host=host_bytes(store, 2),
    )
    message = decode_message(record)
    assert (message.born_host, message.born_port) == (born, 1)
    assert (message.store_host, message.store_port) == (store, 2)
    assert message.sys_flag == 1 | (0x10 if ":" in born else 0) | (0x20 if ":" in store else 0)
    assert len(record) == 91 + 2 + 12 * ((":" in born) + (":" in store))


def test_properties_may_be_given_in_any_form() -> None:
    records = {
        encode_message(topic="T", properties=properties)
        for properties in ({"a": "é"}, "a\x01é\x02", "a\x01é\x02".encode())
    }
    assert len(records) == 1


def test_reads_from_any_buffer_and_offset() -> None:
    data = b"junk" + V1_RECORD + b"junk"
    with mmap.mmap(-1, len(data)) as mapped:
        mapped[:] = data
        for buffer in (data, bytearray(data), memoryview(data), mapped):
            assert decode_message(buffer, 4) == V1_MESSAGE


def test_records_that_follow_one_another_are_a_list() -> None:
    messages = decode_messages(V1_RECORD + STORE_RECORD + V1_RECORD)
    assert [message.topic for message in messages] == ["TopicTest", "TopicA", "TopicTest"]
    assert decode_messages(b"") == []


def test_rest_that_is_no_record_is_an_error() -> None:
    with pytest.raises(MalformedMessageError):
        decode_messages(V1_RECORD + V1_RECORD[:-1])


def test_damaged_body_is_noticed_when_asked() -> None:
    damaged = V1_RECORD.replace(b"hello", b"hellp")
    assert decode_message(damaged).body == b"hellp"
    with pytest.raises(MalformedMessageError, match=r"offset 1024 is damaged.*not 907060870"):
        decode_message(damaged, check_crc=True)


@pytest.mark.parametrize("size_bytes", [0, 1, 7, 8, 50, 90, 114])
def test_record_that_is_cut_off_is_refused(size_bytes: int) -> None:
    with pytest.raises(MalformedMessageError):
        decode_message(V1_RECORD[:size_bytes])


@pytest.mark.parametrize(
    ("offset", "layout", "value"),
    [
        (0, ">i", -1),
        (0, ">i", 0),
        (0, ">i", 90),
        (0, ">i", 114),
        (0, ">i", 2**31 - 1),
        (4, ">I", 0),
        (4, ">I", 0xCBD43194),
        (4, ">I", MAGIC_V2),
        (36, ">i", 0x10),
        (36, ">i", 0x30),
        (84, ">i", -1),
        (84, ">i", 4),
        (84, ">i", 6),
        (84, ">i", 2**31 - 1),
        (93, ">B", 8),
        (93, ">B", 10),
        (93, ">B", 255),
        (103, ">h", 9),
        (103, ">h", 11),
        (103, ">h", -1),
        (94, ">B", 0xFF),
    ],
)
def test_record_whose_sizes_do_not_add_up_is_refused(offset: int, layout: str, value: int) -> None:
    with pytest.raises(MalformedMessageError):
        decode_message(changed(V1_RECORD, offset, layout, value))


def test_v2_topic_size_is_checked() -> None:
    record = encode_message(topic="x" * 128)
    with pytest.raises(MalformedMessageError):
        decode_message(changed(record, 88, ">H", 0x8000))


@pytest.mark.parametrize(
    "arguments",
    [
        {"queue_id": 2**31},
        {"flag": -(2**31) - 1},
        {"properties": "x" * 32_768},
        {"topic": "x" * 32_768},
        {"born_host": b"1234"},
        {"properties": {"a": "\x01"}},
    ],
)
def test_what_does_not_fit_is_not_written(arguments: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"."):
        encode_message(**{"topic": "T", **arguments})  # type: ignore[arg-type]


def test_crc_of_no_body_says_nothing() -> None:
    record = changed(encode_message(topic="T"), 8, ">I", 7)
    assert decode_message(record, check_crc=True).body == b""
    assert check_record(record, 0, len(record), check_crc=True).is_ok
