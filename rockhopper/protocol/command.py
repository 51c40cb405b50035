"""A command: one request or response, in a frame.

Commands are written in one of three serialisations, and the module of each documents its bytes:
header_json (RocketMQ's usual one), header_binary (RocketMQ's other one) and header_msgpack
(Rockhopper's).
"""

from dataclasses import dataclass

from rockhopper.protocol.codes import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    MQ_VERSION,
    LanguageCode,
    SerializeType,
)
from rockhopper.protocol.errors import MalformedHeaderError
from rockhopper.protocol.frame import encode_frame
from rockhopper.protocol.headers.header_binary import decode_binary_header, encode_binary_header
from rockhopper.protocol.headers.header_json import decode_json_header, encode_json_header
from rockhopper.protocol.headers.header_msgpack import decode_msgpack_header, encode_msgpack_header

_DECODERS = {
    SerializeType.JSON.value: decode_json_header,
    SerializeType.ROCKETMQ.value: decode_binary_header,
    SerializeType.MSGPACK.value: decode_msgpack_header,
}
_ENCODERS = {
    SerializeType.JSON.value: encode_json_header,
    SerializeType.ROCKETMQ.value: encode_binary_header,
    SerializeType.MSGPACK.value: encode_msgpack_header,
}


@dataclass(slots=True)
class Command:
    """A request or a response, with RocketMQ's names for its parts (RemotingCommand).

    ``code`` is a request code in a request and a response code in a response. ``opaque`` matches a
    response to its request. ``ext`` contains the header fields of the code; their values are text.
    """

    code: int
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    ext: dict[str, str] | None = None
    body: bytes = b""
    language: int = LanguageCode.JAVA.value
    version: int = MQ_VERSION
    serialize_type: int = SerializeType.JSON.value

    @property
    def is_response(self) -> bool:
        """Whether this is a response."""
        return self.flag & FLAG_RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        """Whether no response may be sent, not even an error."""
        return self.flag & FLAG_ONEWAY != 0


def decode_header(serialize_type: int, header: bytes, body: bytes = b"") -> Command:
    """Decode the command of a frame.

    Values of ext fields are always text: numbers and booleans become their JSON text, nulls are
    omitted.

    Raises:
        MalformedHeaderError: the header is not a command; the connection must be closed.
    """
    decode = _DECODERS.get(serialize_type)
    if decode is None:
        raise MalformedHeaderError(f"unknown header serialisation {serialize_type}")
    code, language, version, opaque, flag, remark, ext = decode(header)
    return Command(code, opaque, flag, remark, ext, body, language, version, serialize_type)


def encode_command(command: Command) -> bytes:
    """Encode a command as a whole frame, in the command's own serialisation.

    Raises:
        ValueError: a field does not fit the serialisation, such as a request code above 32,767 in
            the binary one; or the frame is larger than peers accept.
    """
    encode = _ENCODERS.get(command.serialize_type)
    if encode is None:
        raise ValueError(f"unknown header serialisation {command.serialize_type}")
    header = encode(
        command.code,
        command.language,
        command.version,
        command.opaque,
        command.flag,
        command.remark,
        command.ext,
    )
    return encode_frame(command.serialize_type, header, command.body)
