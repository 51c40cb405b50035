"""Producer: sends messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from client.errors import (
    BrokerUnreachableError,
    ClientError,
    MessageRejectedError,
    RequestRefusedError,
    RequestTimeoutError,
    RouteNotFoundError,
)
from client.outgoing import OutgoingMessage, OutgoingPolicy
from client.queue_choice import QueueChoice, chosen_queue, queue_for_key
from client.queues import MessageQueue
from client.receipts import SENT_CODES, SendReceipt, read_receipts
from client.routing import TopicRoute
from client.session import Session
from client.unique_id import UniqueIds
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Command
from protocol.message import Message

DEFAULT_GROUP = "DEFAULT_PRODUCER"


class Producer:
    """Sends messages; any number of sends may be under way at once.

    Use it with `async with`. A send that fails is tried again on another broker of the topic,
    `retries` times within its timeout, so a message may in rare cases be stored twice (with the
    same message id). A cancelled send may or may not have been stored.
    """

    def __init__(
        self,
        nameserver: str | None = None,
        *,
        group: str = DEFAULT_GROUP,
        timeout: float = 3.0,
        retries: int = 2,
        compress_above_bytes: int | None = 4096,
        message_size_bytes_max: int = 4 * 1024 * 1024,
    ) -> None:
        """`nameserver` is "host:port;host:port"; without it NAMESRV_ADDR, else 127.0.0.1:9876.

        `timeout` is in seconds, for a whole send with its retries. `compress_above_bytes=None`
        turns compression off. `message_size_bytes_max` should be the brokers' maxMessageSize.
        """
        self._group = group
        self._timeout_s = timeout
        self._retries = retries
        self._policy = OutgoingPolicy(
            UniqueIds(),
            compress_above_bytes=compress_above_bytes,
            message_size_bytes_max=message_size_bytes_max,
        )
        self._session = Session(nameserver, request_timeout_s=timeout)
        self._session.producer_groups.add(group)
        self._choice = QueueChoice(time.monotonic)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def start(self) -> Self:
        """Open the producer; connections are made when they are needed."""
        await self._session.start()
        return self

    async def close(self) -> None:
        """Hand everything that was sent to the network, then close."""
        await self._session.close()

    async def send(
        self,
        message: Message | str,
        body: bytes | str = b"",
        *,
        tags: str | None = None,
        keys: Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        queue: MessageQueue | int | None = None,
        timeout: float | None = None,
    ) -> SendReceipt:
        """Send one message, given whole or as a topic and its parts, and return where it is stored.

        It goes to `queue`, else to the queue of its sharding key, else to the next queue in turn.
        Raises MessageRejectedError, RouteNotFoundError, RequestRefusedError,
        BrokerUnreachableError, RequestTimeoutError.
        """
        prepared = self._policy.prepare(_as_message(message, body, tags, keys, properties))
        return (await self._send(prepared, [prepared], queue, timeout))[0]

    async def send_batch(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | int | None = None,
        timeout: float | None = None,
    ) -> list[SendReceipt]:
        """Send several messages of one topic in one request to one queue; all are stored or none.

        Returns a receipt for each, in order. Delayed messages cannot go in a batch. Batches are not
        compressed. Raises as `send` does.
        """
        batch = list(messages)
        if not batch:
            return []
        whole, parts = self._policy.prepare_batch(batch)
        return await self._send(whole, parts, queue, timeout)

    async def send_oneway(
        self,
        message: Message | str,
        body: bytes | str = b"",
        *,
        tags: str | None = None,
        keys: Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        queue: MessageQueue | int | None = None,
    ) -> None:
        """Send one message without learning whether it was stored: the broker does not answer."""
        prepared = self._policy.prepare(_as_message(message, body, tags, keys, properties))
        route = await self._route(prepared.topic)
        target = self._target(route, prepared, queue) or self._choice.next(route)
        ext = self._header(prepared, target)
        address = _master(route, target)
        await self._session.send_oneway(address, RequestCode.SEND_MESSAGE_V2, ext, prepared.body)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic that can be written, in the order of sharding."""
        return list((await self._route(topic)).write_queues)

    async def _send(
        self,
        outgoing: OutgoingMessage,
        messages: list[OutgoingMessage],
        choice: MessageQueue | int | None,
        timeout: float | None,
    ) -> list[SendReceipt]:
        now_s = asyncio.get_running_loop().time
        timeout_s = self._timeout_s if timeout is None else timeout
        deadline_s = now_s() + timeout_s
        route = await self._route(outgoing.topic)
        fixed = self._target(route, outgoing, choice)
        failures: list[ClientError] = []
        failed_on: set[str] = set()
        while True:
            target = fixed or self._choice.next(route, frozenset(failed_on))
            has_others = (
                fixed is None
                and len(route.brokers) > 1
                and bool(route.masters.keys() - failed_on - {target.broker_name})
            )
            left_s = deadline_s - now_s()
            # With another broker to fall back on, one that hangs must not use up all the time.
            allowed_s = left_s / 2 if has_others and len(failures) < self._retries else left_s
            try:
                answer, address = await self._deliver(route, target, outgoing, allowed_s)
                return read_receipts(answer, messages, target, address)
            except ClientError as error:
                failures.append(error)
                failed_on.add(target.broker_name)
                if not isinstance(error, RequestRefusedError):
                    self._choice.avoid(target.broker_name)
                may_retry = self._may_retry(error, has_others, fixed is not None)
            if not may_retry or len(failures) > self._retries or now_s() >= deadline_s:
                raise _with_history(failures)
            route = await self._route_after(failures[-1], outgoing.topic, route)

    async def _deliver(
        self, route: TopicRoute, target: MessageQueue, outgoing: OutgoingMessage, timeout_s: float
    ) -> tuple[Command, str]:
        address = _master(route, target)
        is_batch = outgoing.is_batch
        answer = await self._session.request(
            address,
            RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2,
            self._header(outgoing, target),
            outgoing.body,
            timeout_s=timeout_s,
            accept=SENT_CODES,
        )
        return answer, address

    def _header(self, outgoing: OutgoingMessage, target: MessageQueue) -> dict[str, str]:
        """The fields of SendMessageRequestV2 (protocol/requests), by their wire letters."""
        return {
            "a": self._group,
            "b": outgoing.topic,
            "c": "TBW102",
            "d": "4",
            "e": str(target.queue_id),
            "f": str(outgoing.sys_flag),
            "g": str(outgoing.born_time_ms),
            "h": str(outgoing.flag),
            "i": outgoing.properties,
            "j": "0",
            "k": "false",
            "m": "true" if outgoing.is_batch else "false",
            "n": target.broker_name,
        }

    async def _route(self, topic: str) -> TopicRoute:
        self._session.check_open()
        route = self._session.routes.known(topic)
        if route is None:
            route = await self._session.routes.route(topic, for_sending=True)
        if not route.write_queues:
            raise RouteNotFoundError(
                f"the topic {topic!r} has no queue that can be written now",
                address=str(self._session.name_services),
                remedy="its brokers are down, slaves only, or its permissions are read-only",
            )
        return route

    async def _route_after(self, error: ClientError, topic: str, route: TopicRoute) -> TopicRoute:
        """Return the route to try again with: a fresh one if the broker does not have the topic."""
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            self._session.routes.forget(topic)
            return await self._route(topic)
        return route

    def _target(
        self, route: TopicRoute, outgoing: OutgoingMessage, choice: MessageQueue | int | None
    ) -> MessageQueue | None:
        if choice is not None:
            return chosen_queue(route, choice)
        if outgoing.sharding_key is not None:
            return queue_for_key(route, outgoing.sharding_key)
        return None

    def _may_retry(self, error: ClientError, has_others: bool, is_fixed: bool) -> bool:
        if isinstance(error, RequestRefusedError):
            if error.code == ResponseCode.GO_AWAY:
                return True  # nothing was stored, and the next try connects anew
            return error.is_retriable and has_others
        if is_fixed:
            return False  # it may be stored already, and the order of its queue matters
        return isinstance(error, BrokerUnreachableError | RequestTimeoutError)


def _as_message(
    message: Message | str,
    body: bytes | str,
    tags: str | None,
    keys: Iterable[str],
    properties: Mapping[str, str] | None,
) -> Message:
    if isinstance(message, Message):
        if body or tags or properties or keys:
            raise MessageRejectedError(
                "a Message has its own body, tags, keys and properties: pass those to Message(...)"
            )
        return message
    if isinstance(body, str):
        body = body.encode()
    return Message(message, body, tags=tags, keys=list(keys), properties=dict(properties or {}))


def _master(route: TopicRoute, queue: MessageQueue) -> str:
    address = route.master(queue.broker_name)
    assert address is not None  # queues of brokers without a master are not in write_queues
    return address


def _with_history(failures: list[ClientError]) -> ClientError:
    last = failures[-1]
    for earlier in failures[:-1]:
        last.add_note(f"tried before: {earlier}")
    return last
