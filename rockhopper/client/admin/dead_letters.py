"""Dead letters, `Admin.dead_letters`: messages that a group gave up after its last retry.

They are the messages of the topic `%DLQ%<group>`. Sending them back ("requeue") maintains a mark
before the first one not sent yet: the committed offset of the group REQUEUE_GROUP in that topic.
The mark passes a dead letter only after a broker has stored its copy, so none is lost. Each copy
names its dead letter in the property RH_REQUEUED. A dead letter whose copy is found in the target
topic is not sent again.

Example: of the dead letters 0, 1 and 2 a requeue sends 0 and 1 and is killed before it moves the
mark. The next requeue starts at 0, finds the copies of 0 and 1, and sends only 2. If the broker's
index does not contain these copies yet, 0 and 1 are sent twice.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from dataclasses import dataclass

from rockhopper.client.admin.group_states import REQUEUE_GROUP
from rockhopper.client.admin.message_forms import PROPERTY_REQUEUED
from rockhopper.client.admin.message_search import MessageSearch
from rockhopper.client.consuming.pulling import GroupPuller
from rockhopper.client.consuming.queue_offsets import QueueOffsets
from rockhopper.client.errors import (
    ClientError,
    ClientStateError,
    MalformedAnswerError,
    MessageNotFoundError,
    RequestRefusedError,
    RouteNotFoundError,
)
from rockhopper.client.network.addresses import BrokerAddress
from rockhopper.client.network.session import Session
from rockhopper.client.queues import MessageQueue
from rockhopper.client.receipts import SendReceipt
from rockhopper.client.received import ReceivedMessage
from rockhopper.client.sending.group_sender import GroupSender
from rockhopper.client.sending.outgoing import OutgoingMessage
from rockhopper.protocol.bodies import LockBatchRequestBody, LockBatchResponseBody
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.fastjson import MessageQueueKey, dumps
from rockhopper.protocol.names import DLQ_PREFIX, dlq_topic, is_retry_topic
from rockhopper.protocol.properties import (
    PROPERTY_CORRELATION_ID,
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_INSTANCE_ID,
    PROPERTY_KEYS,
    PROPERTY_REPLY_TO_CLIENT,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_TRACE_CONTEXT,
    PROPERTY_TTL,
    PROPERTY_UNIQUE_KEY,
    SYSTEM_PROPERTIES,
    fit_properties,
    join_properties,
)
from rockhopper.protocol.sys_flags import (
    SYS_FLAG_COMPRESSED,
    SYS_FLAG_COMPRESSION_MASK,
    SYS_FLAG_MULTI_TAGS,
)

_BATCH = 32
_SENT_MAX = 4096
_SEND_TIMEOUT_S = 10.0
_KEPT_FLAGS = SYS_FLAG_COMPRESSED | SYS_FLAG_COMPRESSION_MASK | SYS_FLAG_MULTI_TAGS
# RocketMQ's properties that belong to the message itself, not to its delivery.
_OWN = frozenset(
    {
        PROPERTY_CORRELATION_ID,
        PROPERTY_INSTANCE_ID,
        PROPERTY_KEYS,
        PROPERTY_REPLY_TO_CLIENT,
        PROPERTY_SHARDING_KEY,
        PROPERTY_TAGS,
        PROPERTY_TRACE_CONTEXT,
        PROPERTY_TTL,
        PROPERTY_UNIQUE_KEY,
    }
)
_DROPPED = (SYSTEM_PROPERTIES - _OWN) | {"__STARTDELIVERTIME", "TIMER_ORIGIN", PROPERTY_REQUEUED}


@dataclass(frozen=True, slots=True)
class DeadLetterCount:
    """How many dead letters a group has, and how many were not sent back yet."""

    group: str
    count: int
    waiting: int
    oldest_time_ms: int | None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that a group gave up."""

    message: ReceivedMessage
    topic: str | None
    """The original topic; None if the message does not name it."""
    is_requeued: bool
    """Whether it is before the mark, and so was already sent back."""


@dataclass(frozen=True, slots=True)
class Requeued:
    """A dead letter that was sent back."""

    letter: DeadLetter
    target: str
    receipt: SendReceipt | None
    """None if it was not sent now: a copy already exists, or it was a dry run."""
    problem: ClientError | None = None
    """Why it cannot be sent back; only with `go_on`."""


