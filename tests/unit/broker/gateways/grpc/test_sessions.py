"""Clients by their id."""

import pytest

from rockhopper.broker.gateways.grpc.call import Call
from rockhopper.broker.gateways.grpc.sessions import Sessions
from rockhopper.broker.gateways.grpc.statuses import GrpcStatusError
from rockhopper.broker.users.peer import ConsumersChanged, Principal
from rockhopper.protocol.codes import LanguageCode
from rockhopper.protocol.grpc_v2.codes import Code
from rockhopper.protocol.grpc_v2.framing import MessageSplitter
from tests.support.grpc_client import GrpcBroker, GrpcClient
from tests.support.peers import Clock


@pytest.fixture
def sessions(clock: Clock) -> Sessions:
    return Sessions(clock)


def call_of(
    served: GrpcBroker, client: GrpcClient, client_id: str, user: str = "", language: str = ""
) -> Call:
    fields = {"x-mq-client-id": client_id, "x-mq-language": language}
    rpc = served.gateway.server.service.find("/apache.rocketmq.v2.MessagingService/Telemetry")
    assert rpc is not None
    call = Call(client.connection, 1, rpc, fields, MessageSplitter("identity", 100))
    call.principal = Principal("10.0.0.1", user)
    return call


async def test_a_client_has_one_session(
    sessions: Sessions, served: GrpcBroker, client: GrpcClient
) -> None:
    first = sessions.open(call_of(served, client, "c1"))
    assert sessions.open(call_of(served, client, "c1")) is first
    assert sessions.open(call_of(served, client, "c2")) is not first
    assert len(sessions) == 2


async def test_nobody_takes_over_another_users_client(
    sessions: Sessions, served: GrpcBroker, client: GrpcClient
) -> None:
    sessions.open(call_of(served, client, "c1", user="alice"))
    for ask in (sessions.open, sessions.find, sessions.get_known):
        with pytest.raises(GrpcStatusError) as failure:
            ask(call_of(served, client, "c1", user="mallory"))
        assert failure.value.code is Code.UNAUTHORIZED


async def test_the_clients_of_a_user_can_be_let_go(
    sessions: Sessions, served: GrpcBroker, client: GrpcClient
) -> None:
    alices = sessions.open(call_of(served, client, "c1", user="alice"))
    bobs = sessions.open(call_of(served, client, "c2", user="bob"))
    gone: list[object] = []
    alices.on_close.append(gone.append)
    sessions.end_user("alice")
    assert gone == [alices]
    assert (alices.closed, bobs.closed) == (True, False)
    assert list(sessions) == [bobs]


@pytest.mark.parametrize(
    ("named", "code"),
    [("GO", LanguageCode.GO), ("rust", LanguageCode.RUST), ("COBOL", LanguageCode.OTHER)],
)
async def test_a_language_that_nobody_knows_is_another(
    sessions: Sessions, served: GrpcBroker, client: GrpcClient, named: str, code: LanguageCode
) -> None:
    session = sessions.open(call_of(served, client, "c1", language=named))
    assert session.client().language == code.value


async def test_nothing_is_told_without_a_stream(
    sessions: Sessions, served: GrpcBroker, client: GrpcClient
) -> None:
    session = sessions.open(call_of(served, client, "c1"))
    assert session.writing_paused
    assert session.notify(ConsumersChanged("g")) == 0
