"""Requests of the pop family: RocketMQ's names, and what may be left out."""

import msgspec
import pytest

from rockhopper.protocol.errors import FieldError
from rockhopper.protocol.requests import popping
from rockhopper.protocol.requests.fields import RpcRequest, decode_fields, encode_fields

# The class, the least that a client sends, and every name that there is.
REQUESTS: list[tuple[type[RpcRequest], dict[str, str], str]] = [
    (
        popping.PopMessageRequest,
        {
            "consumerGroup": "g",
            "topic": "t",
            "queueId": "-1",
            "maxMsgNums": "32",
            "invisibleTime": "60000",
            "pollTime": "0",
            "initMode": "0",
        },
        "consumerGroup topic queueId maxMsgNums invisibleTime pollTime bornTime "
        "initMode expType exp order attemptId",
    ),
    (
        popping.AckMessageRequest,
        {"consumerGroup": "g", "topic": "t", "queueId": "0", "extraInfo": "x", "offset": "1"},
        "consumerGroup topic queueId extraInfo offset",
    ),
    (
        popping.ChangeInvisibleTimeRequest,
        {
            "consumerGroup": "g",
            "topic": "t",
            "queueId": "0",
            "extraInfo": "x",
            "offset": "1",
            "invisibleTime": "5",
        },
        "consumerGroup topic queueId extraInfo offset invisibleTime suspend",
    ),
    (
        popping.NotificationRequest,
        {"consumerGroup": "g", "topic": "t", "queueId": "-1", "pollTime": "5"},
        "consumerGroup topic queueId pollTime bornTime order attemptId",
    ),
    (
        popping.PeekMessageRequest,
        {"consumerGroup": "g", "topic": "t", "queueId": "0", "maxMsgNums": "1"},
        "consumerGroup topic queueId maxMsgNums",
    ),
    (
        popping.PollingInfoRequest,
        {"consumerGroup": "g", "topic": "t", "queueId": "0"},
        "consumerGroup topic queueId",
    ),
]
NAMES = [kind.__name__ for kind, _, _ in REQUESTS]


@pytest.mark.parametrize(("kind", "least", "names"), REQUESTS, ids=NAMES)
def test_names_on_the_wire(kind: type[RpcRequest], least: dict[str, str], names: str) -> None:
    common = {field.encode_name for field in msgspec.structs.fields(RpcRequest)}
    found = {field.encode_name for field in msgspec.structs.fields(kind)}
    assert found - common == set(names.split())


@pytest.mark.parametrize(("kind", "least", "names"), REQUESTS, ids=NAMES)
def test_the_least_that_a_client_sends(
    kind: type[RpcRequest], least: dict[str, str], names: str
) -> None:
    request = decode_fields(kind, least)
    assert encode_fields(request).items() >= least.items()
    assert decode_fields(kind, encode_fields(request)) == request
    for name in least:
        with pytest.raises(FieldError, match=name):
            decode_fields(kind, {key: text for key, text in least.items() if key != name})
