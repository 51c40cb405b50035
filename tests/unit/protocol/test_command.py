"""Commands: a frame of each serialisation, and what a header is refused for."""

import pytest

from rockhopper.protocol.codes import FLAG_ONEWAY, FLAG_RESPONSE, LanguageCode, SerializeType
from rockhopper.protocol.command import Command, decode_header, encode_command
from rockhopper.protocol.errors import MalformedHeaderError
from rockhopper.protocol.frame import FrameDecoder


@pytest.mark.parametrize("serialisation", SerializeType)
def test_a_command_reads_back_from_its_frame(serialisation: SerializeType) -> None:
    command = Command(
        17,
        opaque=-5,
        flag=FLAG_RESPONSE,
        remark="später",
        ext={"topic": "T"},
        body=b"body",
        language=LanguageCode.GO,
        version=401,
        serialize_type=serialisation,
    )
    data = encode_command(command)
    ((found, header, body),) = FrameDecoder().feed(data)
    assert decode_header(found, header, body) == command


def test_flags_tell_responses_and_oneways() -> None:
    assert Command(0, flag=FLAG_RESPONSE).is_response
    assert not Command(0, flag=FLAG_RESPONSE).is_oneway
    assert Command(0, flag=FLAG_ONEWAY).is_oneway
    assert not Command(0, flag=FLAG_ONEWAY).is_response


def test_an_unknown_serialisation_is_named() -> None:
    with pytest.raises(MalformedHeaderError, match="unknown header serialisation 9"):
        decode_header(9, b"{}")
    with pytest.raises(ValueError, match="unknown header serialisation 9"):
        encode_command(Command(10, serialize_type=9))


def test_a_code_beyond_the_binary_header_is_refused_when_it_is_written() -> None:
    with pytest.raises(ValueError, match="200050"):
        encode_command(Command(200050, serialize_type=SerializeType.ROCKETMQ))
