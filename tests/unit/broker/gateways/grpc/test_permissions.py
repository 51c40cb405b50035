"""What callers of each RPC must be allowed."""

from typing import Any

import pytest

from rockhopper.broker.gateways.grpc import permissions
from rockhopper.broker.users.access import AccessRules, Action, Resource, ResourceKind
from rockhopper.broker.users.peer import Principal
from rockhopper.protocol.grpc_v2.codes import Code
from rockhopper.protocol.grpc_v2.messages import METHODS
from tests.support.features import NAMES
from tests.support.grpc_client import (
    GrpcBroker,
    GrpcClient,
    add_message,
    receiving,
    request,
    sending,
    settings_of_consumer,
    settings_of_producer,
)

OF_FEATURES = {
    "pop": {
        "AckMessage",
        "ChangeInvisibleDuration",
        "ForwardMessageToDeadLetterQueue",
        "ReceiveMessage",
    },
    "transactions": {"EndTransaction"},
}
MISSING = {name for feature, names in OF_FEATURES.items() if feature not in NAMES for name in names}
SERVED = {name: method for name, method in METHODS.items() if name not in MISSING}
TOPIC, GROUP = Resource(ResourceKind.TOPIC, "t"), Resource(ResourceKind.GROUP, "g")
PUB, SUB = (Action.PUB,), (Action.SUB,)


class NoAccess(AccessRules):
    """Nobody may do anything."""

    is_open = False

    def may(self, principal: Principal, action: Action, resource: Resource) -> bool:
        del principal, action, resource
        return False


def two_topics() -> Any:
    made = sending("t")
    add_message(made, "other", b"x", "B")
    return made


@pytest.mark.parametrize(
    ("of", "made", "demands"),
    [
        (permissions.of_route, request("QueryRoute", topic="t"), {((*PUB, *SUB), TOPIC)}),
        (
            permissions.of_sending,
            two_topics(),
            {(PUB, TOPIC), (PUB, Resource(ResourceKind.TOPIC, "other"))},
        ),
        (permissions.of_sending, sending("%RETRY%g"), {(SUB, GROUP)}),
        (permissions.of_producing, request("EndTransaction", topic="t"), {(PUB, TOPIC)}),
        (
            permissions.of_consuming,
            request("AckMessage", topic="t", group="g"),
            {(SUB, TOPIC), (SUB, GROUP)},
        ),
        (permissions.of_queue, receiving("t"), {(SUB, TOPIC), (SUB, GROUP)}),
        (
            permissions.of_queue,
            receiving("%RETRY%g2"),
            {(SUB, Resource(ResourceKind.GROUP, "g2")), (SUB, GROUP)},
        ),
        (
            permissions.of_queue,
            receiving("%DLQ%g2"),
            {(SUB, Resource(ResourceKind.TOPIC, "%DLQ%g2")), (SUB, GROUP)},
        ),
        (permissions.heartbeat_permissions, request("Heartbeat", group="g"), {(SUB, GROUP)}),
        (permissions.heartbeat_permissions, request("Heartbeat"), set()),
        (permissions.telemetry_permissions, settings_of_producer("t"), {(PUB, TOPIC)}),
        (
            permissions.telemetry_permissions,
            settings_of_consumer("g", "t"),
            {(SUB, TOPIC), (SUB, GROUP)},
        ),
        (permissions.telemetry_permissions, METHODS["Telemetry"].request(), set()),
    ],
)
def test_a_request_demands(of: Any, made: Any, demands: set[Any]) -> None:
    assert set(of(made)) == demands


async def test_every_rpc_asks(served: GrpcBroker) -> None:
    """An RPC that would ask for nothing is found here: each of them names a topic or a group."""
    service = served.gateway.server.service
    for name, method in SERVED.items():
        rpc = service.find(f"/apache.rocketmq.v2.MessagingService/{name}")
        assert rpc is not None, name
        made = method.request()
        if name == "Telemetry":
            made = settings_of_consumer("g", "t")
        elif name == "SendMessage":
            made = sending("t")
        elif name in ("Heartbeat", "NotifyClientTermination"):
            made.group.name = "g"
        assert rpc.demands is not None
        assert list(rpc.demands(made)), name


async def test_who_may_nothing_is_refused_by_every_rpc(served: GrpcBroker) -> None:
    served.dispatcher.access = NoAccess(remote_admin=False)
    await served.gateway.close()
    served.open_gateway()
    client = GrpcClient(served.gateway)
    made = {
        "SendMessage": sending("t"),
        "ReceiveMessage": receiving("t"),
        "Heartbeat": request("Heartbeat", group="g", client_type=3),
        "NotifyClientTermination": request("NotifyClientTermination", group="g"),
    }
    for name, method in SERVED.items():
        if name != "Telemetry":
            answer = client.ask_for(name, made.get(name, method.request()))
            (reply,) = (await answer.ended()).messages
            assert reply.status.code == Code.UNAUTHORIZED, name
    assert served.store.log.written_offset == 0
