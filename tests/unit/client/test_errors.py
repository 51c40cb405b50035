"""What the client's errors say."""

import pytest

from rockhopper.client.errors import RequestRefusedError
from rockhopper.protocol.codes import RequestCode, ResponseCode


def refusal(code: ResponseCode, remark: str | None, asked_as: str | None = None) -> str:
    refused = RequestRefusedError(
        RequestCode.SEND_MESSAGE_V2, code, remark, "a:1", asked_as=asked_as
    )
    return str(refused)


def test_a_refusal_without_a_word_says_where_to_look() -> None:
    for remark in (None, " "):
        assert refusal(ResponseCode.SERVICE_NOT_AVAILABLE, remark) == (
            "service not available (a:1 refused SEND_MESSAGE_V2: code 14, SERVICE_NOT_AVAILABLE); "
            "its log has the reason; often the disk is full"
        )


def test_a_broker_that_says_why_it_takes_nothing_is_left_to_it() -> None:
    assert refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "the disk is full: free space") == (
        "the disk is full: free space (a:1 refused SEND_MESSAGE_V2: code 14, SERVICE_NOT_AVAILABLE)"
    )


def test_an_unknown_request_may_mean_that_the_address_is_another_servers() -> None:
    said = refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "request type 106 not supported")
    assert "of a broker and of a name server are mixed up" in said


@pytest.mark.parametrize(
    ("code", "remark"),
    [
        (ResponseCode.NO_PERMISSION, "check signature failed: the secret is another"),
        (ResponseCode.NO_PERMISSION, "request code 105 is not signed"),
        (ResponseCode.NO_PERMISSION, "username cannot be null."),
        (ResponseCode.SYSTEM_ERROR, "No accessKey is configured"),
    ],
)
def test_who_is_not_believed_hears_who_he_said_he_is(code: ResponseCode, remark: str) -> None:
    said = refusal(code, remark, "'al' with the secret of /al")
    assert said.startswith(f"{remark} (a:1 refused ")
    assert said.endswith("; signed as 'al' with the secret of /al: check both there")
    assert "the request was not signed: name a user by credentials=" in refusal(code, remark, "")


def test_who_may_not_hears_who_he_is() -> None:
    remark = "User:al has no permission to access Topic:orders"
    said = refusal(ResponseCode.NO_PERMISSION, remark, "'al' with the secret of /al")
    assert said.startswith(f"{remark} (a:1 refused ")
    assert said.endswith("; signed as 'al' with the secret of /al")
    assert "remoteAdmin" not in refusal(ResponseCode.NO_PERMISSION, "the topic is read-only", None)
    unsaid = refusal(ResponseCode.NO_PERMISSION, "", "'al'")
    assert unsaid.endswith("from another host; signed as 'al'")
    assert "name" not in refusal(ResponseCode.NO_PERMISSION, "the topic is read-only", "")
    assert "signed as" not in refusal(ResponseCode.SYSTEM_ERROR, "the store is closed", "'al'")
