"""Records of notes: every one of which a copy is sound, and what of the others is known."""

import random
from itertools import pairwise

import pytest

from rockhopper.protocol.store.journal_records import Record, decode_records, encode_record
from tests.support.rot import flipped

RECORDS: list[Record] = [(1, b""), (2, b"short"), (7, b"x" * 40), (3, bytes(16)), (3, b"short")]
DATA = b"".join([encode_record(*record) for record in RECORDS])
# Kind 1 with the payload "ab", by hand: size, CRC-32, kind, payload; then as the second copy.
AB = bytes.fromhex("00000002 21d9e9b7 01 616200000002 c0ecf237 81 6162")


def test_a_record_is_written_twice_and_the_copies_differ_in_kind_and_checksum() -> None:
    assert encode_record(1, b"ab") == AB
    assert decode_records(AB).records == [(1, b"ab")]


def test_no_bytes_are_no_records() -> None:
    assert decode_records(b"") == ([], 0, [], False, 0, False)


def test_records_come_back_once() -> None:
    read = decode_records(DATA)
    assert read.records == RECORDS
    assert (read.damages, read.is_lossy, read.sound_count) == ([], False, 5)


def test_any_flipped_bit_is_mended_from_the_other_copy() -> None:
    for bit in range(len(DATA) * 8):
        data = flipped(DATA, bit)
        read = decode_records(data)
        assert read.records == RECORDS, bit
        assert read.damages
        assert not read.is_lossy, bit


