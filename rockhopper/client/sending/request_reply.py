"""Request messages and their replies.

A request is a normal message with the client id of its sender (REPLY_TO_CLIENT) and its own id
(CORRELATION_ID). Its consumer sends the reply to the broker that the request came from. The broker
forwards the reply (PUSH_REPLY_MESSAGE_TO_CLIENT) to the client with that id, if the client has sent
a heartbeat over a connection that is still open.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable
from weakref import WeakSet

from rockhopper.client.errors import MessageRejectedError, ReplyTimeoutError
from rockhopper.client.network.connection import BrokerConnection
from rockhopper.client.network.routing import TopicRoute
from rockhopper.client.network.session import Session
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.names import reply_topic
from rockhopper.protocol.properties import (
    PROPERTY_CLUSTER,
    PROPERTY_CORRELATION_ID,
    PROPERTY_MESSAGE_TYPE,
    PROPERTY_REPLY_TO_CLIENT,
    PROPERTY_TTL,
    decode_properties,
)
from rockhopper.protocol.requests import ReplyMessageRequest, decode_fields

log = logging.getLogger(__name__)

REPLY_MESSAGE_TYPE = "reply"
_LOOK_INTERVAL_S = 1.0
_SUCCESS = int(ResponseCode.SUCCESS)


class PendingRequests:
    """The requests of one client that wait for their replies."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}
        self._introduced: WeakSet[BrokerConnection] = WeakSet()
        self._introduction = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    def register(self, timeout_s: float) -> tuple[str, dict[str, str]]:
        """Register a request; return its correlation id and the properties to send with it."""
        correlation_id = str(uuid.uuid4())
        self._waiting[correlation_id] = asyncio.get_running_loop().create_future()
        return correlation_id, {
            PROPERTY_CORRELATION_ID: correlation_id,
            PROPERTY_REPLY_TO_CLIENT: self._session.client_id,
            PROPERTY_TTL: str(max(1, round(timeout_s * 1000))),
        }

    def forget(self, correlation_id: str) -> None:
        """Stop waiting for the reply."""
        self._waiting.pop(correlation_id, None)

    async def reply(
        self, correlation_id: str, route: TopicRoute, deadline_s: float
    ) -> ReceivedMessage:
        """Wait for a reply. Raises ReplyTimeoutError.

        A connection that breaks while waiting is restored: the broker delivers the reply over it.
        """
        waiting = self._waiting[correlation_id]
        try:
            async with asyncio.timeout_at(deadline_s):
                while not waiting.done():
                    await asyncio.wait([waiting], timeout=_LOOK_INTERVAL_S)
                    if not waiting.done():
                        await self.introduce(route)
        except TimeoutError:
            if not waiting.done():
                raise ReplyTimeoutError(
                    f"the request was stored in {route.topic!r}, but no consumer replied in time",
                    remedy="check that a consumer of the topic runs and replies",
                ) from None
        return waiting.result()

    async def introduce(self, route: TopicRoute) -> None:
        """Send heartbeats to the topic's masters, unless their current connection has had one."""
        missing = [each for each in route.masters.values() if not self._is_introduced(each)]
        if not missing:
            return
        async with self._introduction:
            missing = [each for each in missing if not self._is_introduced(each)]
            # An unreachable broker cannot take the request either: the send reports the error.
            await asyncio.gather(*map(self._introduce, missing), return_exceptions=True)

    def take_reply(self, command: Command) -> Command:
        """Handle PUSH_REPLY_MESSAGE_TO_CLIENT."""
        try:
            message = decode_reply(command)
        except ProtocolError as error:
            log.warning("a broker sent an invalid reply: %s", error)
            return Command(int(ResponseCode.SYSTEM_ERROR), remark=str(error))
        correlation_id = message.properties.get(PROPERTY_CORRELATION_ID, "")
        waiting = self._waiting.get(correlation_id)
        if waiting is None or waiting.done():
            log.debug("the reply to request %s arrived too late", correlation_id)
        else:
            waiting.set_result(message)
        return Command(_SUCCESS)

    def _is_introduced(self, address: str) -> bool:
        return self._session.connection(address) in self._introduced

    async def _introduce(self, address: str) -> None:
        await self._session.heartbeat(address)
        connection = self._session.connection(address)
        if connection is not None:
            self._introduced.add(connection)


def decode_reply(command: Command) -> ReceivedMessage:
    """Return the message carried by PUSH_REPLY_MESSAGE_TO_CLIENT. Raises ProtocolError."""
    fields = decode_fields(ReplyMessageRequest, command.ext)
    born_host, born_port = _parse_host_and_port(fields.born_host)
    store_host, store_port = _parse_host_and_port(fields.store_host)
    stored = StoredMessage(
        topic=fields.topic,
        queue_id=fields.queue_id,
        queue_offset=0,
        commit_log_offset=0,
        body=command.body,
        flag=fields.flag,
        sys_flag=fields.sys_flag,
        born_time_ms=fields.born_timestamp,
        born_host=born_host,
        born_port=born_port,
        store_time_ms=fields.store_timestamp,
        store_host=store_host,
        store_port=store_port,
        reconsume_times=fields.reconsume_times or 0,
        properties=decode_properties(fields.properties or ""),
    )
    queue = MessageQueue(fields.topic, fields.broker_name or "", fields.queue_id)
    return ReceivedMessage(queue, stored)


def find_reply_address(request: ReceivedMessage) -> tuple[str, dict[str, str]]:
    """Return the topic of a reply to `request` and the properties that address its sender.

    Raises MessageRejectedError if `request` does not ask for a reply, TypeError.
    """
    if not isinstance(request, ReceivedMessage):
        raise TypeError(
            f"request is {request!r}: it must be the ReceivedMessage that asks for a reply"
        )
    given = request.properties
    names = (PROPERTY_CLUSTER, PROPERTY_CORRELATION_ID, PROPERTY_REPLY_TO_CLIENT)
    missing = [name for name in names if not given.get(name)]
    if missing:
        raise MessageRejectedError(
            f"message {request.message_id} is not a request: it has no {' and no '.join(missing)}"
        )
    properties = {
        PROPERTY_MESSAGE_TYPE: REPLY_MESSAGE_TYPE,
        PROPERTY_CORRELATION_ID: given[PROPERTY_CORRELATION_ID],
        PROPERTY_REPLY_TO_CLIENT: given[PROPERTY_REPLY_TO_CLIENT],
    }
    if PROPERTY_TTL in given:
        properties[PROPERTY_TTL] = given[PROPERTY_TTL]
    return reply_topic(given[PROPERTY_CLUSTER]), properties


def is_expired(message: ReceivedMessage, now_ms: Callable[[], int | None]) -> bool:
    """Whether the message is a request whose sender has stopped waiting.

    *now_ms* must be the clock that stamped the store time, because the clocks of the two clients
    may differ.
    """
    ttl = message.properties.get(PROPERTY_TTL)
    if ttl is None or PROPERTY_REPLY_TO_CLIENT not in message.properties:
        return False
    now = now_ms()
    return now is not None and ttl.isdecimal() and message.store_time_ms + int(ttl) < now


def _parse_host_and_port(text: str) -> tuple[str, int]:
    """Read "host:port", with or without Java's leading slash."""
    host, _, port = text.rpartition("/")[2].rpartition(":")
    return (host, int(port)) if port.isdigit() else (text, 0)
