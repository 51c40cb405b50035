"""One pull request and what its answer means."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from rockhopper.client.consuming.queue_offsets import QueueOffsets
from rockhopper.client.errors import MalformedAnswerError
from rockhopper.client.filters import Sql, subscription_to
from rockhopper.client.network.session import Session
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.codes import PULL_ANSWERS, RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.errors import FieldError, ProtocolError
from rockhopper.protocol.names import TOOLS_CONSUMER_GROUP
from rockhopper.protocol.requests import (
    PullMessageRequest,
    PullMessageResponse,
    decode_fields,
    encode_fields,
)
from rockhopper.protocol.store.message_codec import decode_messages
from rockhopper.protocol.subscription import Subscription
from rockhopper.protocol.sys_flags import PULL_FLAG_SUBSCRIPTION, PULL_FLAG_SUSPEND

log = logging.getLogger(__name__)

# The broker looks for expired long polls every 5 s, so an answer may come that much later than
# asked for.
_HOLD_SLACK_S = 10.0


@dataclass(frozen=True, slots=True)
class PullResult:
    """What one pull brought: perhaps nothing, though `next_offset` advanced (filtered)."""

    messages: list[ReceivedMessage]
    next_offset: int
    min_offset: int
    max_offset: int
    has_moved: bool
    """The offset asked for is not in the queue; `next_offset` is the nearest that is."""


class Puller:
    """Sends pull requests for one group.

    What is wanted of a topic is in `subscriptions`, else it is `wanted`: tags, or an expression.
    """

    def __init__(
        self,
        session: Session,
        group: str | None,
        wanted: str | Sql = "*",
        subscriptions: Mapping[str, Subscription] | None = None,
    ) -> None:
        self.group = group or TOOLS_CONSUMER_GROUP
        self._session = session
        self._offsets = QueueOffsets(session)
        self._wanted = wanted
        self._subscriptions = dict(subscriptions or {})
        self._preferred_broker_ids: dict[MessageQueue, int] = {}

    async def pull(
        self, queue: MessageQueue, offset: int, max_count: int, wait_s: float = 0.0
    ) -> PullResult:
        """Read up to `max_count` messages from `offset` on.

        With `wait_s` the broker holds the request for that long when the queue has nothing newer.
        """
        subscription = self._subscription(queue.topic)
        request = PullMessageRequest(
            consumer_group=self.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=max_count,
            sys_flag=PULL_FLAG_SUBSCRIPTION | (PULL_FLAG_SUSPEND if wait_s > 0 else 0),
            commit_offset=0,
            suspend_timeout_millis=round(wait_s * 1000),
            subscription=subscription.expression,
            sub_version=subscription.version,
            expression_type=subscription.expression_type,
            broker_name=queue.broker_name,
        )
        address = await self._address(queue)
        timeout_s = wait_s + _HOLD_SLACK_S if wait_s > 0 else None
        answer = await self._session.request(
            address,
            RequestCode.PULL_MESSAGE,
            encode_fields(request),
            timeout_s=timeout_s,
            accept=PULL_ANSWERS,
        )
        return self._result(queue, offset, answer, address)

    def _subscription(self, topic: str) -> Subscription:
        subscription = self._subscriptions.get(topic)
        if subscription is None:
            subscription = subscription_to(topic, self._wanted)
            self._subscriptions[topic] = subscription
        return subscription

    async def _address(self, queue: MessageQueue) -> str:
        broker_id = self._preferred_broker_ids.get(queue)
        if broker_id is not None:
            route = self._session.routes.known(queue.topic)
            address = route.reader(queue.broker_name, broker_id) if route else None
            if address is not None:
                return address
        return await self._offsets.address(queue)

    def _result(
        self, queue: MessageQueue, offset: int, answer: Command, address: str
    ) -> PullResult:
        try:
            header = decode_fields(PullMessageResponse, answer.ext)
            records = decode_messages(answer.body) if answer.body else []
        except FieldError as error:
            raise MalformedAnswerError(
                f"{address} answered a pull with a header that cannot be read ({error})",
                address=address,
            ) from error
        except ProtocolError as error:
            raise MalformedAnswerError(
                f"{queue} holds a message at or soon after offset {offset} that cannot be read "
                f"({error})",
                address=address,
                remedy="seek beyond it to go on",
            ) from error
        self._preferred_broker_ids[queue] = header.suggest_which_broker_id
        matches = self._subscription(queue.topic).matches_tag
        messages = [
            ReceivedMessage(queue, record)
            for record in records
            # An inner batch comes whole, also when the offset asked for is in its middle; tags come
            # filtered by their hash only.
            if record.queue_offset >= offset and matches(record.tags)
        ]
        return PullResult(
            messages,
            header.next_begin_offset,
            header.min_offset,
            header.max_offset,
            has_moved=answer.code == ResponseCode.PULL_OFFSET_MOVED,
        )
