"""Locks on queues: one consumer of a group holds a queue exclusively, to keep order (orderly).

A broker's lock expires after 60 s. The consumer renews it every 20 s. A lock that could not be
renewed for 30 s counts as lost here, well before another client may get it. A queue that is being
released is not renewed: a renewal after its UNLOCK would block all other members for 60 s.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from rockhopper.client.errors import ClientError, MalformedAnswerError
from rockhopper.client.network.session import Session
from rockhopper.client.queues import MessageQueue
from rockhopper.protocol.bodies import LockBatchRequestBody, LockBatchResponseBody, MessageQueueKey
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.errors import ProtocolError

log = logging.getLogger(__name__)

LOCK_VALID_S = 30.0


class ConsumerLocks:
    """The locks of one consumer."""

    def __init__(self, session: Session, group: str, now_s: Callable[[], float]) -> None:
        self._session = session
        self._group = group
        self._now_s = now_s
        self._renewed_s: dict[MessageQueue, float] = {}
        self._unlocking: set[MessageQueue] = set()
        self._unlocks = 0
        self._unlock_of: dict[MessageQueue, int] = {}

    def holds(self, queue: MessageQueue) -> bool:
        """Whether the lock on a queue is certainly valid."""
        renewed_s = self._renewed_s.get(queue)
        return renewed_s is not None and self._now_s() - renewed_s < LOCK_VALID_S

    async def lock(self, queues: Iterable[MessageQueue]) -> tuple[set[MessageQueue], bool]:
        """Lock or renew; return the queues that others hold, and whether all brokers answered.

        The state of a queue does not change if its broker does not answer or if it is being
        unlocked.
        """
        wanted = set(queues) - self._unlocking
        asked = await asyncio.gather(
            *(self._lock_on(address, own) for address, own in self._by_broker(wanted).items())
        )
        refused: set[MessageQueue] = set()
        for own, granted in asked:
            if granted is not None:
                refused |= own - granted
        return refused, all(granted is not None for _, granted in asked)

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Release queues, so that other members can lock them at once."""
        wanted = {queue for queue in queues if self._renewed_s.pop(queue, None) is not None}
        self._unlocks += 1
        self._unlock_of |= dict.fromkeys(wanted, self._unlocks)
        self._unlocking |= wanted
        try:
            for address, own in self._by_broker(wanted).items():
                await self._unlock_on(address, own)
        finally:
            self._unlocking -= wanted

    async def _unlock_on(self, address: str, queues: set[MessageQueue]) -> None:
        try:
            await self._session.request(
                address, RequestCode.UNLOCK_BATCH_MQ, body=self._body(queues)
            )
        except ClientError as error:
            log.debug("%d queues could not be unlocked: %s", len(queues), error)

    async def _lock_on(
        self, address: str, queues: set[MessageQueue]
    ) -> tuple[set[MessageQueue], set[MessageQueue] | None]:
        asked_s = self._now_s()
        unlocks = self._unlocks
        try:
            answer = await self._session.request(
                address, RequestCode.LOCK_BATCH_MQ, body=self._body(queues)
            )
            granted = LockBatchResponseBody.decode(answer.body).lock_ok_mq_set
        except ProtocolError as error:
            raise MalformedAnswerError(
                f"{address} answered LOCK_BATCH_MQ with an invalid body ({error})",
                address=address,
            ) from error
        except ClientError as error:
            log.debug("%d queues could not be locked: %s", len(queues), error)
            return queues, None
        owned = {MessageQueue(key.topic, key.broker_name, key.queue_id) for key in granted}
        for queue in queues & owned:
            if self._unlock_of.get(queue, 0) <= unlocks:
                self._renewed_s[queue] = asked_s
        for queue in queues - owned:
            self._renewed_s.pop(queue, None)
        return queues, owned

    def _by_broker(self, queues: Iterable[MessageQueue]) -> dict[str, set[MessageQueue]]:
        grouped: dict[str, set[MessageQueue]] = {}
        for queue in queues:
            route = self._session.routes.known(queue.topic)
            address = route.master(queue.broker_name) if route else None
            if address is not None:
                grouped.setdefault(address, set()).add(queue)
        return grouped

    def _body(self, queues: set[MessageQueue]) -> bytes:
        keys = [
            MessageQueueKey(queue.topic, queue.broker_name, queue.queue_id)
            for queue in sorted(queues)
        ]
        body = LockBatchRequestBody(
            consumer_group=self._group, client_id=self._session.client_id, mq_set=keys
        )
        return body.encode()
