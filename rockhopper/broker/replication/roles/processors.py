"""The requests that a replica of a set serves: the set's state in any role, clients only as master.

A replica that does not lead refuses clients with SYSTEM_BUSY, as RocketMQ's slaves do, but accepts
their heartbeats.
"""

from typing import Protocol

import structlog

from rockhopper.broker.kernel.processors.pulls import PULLED, PullProcessor
from rockhopper.broker.kernel.processors.runtime_info import MQ_VERSION_ORDINAL, VERSION_DESCRIPTION
from rockhopper.broker.replication.roles.follower_reads import FollowerReads
from rockhopper.broker.replication.roles.set_member import SwitchError
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
from rockhopper.broker.server.remoting.handover import remembering
from rockhopper.broker.server.remoting.permissions import CHANGE_CLUSTER, SEE_CLUSTER
from rockhopper.broker.server.remoting.server import Server
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.users.access import AccessRules
from rockhopper.protocol import fastjson
from rockhopper.protocol.bodies.topics import ROCKHOPPER_VERSION
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.requests import PullMessageRequest
from rockhopper.protocol.sys_flags import PULL_FLAG_COMMIT_OFFSET
from rockhopper.version import own_version

log = structlog.get_logger("broker.ha")


class SetMembership(Protocol):
    """A broker's membership in its set."""

    @property
    def replicated_offset(self) -> int:
        """The offset up to which the log may be shown."""

    @property
    def has_started(self) -> bool:
        """Whether the other members are available."""

    def status(self) -> dict[str, object]:
        """Return the whole status for operators, as JSON values."""

    def ha_runtime_info(self) -> dict[str, object]:
        """Return RocketMQ's HARuntimeInfo."""

    def epoch_cache(self) -> dict[str, object]:
        """Return RocketMQ's EpochEntryCache."""

    async def switch(self, target_id: int | None) -> int:
        """Hand the mastership over. Raises SwitchError."""

    async def elect_unclean(self) -> None:
        """Lead although messages may be lost. Raises SwitchError."""

    async def reseed(self) -> None:
        """Replace this store by the master's. Raises SwitchError."""

    def forget(self, replica_id: int) -> str:
        """Return the confirmation that a replica was removed. Raises SwitchError."""


