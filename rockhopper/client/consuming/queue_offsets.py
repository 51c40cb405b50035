"""Requests the offsets of a queue: minimum, maximum, by time, and those committed by a group."""

from typing import TypeVar

import msgspec

from rockhopper.client.errors import BrokerUnreachableError, ClientError, MalformedAnswerError
from rockhopper.client.network.session import Session
from rockhopper.client.queues import MessageQueue
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.errors import FieldError
from rockhopper.protocol.requests import (
    GetEarliestMsgStoretimeRequest,
    GetEarliestMsgStoretimeResponse,
    GetMaxOffsetRequest,
    GetMinOffsetRequest,
    OffsetResponse,
    QueryConsumerOffsetRequest,
    SearchOffsetRequest,
    UpdateConsumerOffsetRequest,
    decode_fields,
    encode_fields,
)

_SUCCESS = frozenset({int(ResponseCode.SUCCESS)})
_FOUND_OR_NOT = frozenset({int(ResponseCode.SUCCESS), int(ResponseCode.QUERY_NOT_FOUND)})

_Fields = TypeVar("_Fields")


class QueueOffsets:
    """Queries and commits for single queues: one request each, to the queue's broker.

    If another replica is the leader by now, the request is repeated there.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the oldest message still stored."""
        fields = GetMinOffsetRequest(
            topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        return await self._offset(RequestCode.GET_MIN_OFFSET, queue, fields)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the next message to be stored."""
        fields = GetMaxOffsetRequest(
            topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        return await self._offset(RequestCode.GET_MAX_OFFSET, queue, fields)

    async def offset_at(self, queue: MessageQueue, time_ms: int, *, upper: bool = False) -> int:
        """Return the first offset stored at `time_ms` or later.

        With `upper`, return the last one stored at `time_ms` or earlier. For a time after the last
        message, return the end of the queue.
        """
        fields = SearchOffsetRequest(
            topic=queue.topic,
            queue_id=queue.queue_id,
            timestamp=time_ms,
            boundary_type="UPPER" if upper else "LOWER",
            broker_name=queue.broker_name,
        )
        return await self._offset(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queue, fields)

    async def earliest_store_time_ms(self, queue: MessageQueue) -> int | None:
        """Return the store time of the oldest message; None for an empty queue."""
        fields = GetEarliestMsgStoretimeRequest(
            topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        code = RequestCode.GET_EARLIEST_MSG_STORETIME
        answer, address = await self._ask(code, queue, fields)
        time_ms = _read(GetEarliestMsgStoretimeResponse, answer, code, address).timestamp
        return time_ms if time_ms > 0 else None

    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        """Return the committed offset of `group`; None if it has never committed."""
        fields = QueryConsumerOffsetRequest(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=False,
            broker_name=queue.broker_name,
        )
        code = RequestCode.QUERY_CONSUMER_OFFSET
        answer, address = await self._ask(code, queue, fields, _FOUND_OR_NOT)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        offset = _read(OffsetResponse, answer, code, address).offset
        return offset if offset >= 0 else None

    async def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Commit `offset` for `group`."""
        fields = UpdateConsumerOffsetRequest(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            broker_name=queue.broker_name,
        )
        await self._ask(RequestCode.UPDATE_CONSUMER_OFFSET, queue, fields)

    async def address(self, queue: MessageQueue) -> str:
        """Return the address of the queue's broker: its master if that is up."""
        route = await self._session.routes.route(queue.topic)
        address = route.reader(queue.broker_name)
        if address is None:
            names = ", ".join(sorted(route.brokers)) or "none"
            raise BrokerUnreachableError(
                f"broker {queue.broker_name!r} does not serve topic {queue.topic!r} now; brokers "
                f"that do: {names}"
            )
        return address

    async def _offset(self, code: RequestCode, queue: MessageQueue, fields: msgspec.Struct) -> int:
        answer, address = await self._ask(code, queue, fields)
        return _read(OffsetResponse, answer, code, address).offset

    async def _ask(
        self,
        code: RequestCode,
        queue: MessageQueue,
        fields: msgspec.Struct,
        accept: frozenset[int] = _SUCCESS,
    ) -> tuple[Command, str]:
        address = await self.address(queue)
        ext = encode_fields(fields)
        session = self._session
        try:
            return await session.request(address, code, ext, accept=accept), address
        except ClientError as error:
            name = queue.broker_name
            elsewhere = await session.led_elsewhere(queue.topic, name, address, error)
            if elsewhere is None:
                raise
        return await session.request(elsewhere, code, ext, accept=accept), elsewhere


def _read(cls: type[_Fields], answer: Command, code: RequestCode, address: str) -> _Fields:
    try:
        return decode_fields(cls, answer.ext)
    except FieldError as error:
        raise MalformedAnswerError(
            f"{address} answered {code.name} with an invalid header ({error})",
            address=address,
        ) from error
