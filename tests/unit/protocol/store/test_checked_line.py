"""A document with its checksum: whole, or refused."""

from zlib import crc32

import pytest

from rockhopper.protocol.store.store_paths import decode_checked_line, encode_checked_line

DOCUMENT = {"name": "café", "numbers": [1, 2]}
LINE = b'{"name":"caf\\u00e9","numbers":[1,2]}'


def test_it_is_one_line_of_json_and_one_with_its_checksum() -> None:
    data = encode_checked_line(DOCUMENT)
    assert data == LINE + b"\n" + b"%08x" % crc32(LINE) + b"\n"
    assert decode_checked_line(data) == DOCUMENT


@pytest.mark.parametrize("cut", [0, 1, len(LINE), len(LINE) + 5, len(LINE) + 9])
def test_a_part_of_it_is_refused(cut: int) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        decode_checked_line(encode_checked_line(DOCUMENT)[:cut])


def test_any_flipped_bit_is_refused_unless_it_says_the_same() -> None:
    data = encode_checked_line(DOCUMENT)
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            assert decode_checked_line(bytes(damaged)) == DOCUMENT, bit
        except ValueError:
            continue
        assert bit // 8 > len(LINE), bit
