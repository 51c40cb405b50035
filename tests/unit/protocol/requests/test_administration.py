"""Requests of operators: the names on the wire are RocketMQ's, and what may be left out."""

import msgspec
import pytest

from rockhopper.protocol.errors import FieldError
from rockhopper.protocol.requests import administration
from rockhopper.protocol.requests.fields import RpcRequest, decode_fields, encode_fields

# The class, the least that a client sends, and every name that there is.
REQUESTS: list[tuple[type[RpcRequest], dict[str, str], str]] = [
    (
        administration.CreateTopicRequest,
        {"topic": "t", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"},
        "defaultTopic readQueueNums writeQueueNums perm topicFilterType topicSysFlag "
        "order attributes force topic",
    ),
    (administration.TopicRequest, {"topic": "t"}, "topic"),
    (administration.GetAllTopicConfigRequest, {}, "topicSeq dataVersion maxTopicNum"),
    (administration.GetAllSubscriptionGroupRequest, {}, "groupSeq dataVersion maxGroupNum"),
    (administration.ConsumerGroupRequest, {"consumerGroup": "g"}, "consumerGroup"),
    (administration.ProducerGroupRequest, {"producerGroup": "g"}, "producerGroup"),
    (administration.GroupRequest, {"group": "g"}, "group"),
    (administration.DeleteSubscriptionGroupRequest, {"groupName": "g"}, "groupName cleanOffset"),
    (
        administration.GetConsumeStatsRequest,
        {"consumerGroup": "g"},
        "consumerGroup topic topicList",
    ),
    (
        administration.ResetOffsetRequest,
        {"group": "g", "topic": "t", "timestamp": "1"},
        "group topic queueId offset timestamp isForce",
    ),
    (administration.TopicStatsRequest, {"topic": "t"}, "topic sizes"),
    (
        administration.QueryConsumeQueueRequest,
        {"topic": "t"},
        "topic queueId index count consumerGroup",
    ),
    (administration.ExportConfigRequest, {"configType": "topics"}, "configType"),
    (administration.ReadAheadModeRequest, {}, "READ_AHEAD_MODE"),
    (
        administration.QueryCorrectionOffsetRequest,
        {"topic": "t"},
        "topic filterGroups compareGroup",
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
