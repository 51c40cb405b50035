"""Routes: the brokers that serve a topic, queried from name servers, cached, and refreshed.

The client uses one name server until it fails. If that server does not answer soon, the client
queries the next one as well. A cached route stays in use while no name server answers, or while one
that has just started does not know the topic yet.

If a broker fails, another replica may become its master. The client then refreshes the topic's
route at once, and tries each name server in turn while the answers are unchanged. When an answer
names another master, all routes are updated.

A producer may send to a topic that does not exist. Like Java's producer it then uses the route of
the template topic TBW102, which is registered by brokers that create topics on first use
(`is_guess`).
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from rockhopper.client.errors import (
    BrokerUnreachableError,
    ClientError,
    ClientStateError,
    MalformedAnswerError,
    RequestTimeoutError,
    RouteNotFoundError,
    copy_error,
)
from rockhopper.client.network.absent import explain_missing_route
from rockhopper.client.network.addresses import MASTER_ID
from rockhopper.client.network.connection_pool import ConnectionPool
from rockhopper.client.queues import MessageQueue
from rockhopper.protocol.bodies import TopicRouteData
from rockhopper.protocol.bodies.route import BrokerData
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.names import AUTO_CREATE_TOPIC
from rockhopper.protocol.sys_flags import PERM_READ, PERM_WRITE
from rockhopper.tasks import end_tasks, is_cancelled_alone, let_go, start_task

log = logging.getLogger(__name__)

TEMPLATE_QUEUE_COUNT = 4
# How long to wait for one name server before querying the next as well.
_PATIENCE_S = 0.1
# How long to wait for other name servers if one does not know a topic.
_OTHERS_PATIENCE_S = 1.0
# During a failover: the minimum time between two queries for a route, and the polling interval of a
# caller that waits for a change.
_RENEWAL_PAUSE_S = 0.02
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """The queues of a topic, and the addresses of their brokers."""

    topic: str
    write_queues: tuple[MessageQueue, ...]
    read_queues: tuple[MessageQueue, ...]
    brokers: Mapping[str, Mapping[int, str]]
    """Broker name -> broker id -> address; id 0 is the master."""
    is_guess: bool = False
    """The topic does not exist yet; it has these queues once a broker has created it."""
    masterless_queues: tuple[MessageQueue, ...] = ()
    """Queues that would be writable if their broker had a master."""

    def master(self, broker_name: str) -> str | None:
        """Return the address that accepts writes for `broker_name`."""
        return self.brokers.get(broker_name, {}).get(MASTER_ID)

    def reader(self, broker_name: str, broker_id: int = MASTER_ID) -> str | None:
        """Return an address to read from: the suggested broker id, else the master, else any."""
        addresses = self.brokers.get(broker_name, {})
        return (
            addresses.get(broker_id)
            or addresses.get(MASTER_ID)
            or next(iter(addresses.values()), None)
        )

    @property
    def masters(self) -> dict[str, str]:
        """Broker name -> address of its master."""
        return {name: ids[MASTER_ID] for name, ids in self.brokers.items() if MASTER_ID in ids}

    @property
    def slaves(self) -> set[str]:
        """The addresses of brokers that are not masters."""
        return {
            address
            for ids in self.brokers.values()
            if len(ids) > 1 or MASTER_ID not in ids
            for broker_id, address in ids.items()
            if broker_id != MASTER_ID
        }


def _expand(topic: str, broker_name: str, count: int) -> list[MessageQueue]:
    return [MessageQueue(topic, broker_name, number) for number in range(count)]


def _collect_addresses(data: TopicRouteData) -> dict[str, dict[int, str]]:
    return {
        broker.broker_name: dict(broker.broker_addrs)
        for broker in data.broker_datas
        if broker.broker_addrs
    }


def route_from_data(topic: str, data: TopicRouteData, *, guess_queue_count: int = 0) -> TopicRoute:
    """Expand a name server's answer into queues, in the order of Java's clients.

    With `guess_queue_count`, the data is that of the template topic, and each broker gets at most
    that many queues.
    """
    brokers = _collect_addresses(data)
    read_queues: list[MessageQueue] = []
    write_counts: list[tuple[str, int]] = []
    for queue_data in sorted(data.queue_datas, key=lambda each: each.broker_name):
        name = queue_data.broker_name
        reads, writes = queue_data.read_queue_nums, queue_data.write_queue_nums
        if guess_queue_count:
            reads = writes = min(guess_queue_count, reads)
        if queue_data.perm & PERM_READ and name in brokers:
            read_queues += _expand(topic, name, reads)
        if queue_data.perm & PERM_WRITE:
            write_counts.append((name, writes))
    if data.order_topic_conf:
        write_counts = list(data.list_ordered_counts())  # unchanged while a broker is away
    write_queues: list[MessageQueue] = []
    masterless: list[MessageQueue] = []
    for name, count in write_counts:
        queues = write_queues if MASTER_ID in brokers.get(name, {}) else masterless
        queues += _expand(topic, name, count)
    return TopicRoute(
        topic,
        tuple(write_queues),
        tuple(read_queues),
        brokers,
        is_guess=bool(guess_queue_count),
        masterless_queues=tuple(masterless),
    )


def leave_out(brokers: Iterable[BrokerData], addresses: frozenset[str]) -> None:
    """Remove these addresses from the brokers of a name server's answer."""
    for broker in brokers:
        kept = {number: at for number, at in broker.broker_addrs.items() if at not in addresses}
        broker.broker_addrs = kept


