"""Decode requests and encode responses of the hot pass, as bytes and plain values.

Pure functions over bytes, numbers and text, without a store or a connection: a compiled twin can
replace them, as one does for the record encoder.

Input: the headers of SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320), PULL_MESSAGE (11) and
UPDATE_CONSUMER_OFFSET (15), in JSON with the code first; and those of 310 in any serialisation.
Only the fields that a plain request uses are read; a header that lacks one, or has an invalid one,
does not decode.

Output: whole frames, ``>I frame length - 4, >I header length, header, body``, from templates that
are made once: in a response to a send, only the numbers and the message's key vary.
"""

import re
from collections.abc import Callable
from struct import Struct as ByteStruct
from typing import Literal, NamedTuple, TypeVar

import msgspec

from rockhopper.protocol.codes import FLAG_RESPONSE, MQ_VERSION, RequestCode, SerializeType
from rockhopper.protocol.command import Command, decode_header, encode_command
from rockhopper.protocol.errors import MalformedHeaderError
from rockhopper.protocol.headers.header_json import check_depth
from rockhopper.protocol.requests.fields import Int32, Int64

SEND_PREFIX = b'{"code":310'
BATCH_PREFIX = b'{"code":320'
PULL_PREFIX = b'{"code":11,'
COMMIT_PREFIX = b'{"code":15,'
SEND_STARTS: dict[int, tuple[bytes, ...]] = {
    SerializeType.JSON: (SEND_PREFIX, BATCH_PREFIX, b'{"code":10,'),
    SerializeType.ROCKETMQ: (b"\x01\x36", b"\x01\x40", b"\0\x0a"),
}
"""The first bytes of headers of sends, by serialisation."""
SIGNED = b"AccessKey"
"""In signed headers, in every serialisation; the signature is verified where they are decoded."""
# A shorter header is never nested too deeply for a decoder.
_LONG_SIZE_BYTES = 1024
_LENGTHS = ByteStruct(">II")
_PLACE = re.compile("%016X|%d|%s")

Header = TypeVar("Header")


class SendFields(msgspec.Struct, gc=False):
    """The fields of SEND_MESSAGE_V2 that a plain send needs; RocketMQ's one-letter names."""

    a: str
    b: str
    e: int
    f: int
    g: int
    h: int
    i: str = ""
    j: int = 0
    m: bool = False
    rh: str = ""


class _SendHeader(msgspec.Struct, gc=False):
    code: Literal[310]
    opaque: Int32
    extFields: SendFields  # noqa: N815 - the wire's name
    flag: Int32 = 0


class _BatchHeader(msgspec.Struct, gc=False):
    code: Literal[320]
    opaque: Int32
    extFields: SendFields  # noqa: N815
    flag: Int32 = 0


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


class CommitFields(msgspec.Struct, gc=False):
    """The fields of UPDATE_CONSUMER_OFFSET, by their wire names."""

    consumerGroup: str  # noqa: N815
    topic: str
    queueId: Int32  # noqa: N815
    commitOffset: Int64  # noqa: N815
    rh: str = ""


class CommitHeader(msgspec.Struct, gc=False):
    """The header of UPDATE_CONSUMER_OFFSET."""

    code: Literal[15]
    opaque: Int32
    extFields: CommitFields  # noqa: N815
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


decode_send = header_decoder(_SendHeader)
decode_batch = header_decoder(_BatchHeader)
decode_commit = header_decoder(CommitHeader)
decode_pull = header_decoder(PullHeader)


def decode_other_send(serialize_type: int, header: bytes) -> tuple[SendFields, int, bool] | None:
    """Return fields, opaque and oneway flag of a plain send with a binary or msgpack header."""
    try:
        command = decode_header(serialize_type, header)
        if command.code != RequestCode.SEND_MESSAGE_V2 or command.is_response:
            return None
        # The general path rejects None, too.
        fields = msgspec.convert(command.ext, SendFields, strict=False)
    except (MalformedHeaderError, msgspec.ValidationError):
        return None
    return fields, command.opaque, command.is_oneway


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


def encode_other_frame(
    common: Templates,
    serialize_type: SerializeType | int,
    log_offset: int,
    queue_id: int,
    queue_offset: int,
    unique_key: str,
    opaque: int,
) -> bytes:
    """Return the response to a send whose header was not JSON, in its serialisation."""
    ext = {
        **common.ext,
        "msgId": f"{common.id_host}{log_offset:016X}",
        "queueId": str(queue_id),
        "queueOffset": str(queue_offset),
        "transactionId": unique_key,
    }
    return encode_command(Command(0, opaque, FLAG_RESPONSE, ext=ext, serialize_type=serialize_type))
