"""Session: the connections, routes and heartbeats that every client has.

A heartbeat tells a broker the producer and consumer groups of this client. It is the first request
on each new connection to a broker, and is repeated every 30 s. Slaves receive the consumer groups
too, so that a slave that becomes master knows them. Routes are refreshed every 30 s, and at once if
a broker fails.

A broker that has not answered for a second may have vanished, so the client refreshes its routes.
If another broker has become master in its place, requests in flight to the old one are abandoned.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Self
from weakref import WeakSet

from rockhopper.client.errors import (
    ClientError,
    ClientStateError,
    RequestRefusedError,
    is_route_outdated,
    may_have_moved,
)
from rockhopper.client.network.broker_clocks import FIELD, BrokerClocks
from rockhopper.client.network.connection import BrokerConnection, RequestHandler
from rockhopper.client.network.credentials import CredentialsChoice
from rockhopper.client.network.outages import Outages
from rockhopper.client.network.routing import NameServices, RouteCache, TopicRoute
from rockhopper.client.network.sharing import Connections, SharedConnections, Sharer
from rockhopper.client.network.tls import Tls
from rockhopper.protocol.bodies import ConsumerData, HeartbeatData, ProducerData
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.tasks import end_tasks, keep_running, run_in_background

log = logging.getLogger(__name__)

_FAREWELL_TIMEOUT_S = 1.0
_WATCH_INTERVAL_S = 0.5
_SUCCESS = frozenset({int(ResponseCode.SUCCESS)})


class Session(Sharer):
    """The base that all clients share; open between `start` and `close`."""

    def __init__(
        self,
        nameserver: str | None,
        *,
        request_timeout_s: float = 3.0,
        refresh_interval_s: float = 30.0,
        handle_request: RequestHandler | None = None,
        upkeep_log_level: int = logging.WARNING,
        credentials: CredentialsChoice = None,
        tls: Tls = None,
        connections: SharedConnections | None = None,
    ) -> None:
        """`upkeep_log_level` is DEBUG for a client that only makes single calls.

        Nobody waits for its upkeep between calls, and the next call reports the problem. `tls` is
        as in network/tls.py, `credentials` as in network/credentials.py. Raises ValueError,
        ClientStateError.
        """
        self.handle_request = handle_request
        self._is_shared = connections is not None
        if connections is None:
            self._connections = Connections(
                nameserver, connect_timeout_s=request_timeout_s, tls=tls, credentials=credentials
            )
        elif any(given is not None for given in (nameserver, tls, credentials)):
            raise ValueError(
                "nameserver, tls and credentials come from the Connections: pass them there"
            )
        else:
            self._connections = connections.current()
        self.client_id = self._connections.client_id
        self.request_timeout_s = request_timeout_s
        self.producer_groups: set[str] = set()
        self.consumers: dict[str, ConsumerData] = {}
        self.outages = Outages()
        self.clocks = BrokerClocks()
        self.on_connect: list[Callable[[BrokerConnection], None]] = []
        self._greeted: WeakSet[BrokerConnection] = WeakSet()
        self._refresh_interval_s = refresh_interval_s
        self._upkeep_log_level = upkeep_log_level
        self.pool = self._connections.pool
        self.name_services = NameServices(self._connections.addresses, self.pool, request_timeout_s)
        self.routes = RouteCache(self.name_services, self.pool)
        self.routes.on_change.append(self._route_changed)
        self._upkeep: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._greetings: dict[str, asyncio.Task[None]] = {}
        self._state = "new"

    def has_checker(self, group: str) -> bool:
        """Whether a client on these connections handles transaction checks of *group*."""
        return self._connections.has_checker(group)

    async def start(self) -> Self:
        """Start the background tasks. Opens no connection: the first request does."""
        if self._state != "new":
            raise ClientStateError(f"this client is {self._state} already; create a new one")
        self.pool.check_usable()  # binds the pool to this process and event loop
        self._connections.join(self)
        self._state = "open"
        self._begin_upkeep()
        self._begin_watch()
        return self

    def _begin_upkeep(self, _error: BaseException | None = None) -> None:
        if self._state == "open":
            what = "refreshing routes and heartbeats"
            self._upkeep = keep_running(self._keep_up, what, on_failure=self._begin_upkeep)

    def _begin_watch(self, _error: BaseException | None = None) -> None:
        if self._state == "open":
            what = "watching silent brokers"
            self._watch = keep_running(self._watch_silence, what, on_failure=self._begin_watch)

    async def close(self) -> None:
        """Unregister from the brokers and close the connections; a second call does nothing.

        If it is cancelled, it skips the unregistration.
        """
        if self._state == "closed" or self.is_inherited:
            self._state = "closed"
            return
        self.check_loop()
        self._state = "closed"
        try:
            await end_tasks([self._upkeep, self._watch, *self._greetings.values()])
            await self._sign_off()
        finally:
            self._connections.leave(self)
            try:
                await self.routes.close()
            finally:
                if not self._is_shared:
                    await self._connections.close()

    async def request(
        self,
        address: str,
        code: RequestCode,
        ext: dict[str, str] | None = None,
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
        accept: frozenset[int] = _SUCCESS,
    ) -> Command:
        """Send a request and return its answer.

        Raises RequestRefusedError if the answer's code is not in `accept`.
        """
        self.check_open()
        command = Command(int(code), ext=ext, body=body)
        answer = await self.pool.request(address, command, timeout_s or self.request_timeout_s)
        if answer.code not in accept:
            raise self.refusal(address, int(code), answer)
        return answer

    async def led_elsewhere(
        self, topic: str, broker_name: str, address: str, error: ClientError
    ) -> str | None:
        """Return where to read a broker's queues after `address` failed; None if nowhere else."""
        if not (may_have_moved(error) or is_route_outdated(error)):
            return None
        route = await self.routes.renew(topic)
        reader = route.reader(broker_name) if route is not None else None
        return reader if reader != address else None

    def request_json(
        self, address: str, code: int, header_start: bytes, body: bytes, timeout_s: float
    ) -> Awaitable[Command]:
        """Send a request whose header was begun by begin_json_header.

        The caller checks whether the answer is a refusal: `refusal`.
        """
        connection = self.ready(address)
        if connection is not None:
            return connection.request_json(code, header_start, body, timeout_s)
        return self.pool.request_json(address, code, header_start, body, timeout_s)

    def ready(self, address: str) -> BrokerConnection | None:
        """Return the connection to `address` if it can send at once. Raises ClientStateError."""
        if self._state != "open":
            self.check_open()
        return self.pool.ready(address)

    def refusal(self, address: str, code: int, answer: Command) -> RequestRefusedError:
        """Return the error for an answer that is not a success."""
        if answer.code == ResponseCode.GO_AWAY:
            self.pool.retire(address)
        refused = self.pool.refusal(address, code, answer)
        if refused.is_not_writable:
            self.doubt(address)
        return refused

    async def send_oneway(
        self, address: str, code: RequestCode, ext: dict[str, str], body: bytes = b""
    ) -> None:
        """Send a request without an answer."""
        self.check_open()
        await self.pool.send_oneway(address, Command(int(code), ext=ext, body=body))

    @property
    def is_inherited(self) -> bool:
        """Whether this process is a fork of the one that created the connections."""
        return self.pool.is_inherited

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._state == "closed"

    def check_open(self) -> None:
        """Raise ClientStateError unless between `start` and `close`, in its process and loop."""
        if self._state == "open" or self.is_inherited:
            self.pool.check_usable()
            return
        what = "not started; use `async with`" if self._state == "new" else "closed"
        raise ClientStateError(f"this client is {what}")

    def check_loop(self) -> None:
        """Raise ClientStateError in an event loop other than the one the client was started in."""
        if self._state == "open" and not self.is_inherited:
            self.pool.check_loop()

    def connection(self, address: str) -> BrokerConnection | None:
        """Return the open connection to `address`, or None; never dials."""
        return self.pool.existing(address)

    async def heartbeat(self, address: str, timeout_s: float | None = None) -> None:
        """Send a broker the groups of this client, and wait for its answer."""
        command = self._heartbeat_command()
        answer = await self.pool.request(address, command, timeout_s or self.request_timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise self.refusal(address, command.code, answer)
        self.clocks.heard(address, answer.ext)
        if (connection := self.pool.existing(address)) is not None:
            self._greeted.add(connection)

    async def introduce(self, addresses: Iterable[str]) -> list[ClientError]:
        """Send heartbeats to the brokers whose current connection has had none.

        Returns the errors of the failed ones.
        """
        strangers = [
            address
            for address in addresses
            if (known := self.pool.existing(address)) is None or known not in self._greeted
        ]
        outcomes = await asyncio.gather(
            *(self.heartbeat(address) for address in strangers), return_exceptions=True
        )
        failures: list[ClientError] = []
        for outcome in outcomes:
            if isinstance(outcome, ClientError):
                failures.append(outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
        return failures

    def _heartbeat_command(self) -> Command:
        sharers = self._connections.sharers or [self]
        producers = {group for each in sharers for group in each.producer_groups}
        data = HeartbeatData(
            client_id=self.client_id,
            producer_data_set=[ProducerData(group) for group in sorted(producers)],
            consumer_data_set=[data for each in sharers for data in each.consumers.values()],
        )
        return Command(int(RequestCode.HEART_BEAT), ext={FIELD: "0"}, body=data.encode())

    def _greet(self, connection: BrokerConnection) -> None:
        has_groups = self.producer_groups or self.consumers
        if has_groups and self.routes.has_broker(connection.address):
            greeting = connection.request(self._heartbeat_command(), self.request_timeout_s)
            greeting.add_done_callback(partial(self._greeting_ended, connection.address))
            self._greeted.add(connection)

    def _greeting_ended(self, address: str, greeting: asyncio.Future[Command]) -> None:
        if greeting.cancelled():
            return
        if (error := greeting.exception()) is not None:
            log.debug("a heartbeat was not answered: %s", error)
        elif greeting.result().code == ResponseCode.SUCCESS:
            self.clocks.heard(address, greeting.result().ext)

    def connected(self, connection: BrokerConnection) -> None:
        """See Sharer."""
        self._greet(connection)
        for listener in self.on_connect:
            listener(connection)

    async def _keep_up(self) -> None:
        while True:
            await asyncio.sleep(self._refresh_interval_s)
            await self.keep_up_once()

    def greet_all(self) -> None:
        """Send heartbeats with the current groups to all connected brokers, in the background."""
        for connection in self.pool.connections:
            self._greet(connection)

    async def keep_up_once(self) -> None:
        """Refresh the routes and send the heartbeats that are due every 30 s."""
        try:
            await self.name_services.follow_names()
            await self.routes.refresh(self._upkeep_log_level)
            self.greet_all()
            self._greet_slaves(self.routes.slaves)
        except ClientError as error:
            level = self._upkeep_log_level
            log.log(level, "routes and heartbeats failed, will retry: %s", error)

    def doubt(self, address: str) -> None:
        """See Sharer."""
        if self._state == "open":
            self.routes.doubt(address)

    async def _watch_silence(self) -> None:
        while True:
            await asyncio.sleep(_WATCH_INTERVAL_S)
            for address in self.pool.silent:
                if self.routes.has_broker(address) and not self.routes.has_master(address):
                    self.pool.abandon(address)
                else:
                    self.routes.doubt(address)

    def _route_changed(self, route: TopicRoute) -> None:
        if self._state != "open" or not self.consumers:
            return
        slaves = route.slaves
        if slaves:
            # A former master is detected as silent only if a request is sent to it.
            self.greet_all()
            self._greet_slaves(slaves)

    def _greet_slaves(self, addresses: Iterable[str]) -> None:
        """Register consumers with slaves in the background: nothing depends on it yet."""
        if not self.consumers:
            return
        for address in addresses:
            if self.pool.existing(address) is None and address not in self._greetings:
                task = run_in_background(self._greet_slave(address), f"greeting {address}")
                self._greetings[address] = task

    async def _greet_slave(self, address: str) -> None:
        try:
            await self.pool.connect(address)  # which sends a heartbeat
        except ClientError as error:
            log.debug("the slave %s does not know the groups of this client: %s", address, error)
        finally:
            del self._greetings[address]

    async def _sign_off(self) -> None:
        code = int(RequestCode.UNREGISTER_CLIENT)
        farewells: list[asyncio.Future[Command]] = []
        for connection in self.pool.connections:
            if not self.routes.has_broker(connection.address):
                continue
            # Another producer of the group may share the connection.
            others = [each for each in self._connections.sharers if each is not self]
            shared = {group for each in others for group in each.producer_groups}
            groups = [("producerGroup", group) for group in self.producer_groups - shared]
            groups += [("consumerGroup", group) for group in self.consumers]
            for field, group in groups:
                command = Command(code, ext={"clientID": self.client_id, field: group})
                try:
                    farewells.append(connection.request(command, _FAREWELL_TIMEOUT_S))
                except ClientError:  # broken, or inherited by a fork: closing has the same effect
                    break
        await asyncio.gather(*farewells, return_exceptions=True)
