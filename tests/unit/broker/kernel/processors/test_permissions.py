"""The needs of requests that name topics and groups in their bodies."""

import json

import pytest

from rockhopper.broker.kernel.processors.clients import CHECKED, LOCKED, consuming
from rockhopper.broker.kernel.processors.groups_admin import CONSUME_STATS, GROUP_MADE, GROUPS_MADE
from rockhopper.broker.kernel.processors.pulls import PULLED
from rockhopper.broker.kernel.processors.topics_admin import IDENTIFIED, TOPICS_MADE
from rockhopper.broker.server.remoting.dispatcher import Request
from rockhopper.broker.server.remoting.json_bodies import ADMIN_BODY_SIZE_BYTES_MAX
from rockhopper.broker.server.remoting.permissions import RequiredPermission
from rockhopper.broker.users.access import Action, ResourceKind
from rockhopper.broker.users.errors import Refusal
from rockhopper.protocol.bodies import HeartbeatData
from rockhopper.protocol.bodies.topic_ids import encode_topic_ids
from rockhopper.protocol.command import Command
from rockhopper.protocol.errors import MalformedBodyError
from tests.support.peers import Peer

QUEUES = [{"topic": topic, "brokerName": "b", "queueId": 0} for topic in ("orders", "bills")]
BEAT = {
    "clientID": "c",
    "producerDataSet": [{"groupName": "makers"}],
    "consumerDataSet": [
        {
            "groupName": "billing",
            "subscriptionDataSet": [{"topic": "orders"}, {"topic": "%RETRY%billing"}],
        },
        {"groupName": "audit", "subscriptionDataSet": [{"topic": "orders"}]},
    ],
}
CHECK = {"clientId": "c", "group": "billing", "subscriptionData": {"topic": "orders"}}
LOCK = {"consumerGroup": "billing", "clientId": "c", "mqSet": QUEUES}
TOPICS = {"topicConfigList": [{"topicName": "orders"}, {"topicName": "bills"}]}
GROUPS = {"groupConfigList": [{"groupName": "billing"}, {}, 7]}


def names(permission: RequiredPermission, body: bytes = b"", **ext: str) -> set[str]:
    return set(permission.names(Request(Peer().connection, Command(1, ext=ext, body=body))))


@pytest.mark.parametrize(
    ("of_topics", "of_groups", "body", "topics", "groups"),
    [
        (*CHECKED, CHECK, {"orders"}, {"billing"}),
        (*CHECKED, {"group": "billing"}, set(), {"billing"}),
        (*LOCKED, LOCK, {"orders", "bills"}, {"billing"}),
    ],
)
def test_all_topics_and_groups_of_a_body_are_named(
    of_topics: RequiredPermission,
    of_groups: RequiredPermission,
    body: object,
    topics: set[str],
    groups: set[str],
) -> None:
    encoded = json.dumps(body).encode()
    assert (of_topics.kind, of_groups.kind) == (ResourceKind.TOPIC, ResourceKind.GROUP)
    assert of_topics.actions == of_groups.actions == (Action.SUB,)
    assert names(of_topics, encoded) == topics
    assert names(of_groups, encoded) == groups


@pytest.mark.parametrize(
    ("permission", "body", "expected"),
    [
        (TOPICS_MADE, TOPICS, {"orders", "bills"}),
        (GROUPS_MADE, GROUPS, {"billing", ""}),
        (GROUPS_MADE, {}, {""}),
        (GROUPS_MADE, [], {""}),
        (GROUP_MADE, {"groupName": "billing"}, {"billing"}),
        (GROUP_MADE, [], {""}),
    ],
)
def test_what_a_body_would_change_is_named_and_what_has_no_name_is_nobodys(
    permission: RequiredPermission, body: object, expected: set[str]
) -> None:
    assert names(permission, json.dumps(body).encode()) == expected


def test_each_consumer_of_a_heartbeat_needs_its_own_topics_and_group() -> None:
    first, second = map(
        consuming, HeartbeatData.decode(json.dumps(BEAT).encode()).consumer_data_set
    )
    assert [names(permission) for permission in first] == [
        {"orders", "%RETRY%billing"},
        {"billing"},
    ]
    assert [names(permission) for permission in second] == [{"orders"}, {"audit"}]
    assert {permission.actions for permission in (*first, *second)} == {(Action.SUB,)}


@pytest.mark.parametrize(
    ("group", "flags", "expected"),
    [
        ("TOOLS_CONSUMER", "65540", set()),
        ("TOOLS_CONSUMER", "65541", {"TOOLS_CONSUMER"}),  # it commits
        ("TOOLS_CONSUMER", "4", {"TOOLS_CONSUMER"}),
        ("billing", "65540", {"billing"}),
        ("", "65540", {""}),
    ],
)
def test_who_only_looks_pulls_for_no_group(group: str, flags: str, expected: set[str]) -> None:
    of_topic, of_group = PULLED
    assert names(of_topic, topic="orders") == {"orders"}
    assert names(of_group, topic="orders", consumerGroup=group, sysFlag=flags) == expected


def test_topics_whose_ids_are_asked_for_are_named() -> None:
    assert names(IDENTIFIED, encode_topic_ids(["orders", "bills"])) == {
        "orders",
        "bills",
    }


def test_a_body_that_does_not_decode_is_refused_as_its_processor_would() -> None:
    with pytest.raises(MalformedBodyError):
        names(CHECKED[0], b"{")
    with pytest.raises(Refusal, match="bytes; 2097152 are allowed"):
        names(CHECKED[0], bytes(ADMIN_BODY_SIZE_BYTES_MAX + 1))


def test_all_topics_whose_progress_is_asked_for_are_named() -> None:
    of_topics, of_groups = CONSUME_STATS
    ext = {"consumerGroup": "billing", "topic": "orders", "topicList": "bills;audit"}
    assert names(of_topics, b"", **ext) == {"orders", "bills", "audit"}
    assert names(of_groups, b"", **ext) == {"billing"}
    assert names(of_topics, consumerGroup="billing") == set()
