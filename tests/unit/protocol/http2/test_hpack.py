"""Header blocks, against the RFC's examples and another implementation."""

import contextlib

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockhopper.protocol.http2.errors import HeaderCompressionError
from rockhopper.protocol.http2.hpack import FIELDS_MAX, HpackDecoder, encode_fields

NAMES = st.sampled_from([":path", ":method", "x-mq-client-id", "accept", "authorization", "x-a"])
VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=300)
FIELDS = st.lists(st.tuples(NAMES, VALUES), max_size=12)


def test_the_requests_of_the_rfc() -> None:
    """Appendix C.4: three requests over one table, in Huffman's code."""
    decoder = HpackDecoder()
    base = [(":method", "GET"), (":scheme", "http"), (":path", "/")]
    authority = (":authority", "www.example.com")
    first = decoder.decode(bytes.fromhex("828684418cf1e3c2e5f23a6ba0ab90f4ff"))
    assert first == [*base, authority]
    second = decoder.decode(bytes.fromhex("828684be5886a8eb10649cbf"))
    assert second == [*base, authority, ("cache-control", "no-cache")]
    third = decoder.decode(bytes.fromhex("828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf"))
    assert third == [
        (":method", "GET"),
        (":scheme", "https"),
        (":path", "/index.html"),
        authority,
        ("custom-key", "custom-value"),
    ]


@given(st.lists(FIELDS, max_size=6), st.booleans(), st.sampled_from([4096, 200, 0]))
def test_blocks_of_another_encoder_are_read(
    blocks: list[list[tuple[str, str]]], huffman: bool, table_size: int
) -> None:
    encoder, decoder = hpack.Encoder(), HpackDecoder()
    encoder.header_table_size = table_size
    for fields in blocks:
        assert decoder.decode(encoder.encode(fields, huffman=huffman)) == fields


@given(FIELDS)
def test_our_blocks_are_read_elsewhere_and_again(fields: list[tuple[str, str]]) -> None:
    block = encode_fields(fields)
    decoder = hpack.Decoder()
    for _ in range(2):
        read = [(_text(name), _text(value)) for name, value in decoder.decode(block)]
        assert read == fields


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


@pytest.mark.parametrize(
    "block",
    [
        pytest.param("80", id="index 0"),
        pytest.param("be", id="an index beyond the tables"),
        pytest.param("8220", id="a size behind a field"),
        pytest.param("3fe21f", id="a size of 4097"),
        pytest.param("ff8080808080", id="a number without an end"),
        pytest.param("ffffffffffff01", id="a number of six octets"),
        pytest.param("400a61", id="a text that is cut off"),
        pytest.param("40", id="no text at all"),
        pytest.param("8001610162", id="index 0 of no literal"),
        pytest.param("4081ff8161", id="a text with eight bits of padding"),
    ],
)
def test_what_no_encoder_makes_is_refused(block: str) -> None:
    with pytest.raises(HeaderCompressionError):
        HpackDecoder().decode(bytes.fromhex(block))


def test_long_lists_are_refused() -> None:
    with pytest.raises(HeaderCompressionError, match="header fields"):
        HpackDecoder().decode(b"\x82" * (FIELDS_MAX + 1))
    with pytest.raises(HeaderCompressionError, match="header fields"):
        HpackDecoder().decode(encode_fields([("a", "b" * 20_000)]))


@given(st.binary(max_size=80))
def test_any_bytes_are_a_block_or_refused(block: bytes) -> None:
    with contextlib.suppress(HeaderCompressionError):
        HpackDecoder().decode(block)
