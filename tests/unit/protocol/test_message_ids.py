"""Message ids and hosts, by the reference's examples."""

import os
from datetime import datetime

import pytest

from rockhopper.protocol.errors import FieldError
from rockhopper.protocol.message_ids import UniqueIds
from rockhopper.protocol.store.message_codec import (
    decode_offset_message_id,
    host_bytes,
    host_text,
    ip_bytes,
    ip_text,
    make_unique_id,
    offset_message_id,
)


@pytest.mark.parametrize(
    ("ip", "port", "offset", "expected"),
    [
        ("127.0.0.1", 10911, 1024, "7F00000100002A9F0000000000000400"),
        ("10.0.0.1", 10911, 240, "0A00000100002A9F00000000000000F0"),
        ("::1", 10911, 1024, "0000000000000000000000000000000100002A9F0000000000000400"),
    ],
)
def test_offset_ids_are_those_of_the_reference(
    ip: str, port: int, offset: int, expected: str
) -> None:
    assert offset_message_id(ip_bytes(ip), port, offset) == expected
    assert decode_offset_message_id(expected) == (ip, port, offset)
    assert decode_offset_message_id(expected.lower()) == (ip, port, offset)


@pytest.mark.parametrize(
    "text", ["", "7F", "x" * 32, "7F00000100002A9F000000000000040", "7F " * 16, "0" * 48, "0" * 64]
)
def test_other_text_is_no_offset_id(text: str) -> None:
    with pytest.raises(FieldError, match="msgId"):
        decode_offset_message_id(text)


@pytest.mark.parametrize(
    ("ip", "port", "expected"),
    [
        ("1.2.3.4", 5678, "010203040000162e"),
        ("10.0.0.1", 10911, "0a00000100002a9f"),
        ("::ffff:1.2.3.4", 5678, "010203040000162e"),
        ("::1", 1, "0000000000000000000000000000000100000001"),
        ("fe80::1%eth0", 1, "fe80000000000000000000000000000100000001"),
    ],
)
def test_hosts_are_those_of_records(ip: str, port: int, expected: str) -> None:
    assert host_bytes(ip, port).hex() == expected


def test_hosts_read_back() -> None:
    assert host_text(bytes.fromhex("010203040000162e")) == ("1.2.3.4", 5678)
    assert host_text(bytes(15) + b"\x01" + bytes(4)) == ("::1", 0)
    assert ip_text(bytes(4)) == "0.0.0.0"


@pytest.mark.parametrize("ip", ["localhost", "", "1.2.3", "1.2.3.256"])
def test_names_are_no_addresses(ip: str) -> None:
    with pytest.raises(ValueError, match="address"):
        ip_bytes(ip)


def test_unique_id_has_the_layout_of_the_reference() -> None:
    month_start_ms = int(datetime(2024, 2, 1).timestamp() * 1000)
    unique_id = make_unique_id(b"\x7f\0\0\1", 0x12345, 0x1AB2C3D4, month_start_ms + 0x5E0F, 0x10007)
    assert unique_id == "7F00000123451AB2C3D400005E0F0007"


def test_time_in_a_unique_id_starts_again_with_each_month() -> None:
    for month in (1, 2, 12, 1):
        start_ms = int(datetime(2024, month, 1).timestamp() * 1000)
        assert make_unique_id(bytes(4), 0, 0, start_ms, 0)[20:28] == "00000000"
        assert make_unique_id(bytes(4), 0, 0, start_ms - 1, 0)[20:28] != "00000000"


def test_unique_id_of_an_ipv6_host_is_longer() -> None:
    assert len(make_unique_id(bytes(16), 1, 2, 1_700_000_000_000, 3)) == 56


def test_no_two_ids_are_alike_and_the_counter_turns_over_without_a_longer_one() -> None:
    now_ms = 1_700_000_000_000
    one, other = (UniqueIds(b"\x0a\0\0\1", lambda: now_ms) for _ in range(2))
    ids = [one.next() for _ in range(0x10000)]
    assert len({*ids, other.next()}) == 0x10001
    assert {len(each) for each in ids} == {32}
    assert ids[0].startswith(f"0A000001{os.getpid() & 0xFFFF:04X}{one.salt:08X}")
    assert one.next() == ids[0]
    now_ms += 1
    assert one.next() not in ids


def test_ids_follow_the_clock_and_the_salt() -> None:
    now_ms = [1_700_000_000_000]
    ids = UniqueIds(b"\x0a\0\0\x01", lambda: now_ms[0])
    for count, later_ms in enumerate((0, 0, 1, 40 * 86_400_000)):
        now_ms[0] += later_ms
        ids.salt = count
        expected = make_unique_id(b"\x0a\0\0\x01", os.getpid(), count, now_ms[0], count)
        assert ids.next() == expected


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_an_id_may_be_given_its_time() -> None:
    ids = UniqueIds(b"\x0a\0\0\x01", lambda: 1_700_000_000_000)
    given, own = ids.next_at(1_700_000_000_001), ids.next()
    assert int(given[20:28], 16) == int(own[20:28], 16) + 1
    assert int(given[28:], 16) == int(own[28:], 16) - 1


def test_a_forked_child_makes_ids_of_its_own() -> None:
    ids = UniqueIds(b"\x0a\0\0\x01", lambda: 1_700_000_000_000)
    ids.next()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, ids.next().encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 100).decode()[8:12] == f"{child & 0xFFFF:04X}"
    os.close(read)
    os.close(write)
