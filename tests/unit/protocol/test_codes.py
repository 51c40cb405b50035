"""Numbers on the wire, against those that RocketMQ's clients send."""

from enum import IntEnum

import pytest

from rockhopper.protocol.codes import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    NO_NAME,
    PULL_ANSWERS,
    LanguageCode,
    RequestCode,
    ResponseCode,
    SerializeType,
    request_name,
    response_name,
)
from rockhopper.protocol.command import Command


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


def test_names_are_those_of_rocketmqs_metrics() -> None:
    assert request_name(RequestCode.SEND_MESSAGE_V2) == "send_message_v2"
    assert response_name(ResponseCode.PULL_NOT_FOUND) == "pull_not_found"
    assert request_name(205) == "wipe_write_perm_of_broker"
    assert response_name(205) == "not_in_current_unit"
    assert request_name(99_999) == response_name(99_999) == NO_NAME


def test_pulls_are_answered_by_four_codes() -> None:
    assert {ResponseCode(code).name for code in PULL_ANSWERS} == {
        "SUCCESS",
        "PULL_NOT_FOUND",
        "PULL_RETRY_IMMEDIATELY",
        "PULL_OFFSET_MOVED",
    }


def test_flags_of_a_frame_are_two_bits() -> None:
    answered = Command(0, opaque=1, flag=FLAG_RESPONSE)
    unanswered = Command(10, opaque=1, flag=FLAG_ONEWAY)
    assert (answered.is_response, answered.is_oneway) == (True, False)
    assert (unanswered.is_response, unanswered.is_oneway) == (False, True)
