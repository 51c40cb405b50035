"""Queue assignment by the broker, for clients that delegate it: codes 400, 401 and 402.

RocketMQ: QueryAssignmentProcessor. In POP mode, each member of a group reads all queues of a broker
(queue id −1). With popShareQueueNum, it reads its own queues and those of as many following
members.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from rockhopper.broker.features.pop.request_modes import MessageRequestModeTable
from rockhopper.broker.kernel.members.consumer_groups import ConsumerGroups
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroupTable
from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.name_server.cluster_queues import ClusterQueues, Queues
from rockhopper.broker.server.remoting.dispatcher import Request, Response, Row, administers, serves
from rockhopper.broker.server.remoting.json_bodies import (
    check_size,
    json_response,
    long_json_response,
    names_in_body,
)
from rockhopper.broker.server.remoting.permissions import (
    SEE_CLUSTER,
    RequiredPermission,
    on_topics_and_groups,
)
from rockhopper.broker.users.access import Action, ResourceKind
from rockhopper.broker.users.errors import (
    GroupNotFound,
    InvalidParameter,
    NoPermission,
    TopicNotFound,
)
from rockhopper.protocol.bodies.popping import (
    MessageQueueAssignment,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.fastjson import MessageQueueKey
from rockhopper.protocol.names import is_retry_topic

log = structlog.get_logger("broker.pop")

BODY_SIZE_BYTES_MAX = 64 << 10
POP, PULL = "POP", "PULL"
ALL_QUEUES = -1


def allocate_on_average(index: int, clients: int, queues: Queues) -> Queues:
    """AVG: return consecutive queues for each client; the first clients get one more."""
    base, more = divmod(len(queues), clients)
    start = index * base + min(index, more)
    return queues[start : start + base + (1 if index < more else 0)]


def allocate_by_circle(index: int, clients: int, queues: Queues) -> Queues:
    """AVG_BY_CIRCLE: return every n-th queue, with n the number of clients."""
    return queues[index::clients]


STRATEGIES: dict[str, Callable[[int, int, Queues], Queues]] = {
    "AVG": allocate_on_average,
    "AVG_BY_CIRCLE": allocate_by_circle,
}


def allocate_for_pop(
    allocate: Callable[[int, int, Queues], Queues],
    index: int,
    clients: int,
    queues: Queues,
    share: int,
) -> Queues:
    """Return a popping client's queues: all, or its own and those of the *share* next clients."""
    if share <= 0 or share >= clients - 1:
        return [(name, ALL_QUEUES) for name in dict.fromkeys(name for name, _ in queues)]
    if clients > len(queues):
        return [queues[index % len(queues)]] if queues else []
    found: dict[tuple[str, int], None] = {}
    for step in range(share + 1):
        found.update(dict.fromkeys(allocate((index + step) % clients, clients, queues)))
    return list(found)


ASSIGNED = on_topics_and_groups(
    Action.SUB,
    names_in_body(QueryAssignmentRequestBody, lambda body: [body.topic]),
    names_in_body(QueryAssignmentRequestBody, lambda body: [body.consumer_group]),
)
SET_REQUEST_MODE = RequiredPermission(
    (Action.UPDATE,),
    ResourceKind.GROUP,
    names_in_body(SetMessageRequestModeRequestBody, lambda body: [body.consumer_group]),
)


@dataclass(eq=False, repr=False)
class AssignmentProcessors:
    """Serves 400, 401 and 402."""

    _topics: TopicTable
    _groups: SubscriptionGroupTable
    _consumers: ConsumerGroups
    _modes: MessageRequestModeTable
    _cluster_queues: ClusterQueues

    def rows(self) -> dict[int, Row]:
        """Return the row of each request code."""
        return {
            Code.QUERY_ASSIGNMENT: serves(self.query, *ASSIGNED, promises_state=False),
            Code.SET_MESSAGE_REQUEST_MODE: administers(self.set_mode, SET_REQUEST_MODE),
            Code.GET_ALL_MESSAGE_REQUEST_MODE: administers(
                self.all_modes, SEE_CLUSTER, promises_state=False
            ),
        }

    async def query(self, request: Request) -> Response:
        """400: return the queues of one client, and whether it pulls or pops them."""
        check_size(request.body, BODY_SIZE_BYTES_MAX)
        wanted = QueryAssignmentRequestBody.decode(request.body)
        mode = self._modes.get(wanted.topic, wanted.consumer_group)
        pops = mode is not None and mode.mode == POP and not is_retry_topic(wanted.topic)
        share = mode.pop_share_queue_num if mode is not None else 0
        queues = await self._queues(wanted, pops=pops, share=share)
        if queues is None:
            return json_response(QueryAssignmentResponseBody())
        assignments = [
            MessageQueueAssignment(
                MessageQueueKey(wanted.topic, name, queue_id), POP if pops else PULL
            )
            for name, queue_id in queues
        ]
        return json_response(QueryAssignmentResponseBody(assignments))

    async def _queues(
        self, wanted: QueryAssignmentRequestBody, *, pops: bool, share: int
    ) -> Queues | None:
        queues = await self._cluster_queues.find_queues(wanted.topic)
        if queues is None:
            return None
        if wanted.message_model == "BROADCASTING":
            return queues
        online = self._consumers.get(wanted.consumer_group)
        allocate = STRATEGIES.get(wanted.strategy_name)
        if online is None or allocate is None:
            return None
        client_ids = sorted(online.client_ids())
        if wanted.client_id not in client_ids:
            return []
        index = client_ids.index(wanted.client_id)
        if pops:
            return allocate_for_pop(allocate, index, len(client_ids), queues, share)
        return allocate(index, len(client_ids), queues)

    async def set_mode(self, request: Request) -> Response:
        """401: set whether a group pulls or pops a topic."""
        check_size(request.body, BODY_SIZE_BYTES_MAX)
        mode = SetMessageRequestModeRequestBody.decode(request.body)
        if is_retry_topic(mode.topic):
            raise NoPermission("retry topic is not allowed to set mode")
        if mode.topic not in self._topics:
            raise TopicNotFound(f"topic[{mode.topic}] not exist")
        if self._groups.find_or_create(mode.consumer_group) is None:
            raise GroupNotFound(f"subscription group [{mode.consumer_group}] does not exist")
        if mode.mode not in (POP, PULL):
            raise InvalidParameter(f"mode is {mode.mode[:40]!r}; PULL or POP is allowed")
        self._modes.set_mode(mode)
        log.info("request mode set", topic=mode.topic, group=mode.consumer_group, mode=mode.mode)
        await self._modes.saved()
        return Response()

    def all_modes(self, _request: Request) -> Awaitable[Response]:
        """402: return the table in its file's format."""
        return long_json_response(self._modes.to_json)
