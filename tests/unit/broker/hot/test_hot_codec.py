"""hot_codec: which headers are plain enough, and answers that are what the general way writes."""

import json
from collections.abc import Callable

import pytest

from rockhopper.broker.hot.hot_codec import (
    UNDECODABLE,
    decode_pull,
    json_frame,
    templates,
)
from rockhopper.protocol.codes import FLAG_RESPONSE, MQ_VERSION
from rockhopper.protocol.command import Command, decode_header
from rockhopper.protocol.frame import FrameDecoder
from tests.support.direct import pull_fields

PULL = pull_fields("orders", 3)
COMMON = templates('50% of "here"', b"\x7f\0\0\1\0\0\x2a\x9f", trace_on=True)


def header(code: int, ext: dict[str, str] | None, **others: object) -> bytes:
    return json.dumps({"code": code, "opaque": 5, "extFields": ext} | others).encode()


def read(frame: bytes) -> Command:
    ((serialize_type, head, body),) = FrameDecoder().feed(frame)
    return decode_header(serialize_type, head, body)


def test_a_pull_has_the_fields_of_the_wire() -> None:
    request = decode_pull(header(11, PULL))
    assert (request.extFields.topic, request.extFields.queueOffset) == ("orders", 3)


DEEP = b'{"x":' + b"[" * 600 + b"]" * 600 + b","


@pytest.mark.parametrize(
    ("decode", "bad"),
    [
        (decode_pull, header(12, PULL)),
        (decode_pull, header(11, PULL | {"maxMsgNums": str(1 << 31)})),
        (decode_pull, DEEP + header(11, PULL)[1:]),
        (decode_pull, header(110, PULL)),
        (decode_pull, header(11, None)),
        (decode_pull, header(11, {k: v for k, v in PULL.items() if k != "topic"})),
        (decode_pull, header(11, PULL | {"queueId": "two"})),
        (decode_pull, header(11, PULL, opaque=1 << 31)),
        (decode_pull, header(11, PULL)[:-1]),
        (decode_pull, header(11, PULL).replace(b"orders", b"\xff\xfe")),
        (decode_pull, b'{"code":11,"x":' + b"[" * 100_000),
    ],
)
def test_what_is_not_plain_does_not_decode(decode: Callable[[bytes], object], bad: bytes) -> None:
    with pytest.raises(UNDECODABLE):
        decode(bad)


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
