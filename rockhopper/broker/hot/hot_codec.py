"""Decode requests and encode responses of the hot pass, as bytes and plain values.

Pure functions over bytes, numbers and text, without a store or a connection: a compiled twin can
replace them, as one does for the record encoder.

Input: the headers of PULL_MESSAGE (11), in JSON with the code first. Only the fields that a plain
request uses are read; a header that lacks one, or has an invalid one, does not decode. Compiled
code reads the headers of sends (_send_headers.c), similar_requests.py those of acknowledgements and
commits.

Output: whole frames, ``>I frame length - 4, >I header length, header, body``, from templates that
are made once: in a response to a send, only the numbers and the message's key vary.
"""

import re
from collections.abc import Callable
from struct import Struct as ByteStruct
from typing import Literal, NamedTuple, TypeVar

import msgspec

from rockhopper.protocol.codes import MQ_VERSION, RequestCode, SerializeType
from rockhopper.protocol.errors import MalformedHeaderError
from rockhopper.protocol.headers.header_json import check_depth
from rockhopper.protocol.requests.fields import Int32, Int64


def json_starts(*codes: int) -> tuple[bytes, ...]:
    """Return how JSON headers with one of these codes begin, as known clients print them."""
    return tuple(b'{"code":%b%d,' % (blank, code) for blank in (b"", b" ") for code in codes)


PULL_STARTS = json_starts(RequestCode.PULL_MESSAGE)
COMMIT_STARTS = json_starts(RequestCode.UPDATE_CONSUMER_OFFSET)
SEND_STARTS: dict[int, tuple[bytes, ...]] = {
    SerializeType.JSON: json_starts(
        RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE
    ),
    SerializeType.ROCKETMQ: (b"\x01\x36", b"\x01\x40", b"\0\x0a"),
}
"""The first bytes of headers of sends, by serialisation."""
# A shorter header is never nested too deeply for a decoder.
_LONG_SIZE_BYTES = 1024
_LENGTHS = ByteStruct(">II")
_PLACE = re.compile("%016X|%d|%s")

Header = TypeVar("Header")


class PullFields(msgspec.Struct, gc=False):
    """The fields of PULL_MESSAGE, by their wire names."""

    consumerGroup: str  # noqa: N815
    topic: str
    queueId: int  # noqa: N815
    queueOffset: Int64  # noqa: N815
    maxMsgNums: Int32  # noqa: N815
    sysFlag: Int32  # noqa: N815
    commitOffset: Int64  # noqa: N815
    suspendTimeoutMillis: Int64  # noqa: N815
    subVersion: Int64  # noqa: N815
    subscription: str | None = None
    expressionType: str | None = None  # noqa: N815
    rh: str = ""


class PullHeader(msgspec.Struct, gc=False):
    """The header of PULL_MESSAGE."""

    code: Literal[11]
    opaque: Int32
    extFields: PullFields  # noqa: N815
    flag: Int32 = 0


# Invalid UTF-8 in a text raises UnicodeDecodeError.
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, MalformedHeaderError)
"""Raised by the decoders for a header that must take the general path."""


def header_decoder(header_type: type[Header]) -> Callable[[bytes], Header]:
    """Return the decoder of a JSON header; it raises UNDECODABLE."""
    decode = msgspec.json.Decoder(header_type, strict=False).decode

    def decode_header(header: bytes) -> Header:
        if len(header) > _LONG_SIZE_BYTES:
            check_depth(header)
        return decode(header)

    return decode_header


decode_pull = header_decoder(PullHeader)

_TAIL = (
    '"flag":1,"language":"JAVA","opaque":%d,"serializeTypeCurrentRPC":"JSON",'
    f'"version":{int(MQ_VERSION)}}}'
)
COMMITTED = f'{{"code":0,{_TAIL}'
"""The template of a success response without fields."""


class Templates(NamedTuple):
    """The common parts of all responses of one broker."""

    ext: dict[str, str]
    id_host: str
    """The store host, with which message ids begin."""
    sent: str
    batch_sent: str
    pulled: str


def templates(region_id: str, store_host: bytes, *, trace_on: bool) -> Templates:
    """Return the templates for a broker's settings."""
    trace = "true" if trace_on else "false"
    region = msgspec.json.encode(region_id).decode().replace("%", "%%")
    answer = f'{{"code":0,"extFields":{{"MSG_REGION":{region},"TRACE_ON":"{trace}",'
    host = store_host.hex().upper()
    return Templates(
        {"MSG_REGION": region_id, "TRACE_ON": trace},
        host,
        f'{answer}"msgId":"{host}%016X","queueId":"%d","queueOffset":"%d",'
        f'"transactionId":"%s"}},{_TAIL}',
        f'{answer}"msgId":"%s","queueId":"%d","queueOffset":"%d"}},{_TAIL}',
        '{"code":%d,"extFields":{"suggestWhichBrokerId":"0","nextBeginOffset":"%d",'
        f'"minOffset":"%d","maxOffset":"%d"}},{_TAIL[:-1]},"remark":"%s"}}',
    )


def pieces(template: str) -> tuple[bytes, ...]:
    """Return the pieces of a template between its values."""
    return tuple(piece.replace("%%", "%").encode() for piece in _PLACE.split(template))


def json_frame(template: str, values: tuple[object, ...], body_size_bytes: int = 0) -> bytes:
    """Return a response frame up to its body; *values* are those of the template."""
    header = (template % values).encode()
    size = len(header)
    return _LENGTHS.pack(size + 4 + body_size_bytes, size) + header
