"""The ROCKETMQ binary header: the reference's bytes in and out, nothing read beyond the header."""

import struct

import pytest

from rockhopper.protocol.codes import LanguageCode, RequestCode, SerializeType
from rockhopper.protocol.command import Command, decode_header, encode_command
from rockhopper.protocol.errors import MalformedHeaderError
from rockhopper.protocol.frame import FrameDecoder

ROUTE_FRAME = bytes.fromhex(
    "0000002d0100002900690001df000000050000000000000000000000140005"
    "746f70696300000009546f70696354657374"
)
SEND_FRAME = bytes.fromhex(
    "000000ca010000c601360001df000000030000000000000000000000b1000161000000027067000162"
    "00000009546f70696354657374000163000000065442573130320001640000000134000165000000013"
    "000016600000001300001670000000d31373030303030303030303030000168000000013000016900000"
    "021554e49515f4b45590141424302574149540174727565025441475301546167410200016a0000000130"
    "00016b0000000566616c736500016d0000000566616c736500016e0000000862726f6b65722d61"
)
SEND_EXT = {
    "a": "pg",
    "b": "TopicTest",
    "c": "TBW102",
    "d": "4",
    "e": "0",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": "UNIQ_KEY\x01ABC\x02WAIT\x01true\x02TAGS\x01TagA\x02",
    "j": "0",
    "k": "false",
    "m": "false",
    "n": "broker-a",
}


def decode(header: bytes) -> Command:
    return decode_header(SerializeType.ROCKETMQ, header)


def header(
    code: int = 105,
    remark_size: int = 0,
    remark: bytes = b"",
    ext_size: int | None = None,
    ext: bytes = b"",
    flag: int = 0,
) -> bytes:
    head = struct.pack(">hbhiii", code, 0, 479, 5, flag, remark_size)
    return head + remark + struct.pack(">i", len(ext) if ext_size is None else ext_size) + ext


def entry(
    key: bytes, value: bytes, key_size: int | None = None, value_size: int | None = None
) -> bytes:
    return (
        struct.pack(">h", len(key) if key_size is None else key_size)
        + key
        + struct.pack(">i", len(value) if value_size is None else value_size)
        + value
    )


@pytest.mark.parametrize(
    ("frame", "command"),
    [
        (ROUTE_FRAME, Command(105, opaque=5, ext={"topic": "TopicTest"}, serialize_type=1)),
        (SEND_FRAME, Command(310, opaque=3, ext=SEND_EXT, serialize_type=1)),
    ],
)
def test_reads_and_writes_the_frames_of_the_reference(frame: bytes, command: Command) -> None:
    assert decode_header(*FrameDecoder().feed(frame)[0]) == command
    assert encode_command(command) == frame


def test_remark_travels() -> None:
    command = Command(1, opaque=-3, flag=1, remark="nein – é", serialize_type=1)
    assert decode_header(*FrameDecoder().feed(encode_command(command))[0]) == command


def test_no_ext_fields_read_as_none() -> None:
    assert decode(header()).ext is None


def test_last_of_two_equal_keys_counts() -> None:
    assert decode(header(ext=entry(b"a", b"1") + entry(b"a", b"2"))).ext == {"a": "2"}


def test_empty_key_or_value_is_none_at_all() -> None:
    ext = entry(b"", b"1") + entry(b"b", b"") + entry(b"c", b"3") + entry(b"c", b"")
    assert decode(header(ext=ext)).ext == {}
    written = encode_command(Command(1, ext={"": "x", "b": ""}, serialize_type=1))
    assert decode_header(*FrameDecoder().feed(written)[0]).ext is None


def test_unknown_language_reads_as_other() -> None:
    assert decode(struct.pack(">hbhiiii", 1, 99, 0, 0, 0, 0, 0)).language == LanguageCode.OTHER


@pytest.mark.parametrize("code", [code for code in RequestCode if code > 32_767])
def test_codes_of_the_pop_family_arrive_truncated_and_are_mapped_back(code: RequestCode) -> None:
    assert decode(header(code & 0xFFFF)).code == code


def test_response_code_is_not_mapped() -> None:
    assert decode(header(3442, flag=1)).code == 3442


def test_code_beyond_16_bits_is_not_written() -> None:
    with pytest.raises(ValueError, match="200050"):
        encode_command(Command(RequestCode.POP_MESSAGE, serialize_type=1))


def test_field_beyond_its_width_is_not_written() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        encode_command(Command(1, opaque=2**31, serialize_type=1))
    with pytest.raises(ValueError, match="32767 bytes"):
        encode_command(Command(1, ext={"x" * 40_000: "y"}, serialize_type=1))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        header()[:16],
        header()[:20],
        header(remark_size=-1),
        header(remark_size=2**31 - 1),
        header(remark_size=5, remark=b"abc"),
        header(remark_size=1, remark=b"\xff"),
        header(ext_size=2**30),
        header(ext_size=-1),
        header(ext=entry(b"k", b"v", key_size=-1)),
        header(ext=entry(b"k", b"v", key_size=32_767)),
        header(ext=entry(b"k", b"v", value_size=-5)),
        header(ext=entry(b"k", b"v", value_size=2**31 - 1)),
        header(ext=entry(b"k", b"v")[:-1]),
        header(ext=entry(b"k", b"v") + b"\0"),
        header(ext=entry(b"\xff", b"v")),
        header(ext=entry(b"k", b"\xff")),
        # The value reaches beyond the ext fields, though not beyond the header.
        header(ext_size=7, ext=entry(b"k", b"vvvv")),
        header(ext=b"".join(entry(b"%d" % number, b"v") for number in range(257))),
    ],
    ids=lambda data: data[-24:].hex(),
)
def test_sizes_that_do_not_fit_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedHeaderError):
        decode(data)