@dataclass(frozen=True, slots=True)
class _RequeueOptions:
    """The options of a requeue."""

    to: str | None
    message_id: str | None
    only: Collection[str] | None
    go_on: bool
    dry_run: bool

    def has(self, message: ReceivedMessage) -> bool:
        """Whether the message is selected."""
        if self.message_id is not None:
            return self.message_id in (message.message_id, message.offset_message_id)
        return self.only is None or message.offset_message_id in self.only

    def limit(self, count_max: int | None) -> int | None:
        """Return how many dead letters to send back at most; None for no limit."""
        if self.message_id is not None:
            return 1
        return count_max if self.only is None else len(self.only)

    def start(self, low: int, mark: int) -> int:
        """Return the offset to begin at: *mark*, or *low* since one message may be before it."""
        return mark if self.message_id is None else low


class _NoOriginError(ClientStateError):
    """A dead letter does not name its original topic."""


class DeadLetters:
    """The dead letters of all groups."""

    def __init__(
        self,
        session: Session,
        offsets: QueueOffsets,
        search: MessageSearch,
        topics: Callable[[], Awaitable[list[str]]],
        masters: Callable[[], Awaitable[list[BrokerAddress]]],
    ) -> None:
        self._session = session
        self._offsets = offsets
        self._search = search
        self._topics = topics
        self._masters = masters
        self._puller = GroupPuller(session, None, is_browsing=True)
        # A send without an answer is not retried: the next requeue finds out whether it was stored.
        self._sender = GroupSender(session, REQUEUE_GROUP, timeout_s=_SEND_TIMEOUT_S, retries=0)
        # A broker's lock does not exclude a second call of this client, and its index may lag.
        self._under_way: set[MessageQueue] = set()
        self._sent: dict[tuple[str, str], None] = {}

    async def counts(self) -> list[DeadLetterCount]:
        """Return the counts of all groups that have dead letters."""
        names = [name for name in await self._topics() if name.startswith(DLQ_PREFIX)]
        counts = await asyncio.gather(*(self.count(name[len(DLQ_PREFIX) :]) for name in names))
        return [each for each in counts if each.count]

    async def count(self, group: str) -> DeadLetterCount:
        """Return the number of a group's dead letters, perhaps 0."""
        count = waiting = 0
        oldest: list[int] = []
        for queue in await self._queues(group, or_none=True):
            low, mark, high = await self._range(queue)
            count += high - low
            waiting += high - mark
            if high > low and (time_ms := await self._offsets.earliest_store_time_ms(queue)):
                oldest.append(time_ms)
        return DeadLetterCount(group, count, waiting, min(oldest, default=None))

    async def read(self, group: str, *, only_waiting: bool = False) -> AsyncGenerator[DeadLetter]:
        """Yield a group's dead letters, oldest first. Raises RouteNotFoundError if it has none."""
        for queue in await self._queues(group):
            low, mark, high = await self._range(queue)
            async for message in self._messages(queue, mark if only_waiting else low, high):
                yield _letter(message, mark)

    async def requeue(
        self,
        group: str,
        *,
        max_count: int | None = None,
        to: str | None = None,
        message_id: str | None = None,
        only: Collection[str] | None = None,
        go_on: bool = False,
        dry_run: bool = False,
    ) -> AsyncGenerator[Requeued]:
        """Send dead letters back to their original topics, and yield each stored message.

        Dead letters that were already sent back are omitted. Their retries are counted from 0
        again. `to` names another topic; with the group's own retry topic (`%RETRY%<group>`) only
        this group receives them. `message_id` selects one message; `only` selects those not yet
        sent back with one of these ids (`offset_message_id`). With `go_on`, a dead letter that does
        not name its topic, or that a broker refuses, is yielded with its problem and stays; the
        others are sent.

        Raises:
            RouteNotFoundError: the group has no dead letters.
            MessageNotFoundError: no dead letter has this id.
            ClientStateError: another requeue of the group is running, or a dead letter does not
                name its topic.
            ClientError: a message could not be sent; the yielded ones are sent.
        """
        queues = await self._queues(group)
        asked = _RequeueOptions(to, message_id, only, go_on, dry_run)
        left = asked.limit(max_count)
        found = False
        for queue in queues:
            if not dry_run:
                await self._begin(queue)
            try:
                async for requeued in self._requeue(queue, asked, left):
                    found = True
                    yield requeued
                    if left is not None:
                        left -= 1
            finally:
                if not dry_run:
                    await self._end(queue)
            if left == 0:
                return
        if message_id is not None and not found:
            raise MessageNotFoundError(
                f"no dead letter of {group!r} has the id {message_id}",
                remedy=f"list the existing ones with `rockhopper dlq show {group}`",
            )

    async def _requeue(
        self, queue: MessageQueue, asked: _RequeueOptions, left: int | None
    ) -> AsyncGenerator[Requeued]:
        low, mark, high = await self._range(queue)
        noted = mark
        stays = False  # whether a dead letter was left behind, so that the mark must stay before it
        try:
            async for message in self._messages(queue, asked.start(low, mark), high):
                if left == 0:
                    return
                if not asked.has(message):
                    stays |= message.queue_offset >= mark
                    continue
                requeued = await self._tried(_letter(message, mark), asked)
                stays |= requeued.problem is not None
                if not stays:
                    mark = max(mark, message.queue_offset + 1)
                yield requeued
                left = None if left is None else left - 1
                if mark - noted >= _BATCH and not asked.dry_run:
                    await self._lock(queue)
                    await self._note(queue, mark)
                    noted = mark
        finally:
            if mark > noted and not asked.dry_run:
                await self._note(queue, mark)

    async def _tried(self, letter: DeadLetter, asked: _RequeueOptions) -> Requeued:
        try:
            return await self._send_back(letter, asked.to, dry_run=asked.dry_run)
        except (_NoOriginError, RequestRefusedError, RouteNotFoundError) as error:
            if not asked.go_on:
                raise
            return Requeued(letter, asked.to or letter.topic or "", None, error)

    async def _send_back(self, letter: DeadLetter, to: str | None, *, dry_run: bool) -> Requeued:
        message = letter.message
        target = to or letter.topic
        if target is None:
            raise _NoOriginError(
                f"the dead letter at {message.queue} offset {message.queue_offset} does not name "
                "its original topic; name a topic to send it to"
            )
        outgoing = _copy(letter, target)
        if dry_run or await self._is_there(letter, outgoing):
            return Requeued(letter, target, None)
        (receipt,) = await self._sender.send(outgoing, [outgoing])
        while len(self._sent) >= _SENT_MAX:
            del self._sent[next(iter(self._sent))]
        self._sent[target, _place(message)] = None
        return Requeued(letter, target, receipt)

    async def _is_there(self, letter: DeadLetter, outgoing: OutgoingMessage) -> bool:
        """Whether an interrupted requeue, or one of a single message, has already sent this one.

        Anyone may write the mark, so only the stored copy counts as proof.
        """
        message = letter.message
        place = _place(message)
        key = message.properties.get(PROPERTY_UNIQUE_KEY)
        # A requeued letter may have been sent to its original topic, if the mark could not move.
        for topic in {outgoing.topic, outgoing.topic if letter.is_requeued else letter.topic}:
            if (topic, place) in self._sent:
                return True
            if topic is None or key is None:
                continue
            with contextlib.suppress(RouteNotFoundError):
                found = await self._search.by_unique_key(topic, key, message.store_time_ms)
                if any(
                    each.properties.get(PROPERTY_REQUEUED) == place and each.body == message.body
                    for each in found
                ):
                    return True
        return False

    async def _queues(self, group: str, *, or_none: bool = False) -> list[MessageQueue]:
        topic = dlq_topic(group)
        self._session.routes.forget(topic)
        try:
            return list((await self._session.routes.route(topic)).read_queues)
        except RouteNotFoundError:
            if or_none:
                return []
            raise RouteNotFoundError(
                f"the group {group!r} has no dead letters: topic {topic} does not exist",
                address=str(self._session.name_services),
            ).about(group=group) from None

    async def _range(self, queue: MessageQueue) -> tuple[int, int, int]:
        """Return the start of a queue, its mark and its end."""
        low, high, mark = await asyncio.gather(
            self._offsets.min_offset(queue),
            self._offsets.max_offset(queue),
            self._offsets.committed(REQUEUE_GROUP, queue),
        )
        # A deleted and recreated topic begins at 0 again, and so does its mark.
        return low, max(mark if mark is not None and mark <= high else low, low), high

    async def _messages(
        self, queue: MessageQueue, start: int, end: int
    ) -> AsyncGenerator[ReceivedMessage]:
        while start < end:
            result = await self._puller.pull(queue, start, _BATCH)
            if result.next_offset <= start:
                return
            for message in result.messages:
                if message.queue_offset >= end:
                    return
                yield message
            start = result.next_offset

    async def _note(self, queue: MessageQueue, mark: int) -> None:
        try:
            await self._offsets.commit(REQUEUE_GROUP, queue, mark)
        except RequestRefusedError as error:
            if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
            await self._make_group()
            await self._offsets.commit(REQUEUE_GROUP, queue, mark)

    async def _make_group(self) -> None:
        body = dumps({"groupName": REQUEUE_GROUP}).encode()
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        for master in await self._masters():
            await self._session.request(master.address, code, body=body)

    async def _begin(self, queue: MessageQueue) -> None:
        if queue in self._under_way:
            raise ClientStateError(
                f"another requeue from {queue.topic} is in progress: wait for it"
            )
        self._under_way.add(queue)
        try:
            await self._lock(queue)
        except BaseException:
            self._under_way.discard(queue)
            raise

    async def _end(self, queue: MessageQueue) -> None:
        try:
            await self._unlock(queue)
        finally:
            self._under_way.discard(queue)

    async def _lock(self, queue: MessageQueue) -> None:
        code = RequestCode.LOCK_BATCH_MQ
        address = await self._offsets.address(queue)
        answer = await self._session.request(address, code, body=self._lock_body(queue))
        try:
            granted = LockBatchResponseBody.decode(answer.body).lock_ok_mq_set
        except ProtocolError as error:
            raise MalformedAnswerError(
                f"{address} answered {code.name} with an invalid body ({error})",
                address=address,
            ) from error
        if not granted:
            raise ClientStateError(
                f"another requeue from {queue.topic} is in progress, or was killed within the "
                "last minute: wait for it"
            )

    async def _unlock(self, queue: MessageQueue) -> None:
        try:
            address = await self._offsets.address(queue)
            await self._session.request(
                address, RequestCode.UNLOCK_BATCH_MQ, body=self._lock_body(queue)
            )
        except ClientError:
            return  # the lock expires with the connection or within a minute

    def _lock_body(self, queue: MessageQueue) -> bytes:
        key = MessageQueueKey(queue.topic, queue.broker_name, queue.queue_id)
        body = LockBatchRequestBody(
            consumer_group=REQUEUE_GROUP, client_id=self._session.client_id, mq_set=[key]
        )
        return body.encode()


def _letter(message: ReceivedMessage, mark: int) -> DeadLetter:
    properties = message.properties
    topic = properties.get(PROPERTY_RETRY_TOPIC) or properties.get(PROPERTY_DLQ_ORIGIN_TOPIC)
    return DeadLetter(message, topic, message.queue_offset < mark)


def _place(message: ReceivedMessage) -> str:
    return f"{message.queue}:{message.queue_offset}"


def _copy(letter: DeadLetter, target: str) -> OutgoingMessage:
    """Return the message as originally sent, plus the property that names its dead letter."""
    message = letter.message
    stored = message.stored
    properties = {name: value for name, value in message.properties.items() if name not in _DROPPED}
    properties[PROPERTY_REQUEUED] = _place(message)
    if is_retry_topic(target) and letter.topic is not None:
        # Consumers of a retry topic take the original topic from this property.
        properties[PROPERTY_RETRY_TOPIC] = letter.topic
    return OutgoingMessage(
        target,
        stored.body,
        join_properties(fit_properties(properties, [PROPERTY_REQUEUED])),
        message.message_id,
        message.born_time_ms,
        message.stored.flag,
        stored.sys_flag & _KEPT_FLAGS,
        properties.get(PROPERTY_SHARDING_KEY),
    )