def _guess_key(topic: str) -> str:
    return f"{topic} as {AUTO_CREATE_TOPIC}"


class NameServices:
    """The name servers of a cluster; each has all data, so a query needs only one of them."""

    def __init__(self, addresses: tuple[str, ...], pool: ConnectionPool, timeout_s: float) -> None:
        self.addresses = addresses
        self._pool = pool
        self._timeout_s = timeout_s
        self._current = random.randrange(len(addresses))
        for address in addresses:
            pool.remedies[address] = (
                "check that a name server runs there, or name another one "
                "(nameserver, in Spark nameServer; --nameserver or NAMESRV_ADDR)"
            )

    def __str__(self) -> str:
        return ";".join(self.addresses)

    async def ask(self, code: RequestCode, ext: dict[str, str] | None = None) -> Command:
        """Return the first answer of any name server, whatever its code."""
        if len(self.addresses) == 1:
            return await self._ask(0, code, ext)
        failures: list[ClientError] = []
        asked: dict[asyncio.Task[Command], int] = {}
        count = len(self.addresses)
        try:
            for index in [(self._current + step) % count for step in range(count)]:
                asked[start_task(self._ask(index, code, ext))] = index
                is_last = len(asked) + len(failures) == count
                answer = await self._first(asked, failures, None if is_last else _PATIENCE_S)
                if answer is not None:
                    return answer
        finally:
            for task in asked:
                let_go(task)
        raise BrokerUnreachableError(
            f"none of the name servers {self} answers; the last error: {failures[-1]}",
            address=failures[-1].address,
        ) from failures[-1]

    async def _ask(self, index: int, code: RequestCode, ext: dict[str, str] | None) -> Command:
        command = Command(int(code), ext=dict(ext) if ext else None)
        return await self._pool.request(self.addresses[index], command, self._timeout_s)

    async def _first(
        self,
        asked: dict[asyncio.Task[Command], int],
        failures: list[ClientError],
        patience_s: float | None,
    ) -> Command | None:
        """Return the first answer to the pending queries; None on a timeout or if all fail."""
        while asked:
            done, _ = await asyncio.wait(
                asked, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                return None
            for task in done:
                index = asked.pop(task)
                try:
                    answer = task.result()
                except (BrokerUnreachableError, RequestTimeoutError, MalformedAnswerError) as error:
                    failures.append(error)
                else:
                    self._current = index
                    return answer
        return None

    async def ask_others(
        self,
        code: RequestCode,
        ext: dict[str, str] | None = None,
        *,
        knows: Callable[[Command], bool] = lambda _answer: True,
    ) -> tuple[str, Command] | None:
        """Return the address and answer of another name server that has the missing data.

        A name server that restarted, or is cut off from the brokers, has no data. `knows` returns
        whether a successful answer contains data; it may raise ClientError.
        """

        async def ask_one(index: int) -> tuple[int, Command]:
            return index, await self._ask(index, code, ext)

        others = set(range(len(self.addresses))) - {self._current}
        asked = [start_task(ask_one(index)) for index in others]
        try:
            async with asyncio.timeout(min(self._timeout_s, _OTHERS_PATIENCE_S)):
                for first in asyncio.as_completed(asked):
                    with contextlib.suppress(ClientError):
                        index, answer = await first
                        if answer.code == ResponseCode.SUCCESS and knows(answer):
                            self._current = index
                            return self.addresses[index], answer
        except TimeoutError:
            pass
        finally:
            for task in asked:
                let_go(task)
        return None

    async def follow_names(self) -> None:
        """Reconnect to name servers whose host names resolve to new addresses.

        The old addresses may still work.
        """
        for address in self.addresses:
            await self._pool.follow_name(address)

    def ask_another_next(self) -> None:
        """Start the next query with the next name server: the current one has nothing new."""
        self._current = (self._current + 1) % len(self.addresses)

    async def tell_all(self, code: RequestCode, ext: dict[str, str]) -> list[tuple[str, Command]]:
        """Send the same request to every name server; return their addresses and answers."""
        answers = await asyncio.gather(
            *(
                self._pool.request(address, Command(int(code), ext=dict(ext)), self._timeout_s)
                for address in self.addresses
            )
        )
        return list(zip(self.addresses, answers, strict=True))

    async def route_data(self, topic: str) -> TopicRouteData | None:
        """Return the name server's route of `topic`, or None if no name server has one."""
        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
        answer = await self.ask(code, fields)
        address = self.addresses[self._current]
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            others = await self.ask_others(code, fields)
            if others is None:
                return None
            address, answer = others
        if answer.code != ResponseCode.SUCCESS:
            raise self._pool.refusal(address, code, answer)
        try:
            data = TopicRouteData.decode(answer.body)
            data.check_counts()
            return data
        except ProtocolError as error:
            raise MalformedAnswerError(
                f"{address} sent an invalid route of {topic!r} ({error})",
                address=address,
            ) from error


class RouteCache:
    """The routes of the topics that this client has used."""

    def __init__(self, name_services: NameServices, pool: ConnectionPool) -> None:
        self.on_change: list[Callable[[TopicRoute], None]] = []
        self._name_services = name_services
        self._pool = pool
        self._routes: dict[str, TopicRoute] = {}
        self._broker_addresses: set[str] = set()
        # The last known master of each broker name.
        self._masters: dict[str, str] = {}
        self._renewed_s: dict[str, float] = {}
        self._is_stale = False
        self._lookups: dict[str, asyncio.Task[TopicRoute | None]] = {}
        self.left_out: frozenset[str] = frozenset()
        """See `leave_out`."""

    def known(self, topic: str) -> TopicRoute | None:
        """Return the cached route, without a query."""
        return self._routes.get(topic)

    def has_broker(self, address: str) -> bool:
        """Whether an address belongs to a broker in a cached route."""
        return address in self._broker_addresses

    @property
    def slaves(self) -> set[str]:
        """The addresses of all known brokers that are not masters."""
        return set().union(*(route.slaves for route in self._routes.values()))

    def has_master(self, address: str) -> bool:
        """Whether this is the address of a master, according to the newest route."""
        return address in self._masters.values()

    async def route(self, topic: str, *, for_sending: bool = False) -> TopicRoute:
        """Return the route of `topic`. Raises RouteNotFoundError.

        Only with `for_sending` may it be the guessed route of a topic that does not exist yet.
        """
        route = self._routes.get(topic)
        if route is None or (route.is_guess and not for_sending):
            route = await self._once(topic, lambda: self._look_up(topic))
        if route is None and for_sending:
            route = await self._once(_guess_key(topic), lambda: self._guess(topic))
        if route is not None:
            return route
        more, remedy = await explain_missing_route(
            self._name_services.ask, topic, for_sending=for_sending
        )
        raise RouteNotFoundError(
            f"the name server {self._name_services} knows no broker for topic {topic!r}{more}",
            code=int(ResponseCode.TOPIC_NOT_EXIST),
            address=str(self._name_services),
            remedy=remedy,
        ).about(topic=topic)

    def forget(self, topic: str) -> None:
        """Query the name server when the topic is next used."""
        self._routes.pop(topic, None)

    def leave_out(self, addresses: frozenset[str]) -> None:
        """Exclude these addresses from routes, because they do not answer now."""
        if addresses != self.left_out:
            self.left_out = addresses
            self._routes.clear()

    def doubt(self, address: str) -> None:
        """Look up the current master in the background, because the broker at *address* fails."""
        if address not in self._broker_addresses:
            return
        for topic, route in self._routes.items():
            if any(address in ids.values() for ids in route.brokers.values()):
                self._begin(f"{topic} renewed", partial(self._renew_soon, topic))
                return

    async def _renew_soon(self, topic: str) -> TopicRoute | None:
        since_s = asyncio.get_running_loop().time() - self._renewed_s.get(topic, -1.0)
        await asyncio.sleep(max(_RENEWAL_PAUSE_S - since_s, 0.0))
        self._renewed_s.pop(topic, None)
        return await self.renew(topic)

    async def renew(self, topic: str) -> TopicRoute | None:
        """Refresh a cached route, unless it was just refreshed, and return it.

        If the refresh fails, the route is unchanged.
        """
        known = self._routes.get(topic)
        if known is None:
            return None
        is_guess = known.is_guess
        key = _guess_key(topic) if is_guess else topic
        now_s = asyncio.get_running_loop().time()
        if now_s - self._renewed_s.get(topic, -1.0) >= _RENEWAL_PAUSE_S:
            self._renewed_s[topic] = now_s
        elif key not in self._lookups:
            return known
        try:
            await self._once(key, partial(self._guess if is_guess else self._look_up, topic))
        except ClientError as error:
            log.debug("the route of %s could not be renewed: %s", topic, error)
        route = self._routes.get(topic)
        if route is known:
            self._name_services.ask_another_next()
        return route

    async def changed(self, route: TopicRoute, pause_s: float) -> TopicRoute:
        """Wait up to *pause_s* until other brokers than those of *route* serve the topic."""
        try:
            async with asyncio.timeout(pause_s):
                while (known := await self.renew(route.topic)) is not None:
                    if known.brokers != route.brokers:
                        return known
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            pass
        return self._routes.get(route.topic) or route

    async def refresh(self, log_level: int = logging.WARNING) -> None:
        """Refresh the routes of all known topics; a route that cannot be refreshed is unchanged.

        The first failure is logged at `log_level`, and so is the recovery.
        """
        for topic, known in list(self._routes.items()):
            try:
                route = await self._once(topic, partial(self._look_up, topic))
                if route is None and known.is_guess:
                    await self._once(_guess_key(topic), partial(self._guess, topic))
            except ClientError as error:
                level = logging.DEBUG if self._is_stale else log_level
                self._is_stale = True
                log.log(level, "the route of %s could not be refreshed: %s", topic, error)
                return  # the next topic would wait for the same name servers again
        if self._is_stale:
            self._is_stale = False
            log.log(log_level, "routes are refreshed again")

    async def close(self) -> None:
        """Cancel running look-ups."""
        await end_tasks(self._lookups.values())

    async def _once(
        self, key: str, look_up: Callable[[], Coroutine[Any, Any, TopicRoute | None]]
    ) -> TopicRoute | None:
        """Share one look-up among all callers; a cancelled caller does not stop it."""
        lookup = self._begin(key, look_up)
        try:
            return await asyncio.shield(lookup)
        except asyncio.CancelledError:
            if not is_cancelled_alone(lookup):
                raise
            raise ClientStateError("this client is closed; open a new one") from None
        except ClientError as error:
            raise copy_error(error) from error.__cause__

    def _begin(
        self, key: str, look_up: Callable[[], Coroutine[Any, Any, TopicRoute | None]]
    ) -> asyncio.Task[TopicRoute | None]:
        lookup = self._lookups.get(key)
        if lookup is None:
            lookup = start_task(look_up())
            self._lookups[key] = lookup
            lookup.add_done_callback(lambda done: self._lookup_ended(key, done))
        return lookup

    def _lookup_ended(self, key: str, lookup: asyncio.Task[TopicRoute | None]) -> None:
        self._lookups.pop(key, None)
        if not lookup.cancelled():
            lookup.exception()  # mark as retrieved: all callers may have been cancelled

    async def _look_up(self, topic: str) -> TopicRoute | None:
        data = await self._name_services.route_data(topic)
        if data is None:
            return None
        leave_out(data.broker_datas, self.left_out)
        return self._remember(route_from_data(topic, data))

    async def _guess(self, topic: str) -> TopicRoute | None:
        data = await self._name_services.route_data(AUTO_CREATE_TOPIC)
        if data is None:
            return None
        route = route_from_data(topic, data, guess_queue_count=TEMPLATE_QUEUE_COUNT)
        return self._remember(route) if route.write_queues else None

    def _remember(self, route: TopicRoute) -> TopicRoute:
        known = self._routes.get(route.topic)
        if route == known:
            return known
        self._routes[route.topic] = route
        self._note_addresses(route)
        moved = self._note_masters(route)
        for listener in self.on_change:
            listener(route)
        for name in moved:
            self._move(name, route.brokers[name])
        return route

    def _note_masters(self, route: TopicRoute) -> list[str]:
        """Record the masters; return the brokers whose master has changed."""
        masters = route.masters
        moved = [name for name, each in masters.items() if self._masters.get(name, each) != each]
        self._masters |= masters
        return moved

    def _move(self, name: str, addresses: Mapping[int, str]) -> None:
        """Update a broker's addresses in the routes of all topics."""
        for topic, known in list(self._routes.items()):
            stale = known.master(name)
            if stale is not None and stale != addresses[MASTER_ID]:
                route = replace(known, brokers={**known.brokers, name: addresses})
                self._routes[topic] = route
                for listener in self.on_change:
                    listener(route)

    def _note_addresses(self, route: TopicRoute) -> None:
        for name, addresses in route.brokers.items():
            for address in addresses.values():
                self._broker_addresses.add(address)
                self._pool.remedies[address] = (
                    f"the name server gives this address for {name}: check that the broker "
                    "runs, and that its advertised address can be reached from here"
                )
