"""The other brokers of the cluster, and the readable queues of a topic on all of them."""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.name_server.link import NameServiceLink, RefusedError
from rockhopper.broker.name_server.peer_brokers import PeerBrokers
from rockhopper.broker.name_server.service import NameService
from rockhopper.broker.server.listening.outgoing import Outgoing
from rockhopper.broker.server.loop.part import Part
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.protocol.bodies import TopicRouteData
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.sys_flags import PERM_READ

ROUTE_AGE_S_MAX = 5.0
ROUTE_TIMEOUT_S = 2.0
ROUTES_KEPT = 1000


class TopicOnBroker(NamedTuple):
    """A topic's queues on one broker, and the address of that broker."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    address: str


# (broker name, queue id)
Queues = list[tuple[str, int]]


class ClusterQueues:
    """The readable queues of a topic on all brokers, from the name servers."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicTable,
        name_service: NameService | None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._topics = topics
        self._name_service = name_service
        self._clock = clock
        outgoing = Outgoing(config.tls)
        self._links = [
            NameServiceLink(address, outgoing=outgoing, credentials=config.auth.inner)
            for address in config.namesrv_addr
        ]
        self._known: dict[str, tuple[float, Queues]] = {}

    async def find_queues(self, topic: str) -> Queues | None:
        """Return the queues in order; None if no name server knows the topic."""
        if not self._links:
            return self._get_embedded(topic)
        known = self._known.get(topic)
        if known is not None and self._clock() - known[0] < ROUTE_AGE_S_MAX:
            return known[1]
        route = await self._route_elsewhere(topic)
        if route is None:
            return self._get_embedded(topic)
        queues = _expand(
            (data.broker_name, data.read_queue_nums, data.perm) for data in route.queue_datas
        )
        if len(self._known) >= ROUTES_KEPT:
            self._known.clear()
        self._known[topic] = self._clock(), queues
        return queues

    async def _route_elsewhere(self, topic: str) -> TopicRouteData | None:
        """Return the route from the first remote name server that answers."""
        for link in self._links:
            try:
                async with asyncio.timeout(ROUTE_TIMEOUT_S):
                    answer = await link.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
                return TopicRouteData.decode(answer.body)
            except (OSError, RefusedError, ProtocolError, TimeoutError):
                continue
        return None

    def _get_embedded(self, topic: str) -> Queues | None:
        if self._name_service is not None:
            route = self._name_service.routes.route(topic, "")
            if route is not None:
                return _expand((q.broker_name, q.read_queue_nums, q.perm) for q in route.queues)
        own = self._topics.get(topic)
        if own is None:
            return None
        return _expand([(self._config.broker_name, own.read_queue_nums, own.perm)])

    async def brokers_of(self, topic: str, own_address: str) -> list[TopicOnBroker]:
        """Return every broker with *topic*, this one at *own_address*.

        The list is empty if the topic is unknown.
        """
        route = await self._route_elsewhere(topic)
        if route is not None:
            found = _brokers_in(route)
            if any(each.broker_name == self._config.broker_name for each in found):
                return [self._with_own_address(each, own_address) for each in found]
            # The topic was just created and is not registered yet.
            return found + self._own(topic, own_address)
        if self._name_service is not None:
            local = self._name_service.routes.route(topic, own_address)
            if local is not None:
                addresses = {each.name: each.addresses.get(0, "") for each in local.members}
                return [
                    TopicOnBroker(*each[:4], addresses.get(each.broker_name, ""))
                    for each in local.queues
                ]
        return self._own(topic, own_address)

    def _with_own_address(self, each: TopicOnBroker, own_address: str) -> TopicOnBroker:
        is_own = each.broker_name == self._config.broker_name
        return each._replace(address=own_address) if is_own else each

    def _own(self, topic: str, own_address: str) -> list[TopicOnBroker]:
        own = self._topics.get(topic)
        if own is None:
            return []
        name = self._config.broker_name
        return [
            TopicOnBroker(name, own.read_queue_nums, own.write_queue_nums, own.perm, own_address)
        ]

    def close(self) -> None:
        """Close the connections."""
        for link in self._links:
            link.close()


class Cluster(Part):
    """Requests to other brokers, and the queues of topics on all brokers."""

    def __init__(
        self, config: BrokerConfig, topics: TopicTable, name_service: NameService | None
    ) -> None:
        self.brokers = PeerBrokers(config, name_service)
        self.queues = ClusterQueues(config, topics, name_service)

    def stop(self) -> None:
        """Close all connections."""
        try:
            self.queues.close()
        finally:
            self.brokers.close()


def _brokers_in(route: TopicRouteData) -> list[TopicOnBroker]:
    masters = {data.broker_name: data.broker_addrs.get(0, "") for data in route.broker_datas}
    return [
        TopicOnBroker(
            each.broker_name,
            each.read_queue_nums,
            each.write_queue_nums,
            each.perm,
            masters.get(each.broker_name, ""),
        )
        for each in route.queue_datas
    ]


def _expand(brokers: Iterable[tuple[str, int, int]]) -> Queues:
    return [
        (name, queue_id)
        for name, count, perm in sorted(brokers)
        if perm & PERM_READ
        for queue_id in range(count)
    ]
