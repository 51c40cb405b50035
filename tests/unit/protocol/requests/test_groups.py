"""Requests about groups and their clients: RocketMQ's names, and what may be left out."""

import msgspec
import pytest

from rockhopper.protocol.errors import FieldError
from rockhopper.protocol.requests import groups
from rockhopper.protocol.requests.fields import RpcRequest, decode_fields, encode_fields

# The class, the least that a client sends, and every name that there is.
REQUESTS: list[tuple[type[RpcRequest], dict[str, str], str]] = [
    (groups.QueryConsumeTimeSpanRequest, {"topic": "t", "group": "g"}, "topic group"),
    (
        groups.GetConsumerRunningInfoRequest,
        {"consumerGroup": "g", "clientId": "c"},
        "consumerGroup clientId jstackEnable",
    ),
    (
        groups.ConsumeMessageDirectlyRequest,
        {"consumerGroup": "g"},
        "consumerGroup clientId msgId brokerName topic topicSysFlag groupSysFlag",
    ),
    (
        groups.CloneGroupOffsetRequest,
        {"srcGroup": "g", "destGroup": "h"},
        "srcGroup destGroup topic offline",
    ),
    (groups.GetBrokerConsumeStatsRequest, {}, "isOrder"),
    (groups.GetConsumerStatusRequest, {"topic": "t", "group": "g"}, "topic group clientAddr"),
    (groups.GroupForbiddenRequest, {"group": "g", "topic": "t"}, "group topic readable"),
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
