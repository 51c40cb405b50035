"""The Huffman code, against the RFC's examples and another implementation."""

import pytest
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hypothesis import given
from hypothesis import strategies as st

from rockhopper.protocol.http2.errors import HeaderCompressionError
from rockhopper.protocol.http2.huffman import decode_huffman, encode_huffman


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"www.example.com", "f1e3c2e5f23a6ba0ab90f4ff"),
        (b"no-cache", "a8eb10649cbf"),
        (b"302", "6402"),
        (b"Mon, 21 Oct 2013 20:13:21 GMT", "d07abe941054d444a8200595040b8166e082a62d1bff"),
        (b"", ""),
    ],
)
def test_the_examples_of_the_rfc(text: bytes, code: str) -> None:
    assert decode_huffman(bytes.fromhex(code)) == text
    assert encode_huffman(text).hex() == code


@given(st.binary(max_size=64))
def test_every_text_is_coded_as_elsewhere(text: bytes) -> None:
    code = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH).encode(text)
    assert encode_huffman(text) == code
    assert decode_huffman(code) == text


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("00", id="padding of zeros"),
        pytest.param("ff", id="eight bits of padding"),
        pytest.param("fffffffc", id="the end of a string"),
    ],
)
def test_what_no_encoder_makes_is_refused(code: str) -> None:
    with pytest.raises(HeaderCompressionError):
        decode_huffman(bytes.fromhex(code))


@given(st.binary(max_size=32))
def test_any_bytes_are_a_text_or_refused(code: bytes) -> None:
    try:
        text = decode_huffman(code)
    except HeaderCompressionError:
        return
    assert encode_huffman(text) == code
