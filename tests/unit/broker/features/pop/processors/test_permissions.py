"""The permissions of pop requests that name topics and groups in their bodies."""

import json

import pytest

from rockhopper.broker.features.pop.processors.assignment import ASSIGNED, SET_REQUEST_MODE
from rockhopper.broker.features.pop.processors.popping import ACKNOWLEDGED
from rockhopper.broker.server.remoting.dispatcher import Request
from rockhopper.broker.server.remoting.permissions import RequiredPermission
from rockhopper.broker.users.access import Action, ResourceKind
from rockhopper.protocol.command import Command
from tests.support.peers import Peer

ACKS = {"brokerName": "b", "acks": [{"c": "billing", "t": "orders"}, {"c": "audit", "t": "bills"}]}
ASSIGNMENT = {"topic": "orders", "consumerGroup": "billing", "clientId": "c"}
MODE = {"topic": "orders", "consumerGroup": "billing"}


def names(permission: RequiredPermission, body: object) -> set[str]:
    command = Command(1, ext={}, body=json.dumps(body).encode())
    return set(permission.names(Request(Peer().connection, command)))


@pytest.mark.parametrize(
    ("of_topics", "of_groups", "body", "topics", "groups"),
    [
        (*ACKNOWLEDGED, ACKS, {"orders", "bills"}, {"billing", "audit"}),
        (*ASSIGNED, ASSIGNMENT, {"orders"}, {"billing"}),
    ],
)
def test_all_topics_and_groups_of_a_body_are_named(
    of_topics: RequiredPermission,
    of_groups: RequiredPermission,
    body: object,
    topics: set[str],
    groups: set[str],
) -> None:
    assert (of_topics.kind, of_groups.kind) == (ResourceKind.TOPIC, ResourceKind.GROUP)
    assert of_topics.actions == of_groups.actions == (Action.SUB,)
    assert names(of_topics, body) == topics
    assert names(of_groups, body) == groups


def test_a_mode_is_set_for_its_group() -> None:
    assert names(SET_REQUEST_MODE, MODE) == {"billing"}
