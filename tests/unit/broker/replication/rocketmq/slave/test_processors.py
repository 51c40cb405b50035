"""What a broker answers while it follows."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rockhopper.broker.name_server.followed_master import FollowError
from rockhopper.broker.replication.rocketmq.slave.follower import SlaveFollower
from rockhopper.broker.replication.rocketmq.slave.processors import Takeover, build_slave_table
from rockhopper.broker.server.remoting.dispatcher import Dispatcher
from rockhopper.broker.server.remoting.permissions import ADMINISTRATION
from rockhopper.broker.server.remoting.startup import StartError
from rockhopper.broker.users.access import AccessRules
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command, decode_header
from rockhopper.protocol.frame import FrameDecoder
from tests.support.peers import Peer
from tests.support.turns import until


class Store:
    log = SimpleNamespace(min_offset=10, written_offset=100)
    dispatch = SimpleNamespace(offset=90)


class Following:
    """A follower that is 20 bytes behind."""

    store = Store()
    master_address = "10.0.0.1:10911"
    behind_bytes = 20
    master_end = 120
    is_copying = True

    def __init__(self) -> None:
        self.events: list[str] = []
        self.failed = asyncio.Event()

    def state(self) -> str:
        return "following"

    async def check_takeover(self) -> None:
        raise FollowError("the master still takes messages")

    def forget(self) -> None:
        self.events.append("forgotten")

    async def stop(self) -> None:
        self.events.append("stopped")

    async def start(self) -> None:
        self.events.append("started")
        if "fail" in self.events:
            raise StartError("the port is taken")

    @property
    def takeover(self) -> Takeover:
        return Takeover(self)


@pytest.fixture
def following() -> Following:
    return Following()


@pytest.fixture
def dispatcher(following: Following) -> Dispatcher:
    table = build_slave_table(cast("SlaveFollower", following), following.takeover)
    return Dispatcher(table, AccessRules(remote_admin=False))


async def ask(
    dispatcher: Dispatcher, code: int, ext: dict[str, str] | None = None, host: str = "127.0.0.1"
) -> Command:
    peer = Peer(host)
    data = dispatcher.dispatch(cast("Any", peer), Command(code=code, opaque=1, ext=ext))
    await until(lambda: bool(data or peer.written))
    ((serialize_type, header, body),) = FrameDecoder().feed(data or b"".join(peer.written))
    return decode_header(serialize_type, header, body)


@pytest.mark.parametrize("code", [10, 11, 34, 36, 37, 310, 200_050])
async def test_clients_are_refused(code: int, dispatcher: Dispatcher) -> None:
    answer = await ask(dispatcher, code)
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert "[REJECTREQUEST]" in str(answer.remark)
    assert "10.0.0.1:10911" in str(answer.remark)


async def test_it_tells_how_far_it_is(dispatcher: Dispatcher) -> None:
    table = json.loads((await ask(dispatcher, RequestCode.GET_BROKER_RUNTIME_INFO)).body)["table"]
    assert table["commitLogMaxOffset"] == "100"
    assert table["masterBehindBytes"] == "20"
    assert table["dispatchBehindBytes"] == "10"
    status = json.loads((await ask(dispatcher, RequestCode.GET_BROKER_HA_STATUS)).body)
    assert status["master"] is False
    assert status["haClientRuntimeInfo"]["maxOffset"] == 100
    assert status["masterCommitLogMaxOffset"] == 120


async def test_a_takeover_is_refused_with_the_reason(
    dispatcher: Dispatcher, following: Following
) -> None:
    answer = await ask(dispatcher, RequestCode.TAKE_OVER)
    assert answer.code == ResponseCode.ILLEGAL_OPERATION
    assert answer.remark == "the master still takes messages"
    assert (await ask(dispatcher, RequestCode.TAKE_OVER, {"force": "true"})).code == 0
    await until(lambda: len(following.events) == 3)
    assert following.events == ["stopped", "forgotten", "started"]
    answer = await ask(dispatcher, RequestCode.TAKE_OVER, {"force": "true"})
    assert answer.remark == "this broker is taking over already"


async def test_a_takeover_that_fails_ends_the_process(
    dispatcher: Dispatcher, following: Following
) -> None:
    following.events.append("fail")
    assert (await ask(dispatcher, RequestCode.TAKE_OVER, {"force": "true"})).code == 0
    await following.failed.wait()


async def test_others_may_not_have_it_take_over(following: Following) -> None:
    table = build_slave_table(cast("SlaveFollower", following), following.takeover)
    for code in (RequestCode.TAKE_OVER, RequestCode.GET_BROKER_HA_STATUS):
        assert ADMINISTRATION in table[code].permissions
