"""hot_codec: which headers are plain enough, and answers that are what the general way writes."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from rockhopper.broker.hot.hot_codec import (
    UNDECODABLE,
    SendFields,
    decode_batch,
    decode_other_send,
    decode_pull,
    decode_send,
    encode_other_frame,
    json_frame,
    templates,
)
from rockhopper.protocol.codes import FLAG_RESPONSE, MQ_VERSION, SerializeType
from rockhopper.protocol.command import Command, decode_header, encode_command
from rockhopper.protocol.frame import FrameDecoder
from tests.support.direct import pull_fields

SEND = {"a": "g", "b": "orders", "c": "TBW102", "d": "4", "e": "2", "f": "0", "g": "17", "h": "9"}
COMMON = templates('50% of "here"', b"\x7f\0\0\1\0\0\x2a\x9f", trace_on=True)
OTHERS = [SerializeType.ROCKETMQ, SerializeType.MSGPACK]


def header(code: int, ext: dict[str, str] | None, **others: object) -> bytes:
    return json.dumps({"code": code, "opaque": 5, "extFields": ext} | others).encode()


def read(frame: bytes) -> Command:
    ((serialize_type, head, body),) = FrameDecoder().feed(frame)
    return decode_header(serialize_type, head, body)


DEEP = b'{"x":' + b"[" * 600 + b"]" * 600 + b","


@pytest.mark.parametrize(("code", "decode"), [(310, decode_send), (320, decode_batch)])
def test_numbers_come_as_text_and_what_is_not_needed_is_passed_over(
    code: int, decode: Callable[[bytes], Any]
) -> None:
    request = decode(header(code, SEND | {"zz": "x"}, language="JAVA", flag=2))
    assert (request.code, request.opaque, request.flag) == (code, 5, 2)
    assert request.extFields == SendFields(a="g", b="orders", e=2, f=0, g=17, h=9)


def test_a_pull_has_the_fields_of_the_wire() -> None:
    request = decode_pull(header(11, pull_fields("orders", 3)))
    assert (request.extFields.topic, request.extFields.queueOffset) == ("orders", 3)


@pytest.mark.parametrize(
    ("decode", "bad"),
    [
        (decode_send, header(3100, SEND)),
        (decode_send, header(320, SEND)),
        (decode_batch, header(310, SEND)),
        (decode_pull, header(12, pull_fields("orders", 0))),
        (decode_send, header(310, None)),
        (decode_send, header(310, {k: v for k, v in SEND.items() if k != "b"})),
        (decode_send, header(310, SEND | {"e": "two"})),
        (decode_send, header(310, SEND, opaque=1 << 31)),
        (decode_send, header(310, SEND)[:-1]),
        (decode_send, header(310, SEND).replace(b"orders", b"\xff\xfe")),
        (decode_pull, header(11, pull_fields("orders", 0) | {"maxMsgNums": str(1 << 31)})),
        (decode_send, b'{"code":310,"x":' + b"[" * 100_000),
        (decode_send, b'{"x":' + b"[" * 600 + b"]" * 600 + b"," + header(310, SEND)[1:]),
        (
            decode_pull,
            b'{"x":' + b"[" * 600 + b"]" * 600 + b"," + header(11, pull_fields("orders", 0))[1:],
        ),
    ],
)
def test_what_is_not_plain_does_not_decode(decode: Callable[[bytes], object], bad: bytes) -> None:
    with pytest.raises(UNDECODABLE):
        decode(bad)


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("flag", [0, 2])
def test_a_send_with_another_header_is_read_alike(kind: int, flag: int) -> None:
    frame = encode_command(Command(310, 5, flag, ext=SEND, serialize_type=kind))
    ((_, head, _),) = FrameDecoder().feed(frame)
    decoded = decode_other_send(kind, head)
    assert decoded == (SendFields(a="g", b="orders", e=2, f=0, g=17, h=9), 5, flag == 2)


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize(
    ("code", "flag", "ext"),
    [(11, 0, SEND), (310, FLAG_RESPONSE, SEND), (310, 0, None), (310, 0, SEND | {"g": "soon"})],
)
def test_anything_else_goes_the_general_way(
    kind: int, code: int, flag: int, ext: dict[str, str] | None
) -> None:
    frame = encode_command(Command(code, 5, flag, ext=ext, serialize_type=kind))
    ((_, head, _),) = FrameDecoder().feed(frame)
    assert decode_other_send(kind, head) is None


def test_a_malformed_header_goes_the_general_way() -> None:
    assert decode_other_send(SerializeType.ROCKETMQ, b"\0\1") is None


SENT_EXT = {
    "MSG_REGION": '50% of "here"',
    "TRACE_ON": "true",
    "msgId": "7F00000100002A9F00000000000001FF",
    "queueId": "2",
    "queueOffset": "40",
    "transactionId": "KEY",
}


def test_an_answer_to_a_send_is_a_response_with_all_fields() -> None:
    answer = read(json_frame(COMMON.sent, (511, 2, 40, "KEY", 5)))
    assert (answer.code, answer.opaque, answer.flag) == (0, 5, FLAG_RESPONSE)
    assert answer.version == MQ_VERSION
    assert answer.ext == SENT_EXT


@pytest.mark.parametrize("kind", OTHERS)
def test_an_answer_in_another_serialisation_says_the_same(kind: int) -> None:
    answer = read(encode_other_frame(COMMON, kind, 511, 2, 40, "KEY", 5))
    assert answer.serialize_type == kind
    assert (answer.code, answer.opaque, answer.flag) == (0, 5, FLAG_RESPONSE)
    assert answer.ext == SENT_EXT


def test_an_answer_to_a_batch_names_all_its_messages() -> None:
    answer = read(json_frame(COMMON.batch_sent, ("ID1,ID2", 2, 40, 5)))
    without_key = {name: text for name, text in SENT_EXT.items() if name != "transactionId"}
    assert answer.ext == without_key | {"msgId": "ID1,ID2"}


def test_an_answer_to_a_pull_carries_its_messages() -> None:
    frame = json_frame(COMMON.pulled, (19, 41, 0, 41, 5, "NO_MSG"), len(b"records"))
    answer = read(frame + b"records")
    assert (answer.code, answer.opaque, answer.remark, answer.body) == (19, 5, "NO_MSG", b"records")
    assert answer.ext == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "41",
        "minOffset": "0",
        "maxOffset": "41",
    }
