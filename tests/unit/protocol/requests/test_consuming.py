"""Requests of consumers: the names on the wire are RocketMQ's, and what may be left out."""

import msgspec
import pytest

from rockhopper.protocol.errors import FieldError
from rockhopper.protocol.requests import consuming
from rockhopper.protocol.requests.fields import RpcRequest, decode_fields, encode_fields

# The class, the least that a client sends, and every name that there is.
REQUESTS: list[tuple[type[RpcRequest], dict[str, str], str]] = [
    (consuming.UnregisterClientRequest, {"clientID": "c"}, "clientID producerGroup consumerGroup"),
    (consuming.GetConsumerListByGroupRequest, {"consumerGroup": "g"}, "consumerGroup"),
    (consuming.NotifyConsumerIdsChangedRequest, {"consumerGroup": "g"}, "consumerGroup"),
    (
        consuming.PullMessageRequest,
        {
            "consumerGroup": "g",
            "topic": "t",
            "queueId": "0",
            "queueOffset": "5",
            "maxMsgNums": "32",
            "sysFlag": "2",
        },
        "consumerGroup topic queueId queueOffset maxMsgNums sysFlag commitOffset "
        "suspendTimeoutMillis subscription subVersion expressionType maxMsgBytes "
        "requestSource proxyFrowardClientId",
    ),
    (
        consuming.QueryConsumerOffsetRequest,
        {"consumerGroup": "g", "topic": "t", "queueId": "0"},
        "consumerGroup topic queueId setZeroIfNotFound",
    ),
    (
        consuming.UpdateConsumerOffsetRequest,
        {"consumerGroup": "g", "topic": "t", "queueId": "0", "commitOffset": "5"},
        "consumerGroup topic queueId commitOffset",
    ),
    (consuming.GetMaxOffsetRequest, {"topic": "t", "queueId": "0"}, "topic queueId committed"),
    (consuming.GetMinOffsetRequest, {"topic": "t", "queueId": "0"}, "topic queueId"),
    (
        consuming.SearchOffsetRequest,
        {"topic": "t", "queueId": "0", "timestamp": "1"},
        "topic queueId timestamp boundaryType",
    ),
    (consuming.GetEarliestMsgStoretimeRequest, {"topic": "t", "queueId": "0"}, "topic queueId"),
    (
        consuming.ConsumerSendMsgBackRequest,
        {"offset": "1", "group": "g", "delayLevel": "3"},
        "offset group delayLevel originMsgId originTopic unitMode maxReconsumeTimes "
        "storeTimestamp",  # the last one is ours
    ),
    (
        consuming.QueryMessageRequest,
        {"topic": "t", "key": "k", "maxNum": "3", "beginTimestamp": "0", "endTimestamp": "9"},
        "topic key maxNum beginTimestamp endTimestamp _UNIQUE_KEY_QUERY indexType",
    ),
    (consuming.ViewMessageRequest, {"offset": "1"}, "offset topic"),
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
