"""Requests to a name server: RocketMQ's names, and what may be left out."""

import msgspec
import pytest

from rockhopper.protocol.errors import FieldError
from rockhopper.protocol.requests import name_service
from rockhopper.protocol.requests.fields import RpcRequest, decode_fields, encode_fields

# The class, the least that a client sends, and every name that there is.
REQUESTS: list[tuple[type[RpcRequest], dict[str, str], str]] = [
    (
        name_service.GetRouteInfoRequest,
        {"topic": "t"},
        "topic acceptStandardJsonOnly __ZONE_MODE __ZONE_NAME",
    ),
    (
        name_service.RegisterBrokerRequest,
        {
            "brokerName": "b",
            "brokerAddr": "a:1",
            "clusterName": "C",
            "haServerAddr": "a:2",
            "brokerId": "0",
        },
        "brokerName brokerAddr clusterName haServerAddr brokerId "
        "heartbeatTimeoutMillis enableActingMaster compressed bodyCrc32 __ZONE_NAME",
    ),
    (
        name_service.BrokerIdentityRequest,
        {"brokerName": "b", "brokerAddr": "a:1", "clusterName": "C", "brokerId": "0"},
        "brokerName brokerAddr clusterName brokerId",
    ),
    (
        name_service.BrokerHeartbeatRequest,
        {"clusterName": "C", "brokerAddr": "a:1", "brokerName": "b"},
        "clusterName brokerAddr brokerName brokerId epoch maxOffset confirmOffset "
        "heartbeatTimeoutMills electionPriority",
    ),
    (name_service.DeleteTopicFromNamesrvRequest, {"topic": "t"}, "topic clusterName"),
    (name_service.KVConfigRequest, {"namespace": "n"}, "namespace key value"),
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
