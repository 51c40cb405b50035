"""Our msgpack header: the documented array, checked with the msgpack package itself."""

import msgpack  # type: ignore[import-untyped]
import pytest

from rockhopper.protocol.codes import LanguageCode, SerializeType
from rockhopper.protocol.command import Command, decode_header, encode_command
from rockhopper.protocol.errors import MalformedHeaderError
from rockhopper.protocol.frame import FrameDecoder

COMMAND = Command(
    310,
    opaque=-7,
    flag=2,
    remark="é",
    ext={"a": "pg", "i": "K\x01v\x02"},
    language=LanguageCode.PYTHON,
    serialize_type=SerializeType.MSGPACK,
)


def decode(fields: object) -> Command:
    return decode_header(SerializeType.MSGPACK, msgpack.packb(fields))


def test_writes_the_documented_array() -> None:
    (frame,) = FrameDecoder().feed(encode_command(COMMAND))
    assert frame[0] == 2
    assert msgpack.unpackb(frame[1]) == [310, 3, 479, -7, 2, "é", {"a": "pg", "i": "K\x01v\x02"}]


def test_bytes_are_these() -> None:
    command = Command(105, opaque=5, ext={"topic": "T"}, serialize_type=2)
    assert encode_command(command)[8:].hex() == "976900cd01df0500c081a5746f706963a154"


def test_reads_what_it_writes() -> None:
    assert decode_header(*FrameDecoder().feed(encode_command(COMMAND))[0]) == COMMAND


def test_elements_of_later_versions_are_ignored() -> None:
    assert decode([1, 0, 479, 2, 0, None, None, "later"]).opaque == 2


@pytest.mark.parametrize(
    "fields",
    [
        [],
        [1, 0, 479, 2, 0, None],
        {"code": 1},
        None,
        7,
        ["1", 0, 479, 2, 0, None, None],
        [True, 0, 479, 2, 0, None, None],
        [2**31, 0, 479, 2, 0, None, None],
        [1, 0, 479, 1.5, 0, None, None],
        [1, 0, 479, 2, 0, 7, None],
        [1, 0, 479, 2, 0, b"remark", None],
        [1, 0, 479, 2, 0, None, []],
        [1, 0, 479, 2, 0, None, {"a": 1}],
        [1, 0, 479, 2, 0, None, {"a": None}],
        [1, 0, 479, 2, 0, None, {b"a": "x"}],
        [1, 0, 479, 2, 0, None, {1: "x"}],
        [1, 0, 479, 2, 0, None, {str(number): "x" for number in range(257)}],
        [1, 0, 479, msgpack.Timestamp(1, 0), 0, None, None],
    ],
    ids=repr,
)
def test_other_arrays_are_refused(fields: object) -> None:
    with pytest.raises(MalformedHeaderError):
        decode(fields)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\xc1",
        b"\x97",
        msgpack.packb([1, 0, 479, 2, 0, None, None]) + b"\0",
        b"\xdd\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\xdf\x7f\xff\xff\xff",
        b"\xc6\x7f\xff\xff\xff",
        b"\x97\x01\x00\x01\x01\x00\xa1\xff\xc0",
        b"\x81\x90\x01",
        b"\x91" * 100_000,
    ],
    ids=lambda header: header[:12].hex(),
)
def test_broken_bytes_are_refused(header: bytes) -> None:
    with pytest.raises(MalformedHeaderError):
        decode_header(SerializeType.MSGPACK, header)


def test_what_the_reader_would_refuse_is_not_written() -> None:
    with pytest.raises(ValueError, match="32 bits"):
        encode_command(Command(1, opaque=2**31, serialize_type=2))
    with pytest.raises(TypeError):
        encode_command(Command(1, ext={"a": 1}, serialize_type=2))  # type: ignore[dict-item]
