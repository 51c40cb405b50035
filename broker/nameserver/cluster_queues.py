"""The readable queues of a topic on all brokers of the cluster, for sharing them out."""

import asyncio
import time
from collections.abc import Callable, Iterable

from rockhopper.broker.listening.outgoing import Outgoing
from rockhopper.broker.loop.part import Part
from rockhopper.broker.nameserver.link import NameServiceLink, RefusedError
from rockhopper.broker.nameserver.service import NameService
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.tables.topics import TopicTable
from rockhopper.protocol.bodies import TopicRouteData
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.sys_flags import PERM_READ

ROUTE_AGE_S_MAX = 5.0
ROUTE_TIMEOUT_S = 2.0
ROUTES_KEPT = 1000

# (broker name, queue id)
Queues = list[tuple[str, int]]


class ClusterQueues(Part):
    """The readable queues of a topic on all brokers, as the name services know them."""

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
            NameServiceLink(address, lambda: None, outgoing=outgoing, credentials=config.auth.inner)
            for address in config.namesrv_addr
        ]
        self._known: dict[str, tuple[float, Queues]] = {}

    async def of(self, topic: str) -> Queues | None:
        """The queues, in order; None when nobody knows the topic."""
        if not self._links:
            return self._embedded(topic)
        known = self._known.get(topic)
        if known is not None and self._clock() - known[0] < ROUTE_AGE_S_MAX:
            return known[1]
        for link in self._links:
            try:
                async with asyncio.timeout(ROUTE_TIMEOUT_S):
                    answer = await link.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
                route = TopicRouteData.decode(answer.body)
            except (OSError, RefusedError, ProtocolError, TimeoutError):
                continue
            queues = _expand(
                (data.broker_name, data.read_queue_nums, data.perm) for data in route.queue_datas
            )
            if len(self._known) >= ROUTES_KEPT:
                self._known.clear()
            self._known[topic] = self._clock(), queues
            return queues
        return self._embedded(topic)

    def _embedded(self, topic: str) -> Queues | None:
        if self._name_service is not None:
            route = self._name_service.routes.route(topic, "")
            if route is not None:
                return _expand((q.broker_name, q.read_queue_nums, q.perm) for q in route.queues)
        own = self._topics.get(topic)
        if own is None:
            return None
        return _expand([(self._config.broker_name, own.read_queue_nums, own.perm)])

    def stop(self) -> None:
        """Drop the connections."""
        for link in self._links:
            link.close()


def _expand(brokers: Iterable[tuple[str, int, int]]) -> Queues:
    return [
        (name, queue_id)
        for name, count, perm in sorted(brokers)
        if perm & PERM_READ
        for queue_id in range(count)
    ]
