"""Names of topics and groups, with their namespaces."""

from typing import Any

import pytest

from rockhopper.broker.gateways.grpc.resources import group_of, sendable_topic_of, topic_of
from rockhopper.broker.gateways.grpc.statuses import GrpcStatusError
from rockhopper.protocol.grpc_v2.codes import Code
from tests.support.grpc_client import request


def resource(name: str, namespace: str = "") -> Any:
    made = request("QueryRoute", topic=name).topic
    made.resource_namespace = namespace
    return made


def test_a_namespace_stands_in_front_as_clients_of_4_write_it() -> None:
    assert topic_of(resource("t")) == "t"
    assert topic_of(resource("t", "ns")) == "ns%t"
    assert group_of(resource("g", "ns")) == "ns%g"


@pytest.mark.parametrize(
    ("find", "name", "code"),
    [
        (topic_of, "", Code.ILLEGAL_TOPIC),
        (topic_of, " ", Code.ILLEGAL_TOPIC),
        (topic_of, "a/../b", Code.ILLEGAL_TOPIC),
        (topic_of, "x" * 128, Code.ILLEGAL_TOPIC),
        (topic_of, "SCHEDULE_TOPIC_XXXX", Code.ILLEGAL_TOPIC),
        (topic_of, "rmq_sys_x", Code.ILLEGAL_TOPIC),
        (sendable_topic_of, "%RETRY%g", Code.ILLEGAL_TOPIC),
        (sendable_topic_of, "%DLQ%g", Code.ILLEGAL_TOPIC),
        (group_of, "", Code.ILLEGAL_CONSUMER_GROUP),
        (group_of, "x" * 121, Code.ILLEGAL_CONSUMER_GROUP),
        (group_of, "CID_RMQ_SYS_x", Code.ILLEGAL_CONSUMER_GROUP),
    ],
)
def test_what_can_be_no_name_is_refused(find: Any, name: str, code: Code) -> None:
    with pytest.raises(GrpcStatusError) as failure:
        find(resource(name))
    assert failure.value.code is code


def test_dead_letters_may_be_read() -> None:
    assert topic_of(resource("%DLQ%g")) == "%DLQ%g"
