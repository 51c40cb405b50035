"""What recovery asks of the log: is there a record, is it whole, is it at its place."""

import pytest

from rockhopper.protocol.store.message_codec import RecordStatus, check_record
from tests.support.records import encode_message
from tests.unit.protocol.store.message_codec.test_record import STORE_RECORD, V1_RECORD, changed


def test_whole_record_tells_what_dispatch_needs() -> None:
    check = check_record(STORE_RECORD, 0, len(STORE_RECORD), 0)
    assert check.is_ok
    assert not check.is_blank
    assert check.size_bytes == 0xF0
    assert check.topic == "TopicA"
    assert check.store_time_ms == 0x1A1F8404320
    assert check.properties == {"KEYS": "k0 kk", "UNIQ_KEY": "UKTopicA0100", "TAGS": "TagA"}
    assert (check.queue_id, check.queue_offset, check.sys_flag) == (0, 0, 0)


def test_record_may_stand_anywhere_in_the_buffer() -> None:
    data = bytes(10) + V1_RECORD + bytes(10)
    check = check_record(data, 10, len(data) - 10, 1024)
    assert check.is_ok
    assert (check.queue_id, check.queue_offset, check.commit_log_offset) == (1, 2, 1024)


def test_v2_record_with_ipv6_hosts_is_read() -> None:
    record = encode_message(
        topic="x" * 200,
        body=b"b",
        born_host=bytes(20),
        store_host=bytes(20),
        store_time_ms=77,
        prepared_transaction_offset=5,
    )
    check = check_record(record, 0, len(record), 0)
    assert check.topic == "x" * 200
    assert check.store_time_ms == 77
    assert check.prepared_transaction_offset == 5


@pytest.mark.parametrize(("blank", "size"), [("00000082cbd43194", 130), ("00000008cbd43194", 8)])
def test_blank_records_of_the_reference_end_a_file(blank: str, size: int) -> None:
    data = bytes.fromhex(blank).ljust(size, b"\0")
    check = check_record(data, 0, len(data), 0)
    assert check.is_blank
    assert check.size_bytes == size


@pytest.mark.parametrize("size", [7, -1, 131])
def test_blank_record_of_another_size_is_not_believed(size: int) -> None:
    data = size.to_bytes(4, "big", signed=True) + bytes.fromhex("cbd43194") + bytes(122)
    assert check_record(data, 0, len(data)).status is RecordStatus.INVALID


def test_end_of_the_log_is_invalid_without_a_size() -> None:
    check = check_record(bytes(200), 0, 200, 0)
    assert check.status is RecordStatus.INVALID
    assert check.size_bytes == 0
    assert "magic" in check.reason


@pytest.mark.parametrize("available", [0, 4, 7, 50, 114])
def test_record_that_is_not_all_there_is_invalid(available: int) -> None:
    check = check_record(V1_RECORD, 0, available)
    assert check.status is RecordStatus.INVALID
    assert check.size_bytes == 0


def test_record_that_stands_elsewhere_than_it_says_is_invalid() -> None:
    check = check_record(V1_RECORD, 0, len(V1_RECORD), 2048)
    assert check.status is RecordStatus.INVALID
    assert check.size_bytes == 0
    assert "2048 has the commit log offset 1024" in check.reason
    assert check_record(V1_RECORD, 0, len(V1_RECORD), None).is_ok


def test_damaged_body_tells_how_much_to_skip() -> None:
    damaged = V1_RECORD.replace(b"hello", b"hellp")
    check = check_record(damaged, 0, len(damaged), 1024, check_crc=True)
    assert check.status is RecordStatus.INVALID
    assert check.size_bytes == 115
    assert "CRC" in check.reason
    assert check_record(damaged, 0, len(damaged), 1024, check_crc=False).is_ok


@pytest.mark.parametrize(
    ("offset", "layout", "value"),
    [(0, ">i", -1), (0, ">i", 116), (84, ">i", 4), (93, ">B", 8), (103, ">h", 9), (94, ">B", 0xFF)],
)
def test_sizes_that_do_not_add_up_are_invalid(offset: int, layout: str, value: int) -> None:
    data = changed(V1_RECORD, offset, layout, value)
    check = check_record(data, 0, len(data), 1024)
    assert check.status is RecordStatus.INVALID
    assert check.size_bytes == 0
    assert check.reason
