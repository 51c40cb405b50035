"""Topic sharing: if a broker creates a topic by itself, the other masters of its cluster do too.

RocketMQ's producers send to an unknown topic through all brokers that would create it, and each
broker creates it when its first message arrives. The topic then has queues only on the brokers that
a message has reached. Ten messages may reach all of them, one message reaches one broker; this
stays so permanently.

Here a broker that has created a topic for a client notifies its name servers (SHARE_TOPIC, 70010,
one way). They forward it to the Rockhopper brokers that are registered. These create the topic with
the same number of queues, or extend one that they have just created themselves. In whatever order
messages arrive, all masters end with the largest number that any of them was asked for. Brokers
that do not create topics (autoCreateTopic=off) do not take part.

With autoCreateTopic=on-lookup, a standalone name server forwards the request for a route (with
``queueNums`` 0: the broker's default), and answers once the brokers have registered the topic.
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rockhopper.broker.kernel.tables.topics import (
    CatalogListener,
    TopicConfig,
    TopicTable,
    may_be_looked_up,
)
from rockhopper.broker.name_server.embedded import EmbeddedBroker
from rockhopper.broker.name_server.route_table import RouteTable
from rockhopper.broker.server.remoting.dispatcher import Request, Response
from rockhopper.broker.users.errors import NoPermission
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.requests import RpcRequest, decode_fields
from rockhopper.protocol.requests.fields import Int32
from rockhopper.protocol.sys_flags import PERM_READ, PERM_WRITE

if TYPE_CHECKING:
    from rockhopper.broker.server.remoting.connection import RemotingConnection

CREATES_FIELD = "rockhopperCreates"
ON_LOOKUP = "on-lookup"
LOOKUP_TIMEOUT_S = 1.0
LOOKUPS_MAX = 1000


class ShareTopicRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """The header of SHARE_TOPIC (70010)."""

    topic: str
    queue_nums: Int32
    perm: Int32 = PERM_READ | PERM_WRITE


def share_fields(topic: TopicConfig) -> dict[str, str]:
    """Return the header that announces a topic."""
    return {
        "topic": topic.name,
        "queueNums": str(topic.write_queue_nums),
        "perm": str(topic.perm),
    }


def adopt(topics: TopicTable, ext: dict[str, str] | None) -> None:
    """Create or extend the topic of a forwarded SHARE_TOPIC.

    Raises FieldError for an invalid header.
    """
    fields = decode_fields(ShareTopicRequest, ext)
    if fields.queue_nums <= 0:
        topics.create_on_lookup(fields.topic)
    else:
        topics.adopt(fields.topic, fields.queue_nums, fields.perm & (PERM_READ | PERM_WRITE))


class TopicSharing(CatalogListener):
    """The name server's side: tracks Rockhopper brokers, and forwards topics to them."""

    def __init__(self, routes: RouteTable, local: EmbeddedBroker | None) -> None:
        self._routes = routes
        self._local = local
        self._brokers: dict[RemotingConnection, tuple[str, str, str]] = {}
        self._registered = asyncio.Event()
        self._lookups = 0
        if local is not None:
            local.table.listeners.append(self)

    def registered(
        self, connection: "RemotingConnection", cluster: str, name: str, creates: str | None
    ) -> None:
        """Record a registered Rockhopper broker, and which request makes it create topics."""
        if creates is not None:
            if connection not in self._brokers:
                connection.on_close.append(lambda _gone: self._connection_lost(connection))
            self._brokers[connection] = cluster, name, creates
        self._registered.set()

    def _connection_lost(self, connection: "RemotingConnection") -> None:
        self._brokers.pop(connection, None)

    def share(self, request: Request) -> Response:
        """70010: forward a topic that a registered broker has created."""
        request.fields(ShareTopicRequest)
        known = self._brokers.get(request.connection)
        if known is None:
            raise NoPermission("only a registered broker can share topics")
        cluster = known[0]
        local = self._local
        # A follower receives its topics from its master.
        if local is not None and cluster == local.cluster and local.advertisement().is_leading:
            adopt(local.table, request.ext)
        self._send(self._list_others(cluster, request.connection), dict(request.ext))
        return Response()

    def topic_created(self, topic: TopicConfig) -> None:
        """Forward a topic that the broker in this process has created."""
        assert self._local is not None
        self._send(self._list_others(self._local.cluster, None), share_fields(topic))

    def _list_others(
        self, cluster: str, origin: "RemotingConnection | None"
    ) -> "list[RemotingConnection]":
        return [
            connection
            for connection, (theirs, _, _) in self._brokers.items()
            if theirs == cluster and connection is not origin
        ]

    def _send(self, connections: "Iterable[RemotingConnection]", ext: dict[str, str]) -> None:
        for connection in connections:
            connection.send_request(RequestCode.SHARE_TOPIC, ext)

    def may_create(self, topic: str) -> bool:
        """Return whether a remote broker creates *topic* when its route is requested."""
        return (
            (self._local is None or not self._local.advertisement().is_leading)
            and self._lookups < LOOKUPS_MAX
            and may_be_looked_up(topic)
            and any(creates == ON_LOOKUP for _, _, creates in self._brokers.values())
        )

    async def created(self, topic: str) -> None:
        """Make the brokers create *topic*.

        Return when they have registered it, or after a timeout.
        """
        asked = {
            name: connection
            for connection, (_, name, creates) in self._brokers.items()
            if creates == ON_LOOKUP
        }
        self._lookups += 1
        try:
            self._send(asked.values(), {"topic": topic, "queueNums": "0", "perm": "6"})
            async with asyncio.timeout(LOOKUP_TIMEOUT_S):
                while not asked.keys() <= self._serving(topic):
                    self._registered.clear()
                    await self._registered.wait()
        except TimeoutError:
            return
        finally:
            self._lookups -= 1

    def _serving(self, topic: str) -> set[str]:
        route = self._routes.route(topic, "")
        return {queues.broker_name for queues in route.queues} if route is not None else set()
