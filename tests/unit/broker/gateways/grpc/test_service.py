"""Who asks by gRPC: where there are users, what is not signed by one is served to nobody."""

from typing import Any, cast

import pytest

from rockhopper.broker.feature import RpcRow
from rockhopper.broker.gateways.grpc.activities.producing import Producing
from rockhopper.broker.gateways.grpc.call import Demands
from rockhopper.broker.gateways.grpc.gateway import GrpcGateway, probes
from rockhopper.broker.gateways.grpc.identity import ConnectionIdentity
from rockhopper.broker.gateways.grpc.service import GrpcService
from rockhopper.broker.store.lease_gate import LeaseGate
from rockhopper.broker.users.access import AccessRules
from rockhopper.broker.users.accounts import User
from rockhopper.broker.users.guard import Guard
from rockhopper.broker.users.peer import Principal
from rockhopper.protocol.grpc_v2.messages import METHODS, SERVICE
from rockhopper.protocol.signing import sign
from tests.support.served_broker import ServedBroker

SECRET, DATE = "a secret of root", "20261126T180000Z"
PROMISING = {
    "AckMessage",
    "ChangeInvisibleDuration",
    "EndTransaction",
    "ForwardMessageToDeadLetterQueue",
    "RecallMessage",
    "SyncLiteSubscription",
    "UpdateOffset",
}


class Settled:
    def settle(self) -> None: ...


class Asking:
    """A call, and what became of it."""

    def __init__(self, service: GrpcService, **fields: str) -> None:
        self.fields = {name.replace("_", "-"): text for name, text in fields.items()}
        self.principal = Principal("10.0.0.7")
        self.connection = self
        self.identity = ConnectionIdentity("10.0.0.7")
        self.rpc = service.find("/apache.rocketmq.v2.MessagingService/Heartbeat")
        self.replies: list[Any] = []
        self.refusals: list[str] = []

    def admit(self, access: AccessRules, demands: Demands) -> None: ...

    def write(self, reply: Any) -> None:
        self.replies.append(reply)

    def end_call(self) -> None:
        pass

    def reply(self, reply: Any) -> None:
        self.replies.append(reply)

    def refuse(self, error: Exception) -> None:
        self.refusals.append(type(error).__name__)


def served(path: str | None = None, **fields: str) -> Asking:
    guard = Guard(remote_admin=False, authenticates=True)
    guard.use({"root": User("root", SECRET, is_super=True)}, {})
    service = GrpcService(
        {"Heartbeat": RpcRow(lambda _call, _request: "served", lambda _request: ())},
        guard,
        cast(Producing, Settled()),
    )
    service.register_rpcs(probes(lambda: None))
    asking = Asking(service, **fields)
    if path is not None:
        asking.rpc = service.find(path)
    service.serve(asking, b"")  # type: ignore[arg-type]
    return asking


def test_probes_are_served_to_nobody_and_to_anybody() -> None:
    for fields in ({}, {"authorization": "MQv2-HMAC-SHA1 nonsense"}):
        asking = served("/grpc.health.v1.Health/Check", **fields)
        assert [reply.status for reply in asking.replies] == [1]
    assert served().refusals


def header(secret: str = SECRET, user: str = "root") -> str:
    signature = sign(secret, DATE.encode()).hex()
    return f"MQv2-HMAC-SHA1 Credential={user}, SignedHeaders=x-mq-date-time, Signature={signature}"


def test_a_signed_call_is_served_in_its_users_name() -> None:
    asking = served(authorization=header(), x_mq_date_time=DATE)
    assert (asking.replies, asking.principal.user) == (["served"], "root")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"authorization": header()},
        {"authorization": header(), "x_mq_date_time": "20261126T180001Z"},
        {"authorization": header("another"), "x_mq_date_time": DATE},
        {"authorization": header(user="bob"), "x_mq_date_time": DATE},
        {"authorization": "Basic cm9vdA==", "x_mq_date_time": DATE},
    ],
)
def test_any_other_is_refused_though_it_needs_nothing(fields: dict[str, str]) -> None:
    asking = served(**fields)
    assert (asking.replies, asking.refusals) == ([], ["NotAuthenticated"])


async def test_replies_that_promise_state_pass_the_gate_and_no_others(
    broker: ServedBroker,
) -> None:
    gate = LeaseGate(lambda: True, 3000)
    gateway = GrpcGateway(broker.kernel, broker.features, broker.access, cast(Any, None), 100, gate)
    rpcs = {name: gateway.server.service.find(f"/{SERVICE}/{name}") for name in METHODS}
    served = {name: rpc for name, rpc in rpcs.items() if rpc is not None}
    assert {name for name, rpc in served.items() if rpc.gate is gate} == PROMISING & served.keys()
    assert served.keys() >= {"SendMessage", "UpdateOffset"}
    await gateway.close()
    gate.close()
