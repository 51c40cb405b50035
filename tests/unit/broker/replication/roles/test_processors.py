"""What a replica that does not lead tells clients and operators."""

import json
from typing import Any

import pytest

from rockhopper.broker.replication.roles.processors import ReplicaProcessors
from rockhopper.broker.replication.roles.set_member import SwitchError
from rockhopper.broker.server.remoting.dispatcher import Request, RequestError, Response, Row
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from tests.support.open_stores import Stores
from tests.support.peers import Peer


class Member:
    """Remembers what it was asked for."""

    replicated_offset = 0
    has_started = True

    def __init__(self) -> None:
        self.asked: list[object] = []

    def status(self) -> dict[str, object]:
        return {"epoch": 3}

    def ha_runtime_info(self) -> dict[str, object]:
        return {"master": False}

    def epoch_cache(self) -> dict[str, object]:
        return {"epochList": []}

    async def switch(self, target_id: int | None) -> int:
        self.asked.append(("switch", target_id))
        return target_id or 2

    async def elect_unclean(self) -> None:
        raise SwitchError("replica 2 leads")

    async def reseed(self) -> None:
        self.asked.append("reseed")

    def forget(self, replica_id: int) -> str:
        return f"{replica_id} is forgotten"


@pytest.fixture
def member() -> Member:
    return Member()


@pytest.fixture
def processors(tmp_path: Any, member: Member) -> ReplicaProcessors:
    stores = Stores(tmp_path)
    store: MessageStore = stores.open()
    return ReplicaProcessors(member, store)


def request(code: RequestCode, **ext: str) -> Request:
    return Request(Peer().connection, Command(code=code, opaque=1, ext=ext))


def served(row: Row, code: RequestCode) -> Response:
    response = row.processor(request(code))
    assert isinstance(response, Response)
    return response


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.GET_REPLICA_SET,
        RequestCode.GET_BROKER_HA_STATUS,
        RequestCode.GET_BROKER_EPOCH_CACHE,
    ],
)
def test_a_replica_that_is_starting_says_so(
    processors: ReplicaProcessors, member: Member, code: RequestCode
) -> None:
    member.has_started = False
    with pytest.raises(RequestError, match="is starting") as error:
        served(processors.rows()[code], code)
    assert error.value.code == ResponseCode.SYSTEM_BUSY


def test_clients_are_sent_elsewhere(processors: ReplicaProcessors) -> None:
    with pytest.raises(RequestError, match="REJECTREQUEST") as error:
        processors.following_rows()[RequestCode.SEND_MESSAGE].processor(
            request(RequestCode.SEND_MESSAGE)
        )
    assert error.value.code == ResponseCode.SYSTEM_BUSY


def test_heartbeats_are_taken(processors: ReplicaProcessors) -> None:
    row = processors.following_rows()[RequestCode.HEART_BEAT]
    assert served(row, RequestCode.HEART_BEAT).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (RequestCode.GET_REPLICA_SET, {"epoch": 3}),
        (RequestCode.GET_BROKER_HA_STATUS, {"master": False}),
        (RequestCode.GET_BROKER_EPOCH_CACHE, {"epochList": []}),
    ],
)
def test_operators_see_how_the_set_is(
    processors: ReplicaProcessors, code: RequestCode, told: dict[str, object]
) -> None:
    assert json.loads(served(processors.rows()[code], code).body) == told


async def change(processors: ReplicaProcessors, **ext: str) -> str:
    response = await processors.change(request(RequestCode.CHANGE_REPLICA_SET, **ext))
    return str(json.loads(response.body)["said"])


async def test_operators_change_the_set(processors: ReplicaProcessors, member: Member) -> None:
    assert await change(processors, action="switch") == "replica 2 leads"
    assert await change(processors, action="switch", id="3") == "replica 3 leads"
    assert "seeded" in await change(processors, action="reseed")
    assert await change(processors, action="forget", id="4") == "4 is forgotten"
    assert member.asked == [("switch", None), ("switch", 3), "reseed"]


async def test_what_is_refused_is_told(processors: ReplicaProcessors) -> None:
    with pytest.raises(RequestError, match="replica 2 leads"):
        await change(processors, action="elect")
    with pytest.raises(RequestError, match="'x' is not a replica id"):
        await change(processors, action="switch", id="x")
    with pytest.raises(RequestError, match="switch, elect, reseed or forget"):
        await change(processors, action="dance")
