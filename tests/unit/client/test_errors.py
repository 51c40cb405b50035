"""What the client's errors say."""

from rockhopper.client.errors import RequestRefusedError
from rockhopper.protocol.codes import RequestCode, ResponseCode


def refusal(code: ResponseCode, remark: str | None) -> str:
    return str(RequestRefusedError(RequestCode.SEND_MESSAGE_V2, code, remark, "a:1"))


def test_a_refusal_without_a_word_says_where_to_look() -> None:
    for remark in (None, " "):
        assert refusal(ResponseCode.SERVICE_NOT_AVAILABLE, remark) == (
            "a:1 refused SEND_MESSAGE_V2 with code 14 (SERVICE_NOT_AVAILABLE); "
            "its log says why; often the disk is full"
        )


def test_a_broker_that_says_why_it_takes_nothing_is_left_to_it() -> None:
    assert refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "the disk is full: free space") == (
        "a:1 refused SEND_MESSAGE_V2 with code 14 (SERVICE_NOT_AVAILABLE): "
        "the disk is full: free space"
    )


def test_an_unknown_request_may_mean_that_the_address_is_another_servers() -> None:
    said = refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "request type 106 not supported")
    assert "a broker's where a name service's belongs" in said
