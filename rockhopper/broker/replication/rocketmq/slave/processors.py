"""The requests that a broker serves while it follows another: its status and the takeover.

It refuses all others with SYSTEM_BUSY, like RocketMQ's slaves: clients then try another broker.
"""

import asyncio
from typing import Protocol

import structlog

from rockhopper.broker.kernel.processors.runtime_info import MQ_VERSION_ORDINAL, VERSION_DESCRIPTION
from rockhopper.broker.name_server.followed_master import FollowError
from rockhopper.broker.replication.rocketmq.slave.follower import SlaveFollower
from rockhopper.broker.server.remoting.dispatcher import (
    Dispatcher,
    Request,
    RequestError,
    Response,
    Row,
    administers,
    serves,
)
from rockhopper.broker.server.remoting.general_pass import GeneralPass
from rockhopper.broker.server.remoting.permissions import CHANGE_CLUSTER, SEE_CLUSTER
from rockhopper.broker.server.remoting.server import Server
from rockhopper.broker.server.remoting.startup import StartError
from rockhopper.broker.users.access import AccessRules
from rockhopper.protocol import fastjson
from rockhopper.protocol.bodies.topics import ROCKHOPPER_VERSION
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.tasks import run_in_background
from rockhopper.version import own_version

log = structlog.get_logger("broker.following")


class RestartableBroker(Protocol):
    """A broker that can stop and start again on the same ports."""

    failed: asyncio.Event
    """Set when the process must end."""

    async def start(self) -> None:
        """Start to serve, or to follow."""

    async def stop(self) -> None:
        """Stop."""


class Takeover:
    """The change from following to serving, at most once: the broker restarts on the same ports."""

    def __init__(self, broker: RestartableBroker) -> None:
        """*broker* must not follow again once ``has_begun`` is set."""
        self._broker = broker
        self._running: asyncio.Task[None] | None = None

    @property
    def has_begun(self) -> bool:
        """Whether the takeover can no longer be reverted."""
        return self._running is not None

    async def start(self, follower: SlaveFollower, *, force: bool) -> None:
        """Start to take over, soon after this returns.

        Raises:
            FollowError: data would be lost, and *force* is not set.
        """
        if not force:
            await follower.check_takeover()
        if self.has_begun:
            raise FollowError("this broker is taking over already")
        self._running = run_in_background(
            self._run(follower), "taking over", on_failure=lambda _: self._broker.failed.set()
        )

    async def _run(self, follower: SlaveFollower) -> None:
        log.info("taking over", state=follower.state())
        try:
            await self._broker.stop()
            follower.forget()
            await self._broker.start()
        except (StartError, OSError) as error:
            log.critical("takeover failed: restart this broker", reason=str(error))
            self._broker.failed.set()
        else:
            log.info("takeover complete: this broker serves from now on")


class SlaveProcessors:
    """The processors of a broker that follows."""

    def __init__(self, follower: SlaveFollower, takeover: Takeover) -> None:
        self._follower = follower
        self._takeover = takeover

    def refuse(self, request: Request) -> Response:
        """Refuse any request of a client."""
        raise RequestError(
            ResponseCode.SYSTEM_BUSY,
            "[REJECTREQUEST]system busy, start flow control for a while: this broker follows "
            f"{self._follower.master_address} and serves no clients until it takes over",
        )

    def runtime_info(self, request: Request) -> Response:
        """GET_BROKER_RUNTIME_INFO: return the beginning and end of the copy."""
        store, follower = self._follower.store, self._follower
        table = {
            "brokerActive": "false",
            "brokerVersion": str(MQ_VERSION_ORDINAL),
            "brokerVersionDesc": VERSION_DESCRIPTION,
            ROCKHOPPER_VERSION: own_version(),
            "commitLogMaxOffset": str(store.log.written_offset),
            "commitLogMinOffset": str(store.log.min_offset),
            "dispatchBehindBytes": str(store.log.written_offset - store.dispatch.offset),
            "followState": follower.state(),
            "followedMaster": follower.master_address,
            "masterBehindBytes": str(follower.behind_bytes),
        }
        return Response(body=fastjson.dumps({"table": table}).encode())

    def ha_status(self, request: Request) -> Response:
        """GET_BROKER_HA_STATUS: return RocketMQ's HARuntimeInfo of a slave."""
        follower = self._follower
        end = follower.store.log.written_offset
        client = {
            "isActivated": follower.is_copying,
            "lastReadTimestamp": 0,
            "lastWriteTimestamp": 0,
            "masterAddr": follower.master_address,
            "masterFlushOffset": 0,
            "maxOffset": end,
            "transferredByteInSecond": 0,
        }
        status = {
            "haClientRuntimeInfo": client,
            "haConnectionInfo": [],
            "inSyncSlaveNums": 0,
            "master": False,
            "masterCommitLogMaxOffset": follower.master_end,
        }
        return Response(body=fastjson.dumps(status).encode())

    async def take_over(self, request: Request) -> Response:
        """TAKE_OVER: answer before the broker stops following."""
        try:
            await self._takeover.start(self._follower, force=request.ext.get("force") == "true")
        except FollowError as error:
            raise RequestError(ResponseCode.ILLEGAL_OPERATION, str(error)) from None
        return Response()


def build_slave_table(follower: SlaveFollower, takeover: Takeover) -> dict[int, Row]:
    """Return the table that is served while *follower* copies."""
    slave = SlaveProcessors(follower, takeover)
    table: dict[int, Row] = {int(code): serves(slave.refuse) for code in Code}
    table[Code.GET_BROKER_RUNTIME_INFO] = administers(slave.runtime_info, SEE_CLUSTER)
    table[Code.GET_BROKER_HA_STATUS] = administers(slave.ha_status, SEE_CLUSTER)
    table[Code.TAKE_OVER] = administers(slave.take_over, CHANGE_CLUSTER)
    return table


def slave_server(
    follower: SlaveFollower, takeover: Takeover, access: AccessRules, connections_max: int
) -> Server:
    """Return the server for the time in which *follower* copies."""
    dispatcher = Dispatcher(build_slave_table(follower, takeover), access)
    return Server("broker", GeneralPass(dispatcher), connections_max=connections_max, access=access)
