"""Finds single messages by a key, by the producer's id, or by the broker's id.

The broker of a message is found through the routes. The address inside an offset id is only
compared with the routes and never dialled, because it may be valid only in the broker's own
network.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from rockhopper.client.admin.message_forms import (
    WAITING_TOPICS,
    find_original,
    find_target_topic,
    is_requeued,
    rank_topics,
)
from rockhopper.client.errors import (
    ClientError,
    MalformedAnswerError,
    MessageNotFoundError,
    RouteNotFoundError,
)
from rockhopper.client.network.session import Session
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.addresses import join_address
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.message_ids import decode_offset_message_id
from rockhopper.protocol.requests import QueryMessageRequest, encode_fields
from rockhopper.protocol.store.message_codec import decode_messages
from rockhopper.tasks import end_tasks, start_task

_TIME_MAX = 0x7FFF_FFFF_FFFF_FFFF
_MESSAGE_ID = re.compile(r"[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56}")
_LOOKUPS_AT_ONCE = 16
_QUERY_TIMEOUT_S = 15.0
_FOUND_OR_NOT = frozenset({int(ResponseCode.SUCCESS), int(ResponseCode.QUERY_NOT_FOUND)})
# VIEW_MESSAGE_BY_ID answers SYSTEM_ERROR if no message begins at the commit-log offset.
_VIEWED_OR_NOT = frozenset({int(ResponseCode.SUCCESS), int(ResponseCode.SYSTEM_ERROR)})


class _SearchedBroker(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def is_master(self) -> bool: ...


class MessageSearch:
    """Queries all brokers that may hold a message, concurrently."""

    def __init__(
        self,
        session: Session,
        brokers: Callable[[], Awaitable[Sequence[_SearchedBroker]]],
        topics: Callable[[], Awaitable[list[str]]],
    ) -> None:
        self._session = session
        self._brokers = brokers
        self._topics = topics

    async def by_keys(
        self,
        topic: str,
        keys: Sequence[str],
        max_count: int,
        begin_time_ms: int,
        end_time_ms: int | None,
    ) -> list[ReceivedMessage]:
        """Return the newest messages with one of these keys, newest first."""
        end = _TIME_MAX if end_time_ms is None else end_time_ms
        answers = await asyncio.gather(
            *(
                self._query(topic, key, max_count, begin_time_ms, end, unique=False)
                for key in dict.fromkeys(keys)
            )
        )
        # A message with several of the keys is returned several times.
        found = {
            (message.broker_name, message.offset_message_id): message
            for messages in answers
            for message in messages
            if not set(keys).isdisjoint(message.keys)
        }
        newest = sorted(found.values(), key=lambda message: message.store_time_ms, reverse=True)
        return newest[:max_count]

    async def by_id(self, message_id: str, topic: str | None) -> ReceivedMessage:
        """Return the message with this id; for a producer's id, the form that was sent first.

        Raises MessageNotFoundError.
        """
        message_id = message_id.strip()
        found = await self._by_offset_id(message_id)
        if found is not None:
            return found
        # Brokers compare case-sensitively; producers write ids in capitals.
        spellings = [message_id]
        if _MESSAGE_ID.fullmatch(message_id) and message_id.upper() != message_id:
            spellings.append(message_id.upper())
        topics = [topic] if topic is not None else await self._topics()
        for key in spellings:
            found = await self._first_form(key, topics)
            if found is None and topic is not None:
                found = await self._waiting_for(topic, key)
            if found is not None:
                return found
        where = f"in the topic {topic!r}" if topic is not None else "in any topic"
        raise MessageNotFoundError(
            f"no message with the id {message_id} was found {where}",
            remedy="it may have expired, or not be indexed yet",
        )

    async def by_unique_key(
        self, topic: str, key: str, begin_time_ms: int
    ) -> list[ReceivedMessage]:
        """Return the messages of a topic with this producer's id: several if it was sent again."""
        found = await self._query(topic, key, 32, begin_time_ms, _TIME_MAX, unique=True)
        return [message for message in found if message.message_id == key]

    async def _by_offset_id(self, message_id: str) -> ReceivedMessage | None:
        if not _MESSAGE_ID.fullmatch(message_id):
            return None
        host, port, offset = decode_offset_message_id(message_id)
        if not 0 < port < 65536 or offset < 0:
            return None  # a producer's id, whose bytes have another meaning
        masters = [broker for broker in await self._brokers() if broker.is_master]
        named = [broker for broker in masters if broker.address == join_address(host, port)]
        for broker in named or masters:
            message = await self._view(broker, offset)
            if message is not None and message.offset_message_id == message_id.upper():
                return message
        return None

    async def _view(self, broker: _SearchedBroker, offset: int) -> ReceivedMessage | None:
        answer = await self._session.request(
            broker.address,
            RequestCode.VIEW_MESSAGE_BY_ID,
            {"offset": str(offset)},
            accept=_VIEWED_OR_NOT,
        )
        if answer.code != ResponseCode.SUCCESS:
            return None
        try:
            records = decode_messages(answer.body)
        except ProtocolError:
            return None  # Apache's broker returns arbitrary bytes if no message begins there
        return _make_received(broker.name, records[0]) if records else None

    async def _waiting_for(self, topic: str, key: str) -> ReceivedMessage | None:
        """Return a delayed message with this id that waits for its delivery to *topic*."""
        searches = (self.by_unique_key(each, key, 0) for each in WAITING_TOPICS)
        for found in await asyncio.gather(*searches, return_exceptions=True):
            if isinstance(found, RouteNotFoundError):
                continue  # no message was ever delayed there
            if isinstance(found, BaseException):
                raise found
            message = find_original([each for each in found if find_target_topic(each) == topic])
            if message is not None:
                return message
        return None

    async def _first_form(self, key: str, topics: list[str]) -> ReceivedMessage | None:
        failure: ClientError | None = None
        for rank in rank_topics(topics):
            found, problem = await self._by_unique_key(key, rank, is_only=len(topics) == 1)
            if found is not None:
                return found
            failure = failure or problem
        if failure is not None:
            raise failure
        return None

    async def _by_unique_key(
        self, key: str, topics: list[str], *, is_only: bool
    ) -> tuple[ReceivedMessage | None, ClientError | None]:
        """Return the message found in topics of one rank, and the first error."""
        at_once = asyncio.Semaphore(_LOOKUPS_AT_ONCE)

        async def search(topic: str) -> ReceivedMessage | None:
            async with at_once:
                try:
                    return find_original(await self.by_unique_key(topic, key, 0))
                except RouteNotFoundError:
                    if is_only:
                        raise
                    return None  # deleted meanwhile, or a name without queues such as a cluster's

        searches = [start_task(search(topic)) for topic in topics]
        failure: ClientError | None = None
        copy: ReceivedMessage | None = None
        try:
            for next_done in asyncio.as_completed(searches):
                try:
                    message = await next_done
                except ClientError as error:
                    failure = failure or error
                    continue
                if message is not None and not is_requeued(message):
                    return message, None
                copy = copy or message
        finally:
            await end_tasks(searches)
        return copy, failure

    async def _query(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int, *, unique: bool
    ) -> list[ReceivedMessage]:
        route = await self._session.routes.route(topic)
        request = QueryMessageRequest(
            topic=topic,
            key=key,
            max_num=max_count,
            begin_timestamp=begin_ms,
            end_timestamp=end_ms,
            is_unique_key=unique,
        )
        answers = await asyncio.gather(
            *(self._query_one(name, address, request) for name, address in route.masters.items())
        )
        found = [message for messages in answers for message in messages]
        return sorted(found, key=lambda message: message.store_time_ms, reverse=True)

    async def _query_one(
        self, broker_name: str, address: str, request: QueryMessageRequest
    ) -> list[ReceivedMessage]:
        answer = await self._session.request(
            address,
            RequestCode.QUERY_MESSAGE,
            encode_fields(request),
            timeout_s=_QUERY_TIMEOUT_S,
            accept=_FOUND_OR_NOT,
        )
        if answer.code != ResponseCode.SUCCESS:
            return []
        try:
            records = decode_messages(answer.body)
        except ProtocolError as error:
            raise MalformedAnswerError(
                f"{address} answered a query with invalid messages ({error})",
                address=address,
            ) from error
        # Apache's broker answers in log order, others newest first.
        records.sort(key=lambda record: record.commit_log_offset, reverse=True)
        # The broker's index contains only hashes, so the topic and the key are checked here.
        return [
            _make_received(broker_name, record)
            for record in records
            if record.topic == request.topic
        ]


def _make_received(broker_name: str, record: StoredMessage) -> ReceivedMessage:
    return ReceivedMessage(MessageQueue(record.topic, broker_name, record.queue_id), record)
