"""Requests of our own codes: their names on the wire, and what may be left out."""

import msgspec
import pytest

from rockhopper.protocol.errors import FieldError
from rockhopper.protocol.requests import extensions
from rockhopper.protocol.requests.fields import RpcRequest, decode_fields, encode_fields

# The class, the least that a client sends, and every name that there is.
REQUESTS: list[tuple[type[RpcRequest], dict[str, str], str]] = [
    (
        extensions.BulkPullRequest,
        {"topic": "t", "queueId": "0", "offset": "1"},
        "topic queueId offset endOffset maxBytes consumerGroup expression expressionType topicId",
    ),
    (
        extensions.SinkStageRequest,
        {"sinkId": "s", "batchId": "1", "part": "p"},
        "sinkId batchId part sequence owner",
    ),
    (extensions.SinkBatchRequest, {"sinkId": "s", "batchId": "1"}, "sinkId batchId owner content"),
    (extensions.SinkStatusRequest, {"sinkId": "s"}, "sinkId"),
    (extensions.SinkHomeRequest, {"sinkId": "s", "broker": "b"}, "sinkId broker"),
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
