"""Locks of orderly consumers: LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42)."""

from collections.abc import Awaitable
from dataclasses import dataclass

from rockhopper.broker.kernel.members.queue_locks import QueueKey, QueueLocks
from rockhopper.broker.server.remoting.dispatcher import Request, Response, Row, serves
from rockhopper.broker.server.remoting.json_bodies import (
    json_response,
    long_json_response,
    names_in_body,
    with_body,
)
from rockhopper.broker.server.remoting.permissions import on_topics_and_groups
from rockhopper.broker.users.access import Action
from rockhopper.broker.users.errors import InvalidParameter
from rockhopper.protocol.bodies import LockBatchRequestBody, LockBatchResponseBody, MessageQueueKey
from rockhopper.protocol.codes import RequestCode as Code

QUEUES_AT_ONCE = 256
LOCKING_GROUP_LENGTH_MAX = 4096
"""As in RocketMQ, any group name is accepted: locks are in memory, and end with their client."""

LOCKED = on_topics_and_groups(
    Action.SUB,
    names_in_body(LockBatchRequestBody, lambda body: [queue.topic for queue in body.mq_set]),
    names_in_body(LockBatchRequestBody, lambda body: [body.consumer_group]),
)


@dataclass(eq=False, repr=False)
class QueueLockProcessors:
    """Serves the locks of orderly consumers."""

    _locks: QueueLocks

    def rows(self) -> dict[int, Row]:
        """Return the row of each request code."""
        return {
            Code.LOCK_BATCH_MQ: serves(self.lock, *LOCKED),
            Code.UNLOCK_BATCH_MQ: serves(self.unlock, *LOCKED),
        }

    def lock(self, request: Request) -> Response | Awaitable[Response]:
        """41: lock or renew queues for a client; the answer lists those that it now holds."""
        return with_body(request, LockBatchRequestBody, self._lock)

    def unlock(self, request: Request) -> Response | Awaitable[Response]:
        """42: release queues. Those of other clients stay locked."""
        return with_body(request, LockBatchRequestBody, self._unlock)

    def _lock(self, request: Request, body: LockBatchRequestBody) -> Response | Awaitable[Response]:
        _check(body)
        granted = self._locks.lock(
            body.consumer_group, body.client_id, request.connection, _keys(body)
        )
        queues = [MessageQueueKey(topic, name, queue_id) for topic, name, queue_id in granted]
        granted_body = LockBatchResponseBody(lock_ok_mq_set=queues)
        if len(queues) > QUEUES_AT_ONCE:
            return long_json_response(lambda: granted_body)
        return json_response(granted_body)

    def _unlock(self, request: Request, body: LockBatchRequestBody) -> Response:
        _check(body)
        self._locks.unlock(body.consumer_group, body.client_id, request.connection, _keys(body))
        return Response()


def _check(body: LockBatchRequestBody) -> None:
    if len(body.consumer_group) > LOCKING_GROUP_LENGTH_MAX:
        raise InvalidParameter(
            f"the group has {len(body.consumer_group)} characters; {LOCKING_GROUP_LENGTH_MAX} "
            "are allowed"
        )
    if not body.client_id:
        raise InvalidParameter("the body has no clientId")


def _keys(body: LockBatchRequestBody) -> list[QueueKey]:
    return [(queue.topic, queue.broker_name, queue.queue_id) for queue in body.mq_set]