def test_a_cut_at_any_length_keeps_what_is_in_front() -> None:
    ends = [0]
    for record in RECORDS:
        ends.append(ends[-1] + len(encode_record(*record)))
    for size_bytes in range(len(DATA)):
        read = decode_records(DATA[:size_bytes])
        # A record counts from its first copy on.
        count = sum(size_bytes >= start + (end - start) // 2 for start, end in pairwise(ends))
        assert read.records == RECORDS[:count], size_bytes
        assert read.is_lossy == (size_bytes - ends[count] > 0), size_bytes


def test_a_damage_over_both_copies_costs_that_record_and_is_known() -> None:
    dice = random.Random(1)
    size = len(encode_record(*RECORDS[0])) + len(encode_record(*RECORDS[1]))
    data = DATA[:size] + dice.randbytes(60) + DATA[size + 60 :]
    read = decode_records(data)
    assert read.records == RECORDS[:2] + RECORDS[2:][1:]
    assert read.is_lossy
    assert read.sound_count == 2


def test_single_records_of_early_builds_are_read_and_no_damage_passes_for_a_copy() -> None:
    single = [encode_record(1, b"%04d" % number)[:13] for number in range(5)]
    assert decode_records(b"".join(single)).records == [(1, b"%04d" % n) for n in range(5)]
    for bit in range(13 * 8):
        damaged = flipped(single[2], bit)
        read = decode_records(b"".join([*single[:2], bytes(damaged), *single[3:]]))
        # With the bit of the kind flipped it is a record of another kind, with a wrong CRC.
        assert read.is_lossy
        assert read.sound_count == 2


def test_the_same_record_again_is_another_one() -> None:
    assert decode_records(AB * 3).records == [(1, b"ab")] * 3
    # The first copy of the second one is gone, and its second copy is not that of the first one.
    assert decode_records(AB + AB[11:]).records == [(1, b"ab")] * 2


@pytest.mark.parametrize("kept", [slice(None, 11), slice(11, None)], ids=["first", "second"])
def test_either_copy_alone_is_the_record(kept: slice) -> None:
    read = decode_records(AB[kept] + DATA)
    assert read.records == [(1, b"ab"), *RECORDS]
    assert (read.damages, read.is_lossy) == ([], False)


def test_what_is_damaged_is_named_byte_by_byte_and_the_next_sound_copy_is_found() -> None:
    damaged = bytearray(DATA + AB + DATA)
    start = len(DATA)
    damaged[start + 10] ^= 0xFF
    read = decode_records(bytes(damaged))
    assert read.records == [*RECORDS, (1, b"ab"), *RECORDS]
    assert read.damages == [(start, start + 11)]
    assert not read.is_lossy
    assert read.size_bytes == len(damaged)


@pytest.mark.parametrize(("byte_count", "is_lossy"), [(1, False), (2, False), (3, True)])
def test_a_second_copy_is_known_by_its_first_if_no_more_than_two_bytes_differ(
    byte_count: int, is_lossy: bool
) -> None:
    second = bytearray(AB[11:])
    for position in range(byte_count):
        second[4 + position] ^= 0xFF
    read = decode_records(AB[:11] + second + DATA)
    assert read.records == [(1, b"ab"), *RECORDS]
    assert read.damages == [(11, 22)]
    assert (read.is_lossy, read.sound_count) == (is_lossy, 1 if is_lossy else 1 + len(RECORDS))


@pytest.mark.parametrize("foreign", [b"?", b"?" * 11, bytes(22), b"\xff" * 30])
def test_bytes_of_another_length_than_a_copy_are_what_somebody_lost(foreign: bytes) -> None:
    read = decode_records(AB + foreign + AB)
    assert read.records == [(1, b"ab")] * 2
    assert (read.damages, read.is_lossy, read.sound_count) == ([(22, 22 + len(foreign))], True, 1)


def test_half_a_second_copy_is_a_torn_one_only_at_the_end() -> None:
    assert not decode_records(AB[:16]).is_lossy
    read = decode_records(AB[:16] + DATA)
    assert read.records == [(1, b"ab"), *RECORDS]
    assert (read.damages, read.is_lossy) == ([(11, 16)], True)


def test_what_stands_between_or_behind_the_copies_is_a_loss() -> None:
    between = decode_records(AB[:11] + b"?????" + AB[11:])
    assert (between.damages, between.is_lossy) == ([(11, 16)], True)
    behind = decode_records(flipped(AB, 8 * 21) + b"?????")
    assert (behind.damages, behind.is_lossy) == ([(11, 27)], True)
    assert between.records == behind.records == [(1, b"ab")]


def test_sound_counts_up_to_the_first_loss_of_several() -> None:
    read = decode_records(AB + b"lost" + AB + b"lost again" + AB)
    assert (len(read.records), read.sound_count) == (3, 1)
    assert read.damages == [(22, 26), (48, 58)]


def test_zeros_are_no_records_though_their_checksum_may_fit() -> None:
    """Kind 0 is none: what was allocated and not written is not read as notes."""
    nothing = bytes.fromhex("00000000 d202ef8d 00")
    for data in (nothing * 3, bytes(64)):
        read = decode_records(data)
        assert (read.records, read.is_lossy) == ([], True)


@pytest.mark.parametrize("size", [3, 2**31, 2**32 - 1])
def test_a_size_that_reaches_beyond_the_end_is_damage(size: int) -> None:
    read = decode_records(size.to_bytes(4, "big") + AB[4:11])
    assert (read.records, read.damages) == ([], [(0, 11)])


def test_only_a_record_cut_off_at_the_end_is_torn() -> None:
    data = encode_record(1, b"first") + encode_record(2, b"second")
    first_bytes = len(encode_record(1, b"first"))
    for end in range(first_bytes + 1, first_bytes + 15):
        read = decode_records(data[:end])
        assert (read.records, read.is_lossy, read.is_torn) == ([(1, b"first")], True, True)
    zeroed = decode_records(data[:first_bytes] + bytes(len(data) - first_bytes))
    assert (zeroed.is_lossy, zeroed.is_torn) == (True, False)
    both = decode_records(bytes(first_bytes) + data[first_bytes : first_bytes + 12])
    assert (both.is_lossy, both.is_torn) == (True, False)
