"""Keeps a client connected to all brokers of its clusters, so that they can send it requests.

A broker knows a client by the heartbeats on a connection that is open now. So all masters known to
the name server get a heartbeat every 30 s, and a second after their connection has broken. After a
break, and after a change of a route, the client asks the name server for the current masters.
"""

import asyncio
import logging

from rockhopper.client.errors import ClientError
from rockhopper.client.network.addresses import MASTER_ID
from rockhopper.client.network.routing import TopicRoute
from rockhopper.client.network.session import Session
from rockhopper.protocol.bodies import ClusterInfo
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.errors import ProtocolError
from rockhopper.tasks import end_tasks, keep_running

log = logging.getLogger(__name__)

_LOOK_INTERVAL_S = 1.0
_HEARTBEAT_INTERVAL_S = 30.0


class Reachability:
    """Keeps one client registered with the brokers, from `start` to `close`."""

    def __init__(
        self,
        session: Session,
        *,
        look_interval_s: float = _LOOK_INTERVAL_S,
        heartbeat_interval_s: float = _HEARTBEAT_INTERVAL_S,
    ) -> None:
        self._session = session
        self._look_interval_s = look_interval_s
        self._heartbeat_interval_s = heartbeat_interval_s
        self._masters: set[str] = set()
        self._is_changed = False
        session.routes.on_change.append(self._route_changed)
        self._upkeep: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start connecting."""
        self._upkeep = keep_running(
            self._keep_up, "staying connected to the brokers", on_failure=lambda _: self._restart()
        )

    def _restart(self) -> None:
        if self._upkeep is not None:
            self.start()

    async def close(self) -> None:
        """Stop the background task."""
        upkeep, self._upkeep = self._upkeep, None
        await end_tasks([upkeep])

    async def _keep_up(self) -> None:
        now_s = asyncio.get_running_loop().time
        due_s = now_s()
        while True:
            is_due = now_s() >= due_s
            lost = self._lost()
            if is_due or self._is_changed or lost:
                self._is_changed = False
                if await self._look_up() and is_due:
                    due_s = now_s() + self._heartbeat_interval_s
                # The query may have connected to a broker that is a name server too.
                lost = (lost | self._lost()) & self._masters
            await asyncio.gather(*map(self._greet, self._masters if is_due else lost))
            await asyncio.sleep(self._look_interval_s)

    def _lost(self) -> set[str]:
        return {each for each in self._masters if self._session.connection(each) is None}

    def _route_changed(self, _route: TopicRoute) -> None:
        self._is_changed = True

    async def _look_up(self) -> bool:
        try:
            answer = await self._session.name_services.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
            if answer.code != ResponseCode.SUCCESS:
                return False
            info = ClusterInfo.decode(answer.body)
        except (ClientError, ProtocolError) as error:
            log.debug("the brokers are not known yet: %s", error)
            return False
        self._masters = {
            broker.broker_addrs[MASTER_ID]
            for broker in info.broker_addr_table.values()
            if MASTER_ID in broker.broker_addrs
        }
        return True

    async def _greet(self, address: str) -> None:
        try:
            await self._session.heartbeat(address)
        except ClientError as error:
            log.debug("%s cannot check transactions with this client now: %s", address, error)
