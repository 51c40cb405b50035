"""Numbers on the wire, against those that RocketMQ's clients send."""

from enum import IntEnum

import pytest

from rockhopper.protocol.codes import LanguageCode, RequestCode, ResponseCode, SerializeType


@pytest.mark.parametrize(
    ("code", "number"),
    [
        (RequestCode.SEND_MESSAGE, 10),
        (RequestCode.PULL_MESSAGE, 11),
        (RequestCode.HEART_BEAT, 34),
        (RequestCode.GET_ROUTEINFO_BY_TOPIC, 105),
        (RequestCode.SEND_MESSAGE_V2, 310),
        (RequestCode.SEND_BATCH_MESSAGE, 320),
        (RequestCode.POP_MESSAGE, 200050),
        (ResponseCode.SUCCESS, 0),
        (ResponseCode.PULL_NOT_FOUND, 19),
        (ResponseCode.TOPIC_NOT_EXIST, 17),
        (LanguageCode.GO, 9),
        (SerializeType.ROCKETMQ, 1),
    ],
)
def test_numbers_are_rocketmqs(code: int, number: int) -> None:
    assert code == number


@pytest.mark.parametrize("codes", [RequestCode, ResponseCode, LanguageCode, SerializeType])
def test_no_number_has_two_names(codes: type[IntEnum]) -> None:
    assert len(codes.__members__) == len(set(codes.__members__.values()))


def test_codes_of_ours_are_beyond_those_of_rocketmq() -> None:
    ours = [code for code in RequestCode if 70_000 <= code < 80_000]
    assert RequestCode.TOPIC_IDS in ours
    assert not [code for code in RequestCode if 10_000 <= code < 70_000]
