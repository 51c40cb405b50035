"""QueryRoute and QueryAssignment: the queues of a topic, and the ones that a consumer reads.

A client connects to one address and learns the others here: each broker's queues have the endpoints
of that broker's own gRPC port.
"""

import ipaddress
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from rockhopper.broker.feature import RpcRow
from rockhopper.broker.gateways.grpc import permissions
from rockhopper.broker.gateways.grpc.call import Call
from rockhopper.broker.gateways.grpc.resources import group_of, topic_of
from rockhopper.broker.gateways.grpc.sending_rules import get_accepted_types
from rockhopper.broker.gateways.grpc.statuses import OK, GrpcStatusError
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroupTable
from rockhopper.broker.kernel.tables.topic_attributes import ATTRIBUTE_MESSAGE_TYPE
from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.users.errors import TopicNotFound
from rockhopper.protocol.addresses import is_loopback, split_address
from rockhopper.protocol.grpc_v2.codes import Code
from rockhopper.protocol.grpc_v2.messages import METHODS, AddressScheme, MessageQueue, Permission
from rockhopper.protocol.sys_flags import PERM_READ, PERM_WRITE

ANY_QUEUE = -1
MASTER_ID = 0


class BrokerQueues(NamedTuple):
    """A topic's queues on one broker, and that broker's gRPC address."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    address: str
    is_own: bool


RouteSource = Callable[[str, Call], Awaitable[list[BrokerQueues]]]
"""Returns the brokers that have a topic; empty if it is unknown."""


class Routes:
    """Serves the queries that clients send before they produce or consume."""

    def __init__(
        self, topics: TopicTable, groups: SubscriptionGroupTable, source: RouteSource
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._source = source

    def rpcs(self) -> dict[str, RpcRow]:
        """Return the row of each RPC."""
        return {
            "QueryRoute": RpcRow(self.query_route, permissions.of_route, promises_state=False),
            "QueryAssignment": RpcRow(
                self.query_assignment, permissions.of_consuming, promises_state=False
            ),
        }

    def query_route(self, call: Call, request: Any) -> None:
        """QueryRoute: return the queues of a topic."""
        _ = call.client_id
        topic = topic_of(request.topic)
        call.run_later(self._reply_route(call, request, topic))

    async def _reply_route(self, call: Call, request: Any, topic: str) -> None:
        brokers = await self._brokers(topic, call)
        reply = METHODS["QueryRoute"].reply(status=OK)
        for broker in brokers:
            reply.message_queues.extend(self._queues(request, call, topic, broker, len(brokers)))
        call.reply(reply)

    async def _brokers(self, topic: str, call: Call) -> list[BrokerQueues]:
        self._topics.create_on_lookup(topic)
        brokers = await self._source(topic, call)
        if not brokers:
            raise TopicNotFound(f"no broker has the topic {topic}: create it first")
        return brokers

    def _queues(
        self, request: Any, call: Call, topic: str, broker: BrokerQueues, brokers: int
    ) -> list[Any]:
        config = self._topics.get(topic)
        declared = config.attributes.get(ATTRIBUTE_MESSAGE_TYPE) if config is not None else None
        pattern = MessageQueue(
            topic=request.topic, accept_message_types=get_accepted_types(declared)
        )
        _put_broker(pattern.broker, broker, request.endpoints if brokers == 1 else None, call)
        found = []
        for queue_id, permission in enumerate(_permissions(broker)):
            queue = MessageQueue()
            queue.CopyFrom(pattern)
            queue.id, queue.permission = queue_id, permission
            found.append(queue)
        return found

    def query_assignment(self, call: Call, request: Any) -> None:
        """QueryAssignment: return the queues that a consumer reads."""
        _ = call.client_id
        topic, group = topic_of(request.topic), group_of(request.group)
        call.run_later(self._reply_assignment(call, request, topic, group))

    async def _reply_assignment(self, call: Call, request: Any, topic: str, group: str) -> None:
        settings = self._groups.get(group)
        is_fifo = settings is not None and settings.consume_message_orderly
        reply = METHODS["QueryAssignment"].reply(status=OK)
        brokers = await self._brokers(topic, call)
        for broker in brokers:
            if not broker.perm & PERM_READ or not broker.read_queue_nums:
                continue
            for queue_id in range(broker.read_queue_nums) if is_fifo else (ANY_QUEUE,):
                queue = reply.assignments.add().message_queue
                queue.topic.CopyFrom(request.topic)
                queue.id, queue.permission = queue_id, Permission.READ
                endpoints = request.endpoints if len(brokers) == 1 else None
                _put_broker(queue.broker, broker, endpoints, call)
        if not reply.assignments:
            raise GrpcStatusError(Code.FORBIDDEN, f"the user may not read topic {topic}")
        call.reply(reply)


def _permissions(broker: BrokerQueues) -> list[int]:
    """Return the permission of each queue, in order of queue id."""
    readable = broker.read_queue_nums if broker.perm & PERM_READ else 0
    writable = broker.write_queue_nums if broker.perm & PERM_WRITE else 0
    both = min(readable, writable)
    return (
        [Permission.READ] * (readable - both)
        + [Permission.WRITE] * (writable - both)
        + [Permission.READ_WRITE] * both
    ) or [Permission.NONE]


def _put_broker(broker: Any, queues: BrokerQueues, asked: Any, call: Call) -> None:
    """Set a broker's endpoints; *asked* are those that the client used, if it is the only broker.

    They are known to work, also through mapped ports. But a client that used a loopback address,
    the end of a tunnel, does not receive that address, unless the settings name the same host.
    """
    broker.name, broker.id = queues.broker_name, MASTER_ID
    host, port = split_address(queues.address)
    if asked is not None and queues.is_own and len(asked.addresses) == 1:
        came_by = asked.addresses[0].host
        is_here = is_loopback(call.connection.addresses.peer_host) or came_by == host
        if came_by and (is_here or not is_loopback(came_by)):
            broker.endpoints.CopyFrom(asked)
            return
    broker.endpoints.scheme = _scheme(host)
    broker.endpoints.addresses.add(host=host, port=port or 0)


def _scheme(host: str) -> int:
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        return AddressScheme.DOMAIN_NAME
    return AddressScheme.IPV4 if version == 4 else AddressScheme.IPV6