class ReplicaProcessors:
    """The processors of a broker that is a replica."""

    def __init__(
        self, member: SetMembership, store: MessageStore, reads: FollowerReads | None = None
    ) -> None:
        """*reads* serves pulls while another replica leads, if that is enabled."""
        self._member = member
        self._store = store
        self._reads = reads
        self._pulls = None if reads is None else PullProcessor(reads.puller)

    def refuse(self, request: Request) -> Response:
        """Refuse any request of a client."""
        raise RequestError(
            ResponseCode.SYSTEM_BUSY,
            "[REJECTREQUEST]system busy, start flow control for a while: this replica does not "
            "lead its set; ask a name server for the master",
        )

    def pull(self, request: Request) -> Response | None:
        """PULL_MESSAGE: serve it if consumers may read from followers."""
        if self._reads is None or self._pulls is None:
            return self.refuse(request)
        commits = request.fields(PullMessageRequest).sys_flag & PULL_FLAG_COMMIT_OFFSET
        if commits or self._reads.shows_more_than(self._member.replicated_offset):
            return self.refuse(request)
        return self._pulls.process(request)

    def take_heartbeat(self, request: Request) -> Response:
        """HEART_BEAT: accept it, because clients send it to every broker of a route."""
        return Response()

    def runtime_info(self, request: Request) -> Response:
        """GET_BROKER_RUNTIME_INFO: return the beginning and end of the log."""
        store = self._store
        table = {
            "brokerActive": "false",
            "brokerVersion": str(MQ_VERSION_ORDINAL),
            "brokerVersionDesc": VERSION_DESCRIPTION,
            ROCKHOPPER_VERSION: own_version(),
            "commitLogMaxOffset": str(store.log.written_offset),
            "commitLogMinOffset": str(store.log.min_offset),
            "dispatchBehindBytes": str(store.log.written_offset - store.dispatch.offset),
        }
        return Response(body=fastjson.dumps({"table": table}).encode())

    @property
    def _started(self) -> SetMembership:
        if not self._member.has_started:
            raise RequestError(
                ResponseCode.SYSTEM_BUSY, "this replica is starting: try again in a moment"
            )
        return self._member

    def status(self, request: Request) -> Response:
        """GET_REPLICA_SET: return the status of the set."""
        return Response(body=fastjson.dumps(self._started.status()).encode())

    def ha_status(self, request: Request) -> Response:
        """GET_BROKER_HA_STATUS: return RocketMQ's HARuntimeInfo."""
        return Response(body=fastjson.dumps(self._started.ha_runtime_info()).encode())

    def epoch_cache(self, request: Request) -> Response:
        """GET_BROKER_EPOCH_CACHE: return RocketMQ's EpochEntryCache."""
        return Response(body=fastjson.dumps(self._started.epoch_cache()).encode())

    async def change(self, request: Request) -> Response:
        """CHANGE_REPLICA_SET: ``action`` is switch, elect, reseed or forget.

        ``id`` is a replica's.
        """
        action, number = request.ext.get("action", ""), request.ext.get("id", "")
        if number and not number.isdecimal():
            raise RequestError(ResponseCode.INVALID_PARAMETER, f"{number!r} is not a replica id")
        member = self._started
        try:
            match action:
                case "switch":
                    said = f"replica {await member.switch(int(number or 0) or None)} leads"
                case "elect":
                    await member.elect_unclean()
                    said = "this replica requests to lead"
                case "reseed":
                    await member.reseed()
                    said = "this replica is seeded again by its master"
                case "forget":
                    said = member.forget(int(number or 0))
                case _:
                    raise RequestError(
                        ResponseCode.INVALID_PARAMETER,
                        f"{action!r} is not an action: use switch, elect, reseed or forget",
                    )
        except SwitchError as error:
            raise RequestError(ResponseCode.ILLEGAL_OPERATION, str(error)) from None
        log.warning("an operator changed the replica set", action=action, id=number, outcome=said)
        return Response(body=fastjson.dumps({"said": said}).encode())

    def rows(self) -> dict[int, Row]:
        """Return the rows that are served in any role, also by a master that no longer leads."""
        return {
            Code.GET_REPLICA_SET: administers(self.status, SEE_CLUSTER, promises_state=False),
            Code.CHANGE_REPLICA_SET: administers(self.change, CHANGE_CLUSTER, promises_state=False),
            Code.GET_BROKER_HA_STATUS: administers(
                self.ha_status, SEE_CLUSTER, promises_state=False
            ),
            Code.GET_BROKER_EPOCH_CACHE: administers(
                self.epoch_cache, SEE_CLUSTER, promises_state=False
            ),
        }

    def leading_rows(self, table: dict[int, Row]) -> dict[int, Row]:
        """Return *table*, which is served while this replica leads, with the set's own rows."""
        beat = table[Code.HEART_BEAT]
        kept = beat._replace(processor=remembering(beat.processor))
        return table | self.rows() | {int(Code.HEART_BEAT): kept}

    def following_rows(self) -> dict[int, Row]:
        """Return the rows that are served while another replica leads."""
        table: dict[int, Row] = {int(code): serves(self.refuse) for code in Code}
        for code in (Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE):
            table[code] = serves(self.pull, *PULLED, may_wait=True)
        table[Code.HEART_BEAT] = serves(self.take_heartbeat)
        table[Code.GET_BROKER_RUNTIME_INFO] = administers(self.runtime_info, SEE_CLUSTER)
        return table | self.rows()


def following_server(
    processors: ReplicaProcessors, access: AccessRules, connections_max: int
) -> Server:
    """Return the server for the time in which another replica leads."""
    table = processors.following_rows()
    handler = GeneralPass(Dispatcher(table, access))
    return Server("broker", handler, connections_max=connections_max, access=access)
