"""Sends messages to brokers: chooses the queue, retries, and returns the receipts.

A message without a sharding key is retried on another broker. One with a sharding key is retried
only on its own queue, and blocks later messages of its key until its outcome is known (see
key_lanes). tries.py decides when to retry. If a broker has lost its master, the sender waits and
refreshes the topic's route until another replica is the leader.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from rockhopper.client.errors import (
    BrokerUnreachableError,
    ClientError,
    RequestRefusedError,
    RequestTimeoutError,
    RouteNotFoundError,
    may_have_moved,
)
from rockhopper.client.network.routing import TopicRoute
from rockhopper.client.network.session import Session
from rockhopper.client.queues import MessageQueue
from rockhopper.client.receipts import SENT_CODES, SendReceipt, read_receipts
from rockhopper.client.sending.key_lanes import KeyLanes, Lane
from rockhopper.client.sending.outgoing import OutgoingMessage
from rockhopper.client.sending.queue_choice import QueueChoice, choose_queue, choose_queue_for_key
from rockhopper.client.sending.send_headers import SendHeaders, send_code, send_fields
from rockhopper.client.sending.stalls import StallMeter
from rockhopper.client.sending.tries import Tries
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command

IN_FLIGHT_MAX = 1024
"""The maximum of concurrent sends of a group, a batch counting as one; others wait in line."""

_NO_BROKERS: frozenset[str] = frozenset()

# Called after a successful send: the messages, their receipts, the broker's answer and address, and
# the start of the send (the loop's clock).
SentObserver = Callable[
    [Sequence[OutgoingMessage], Sequence[SendReceipt], Command, str, float], None
]


Prepare = Callable[[], Awaitable[tuple[OutgoingMessage, Sequence[OutgoingMessage]]]]
"""Prepares a message, or a batch and its parts."""


class GroupSender:
    """Sends the prepared messages of one producer group."""

    def __init__(self, session: Session, group: str, *, timeout_s: float, retries: int) -> None:
        self.group = group
        self.on_sent: SentObserver | None = None
        self.session = session
        self._timeout_s = timeout_s
        self._retries = retries
        self._choice = QueueChoice(time.monotonic)
        self._headers = SendHeaders(group)
        self.lanes = KeyLanes()
        self._in_flight = 0
        self._line: deque[asyncio.Future[None]] = deque()

    def send(
        self,
        outgoing: OutgoingMessage,
        messages: Sequence[OutgoingMessage],
        choice: MessageQueue | int | None = None,
        timeout_s: float | None = None,
        began_s: float | None = None,
    ) -> Awaitable[list[SendReceipt]]:
        """Send `outgoing`, a message or the batch of `messages`; return one receipt per message.

        If it has a sharding key, its turn must have begun. `began_s` is when the timeout began, if
        not now.
        """
        allowed_s = self._timeout_s if timeout_s is None else timeout_s
        return self._send(outgoing, messages, choice, allowed_s, began_s)

    async def send_in_turn(
        self,
        lane: Lane | None,
        prepare: Prepare,
        choice: MessageQueue | int | None = None,
        timeout_s: float | None = None,
    ) -> list[SendReceipt]:
        """Send what `prepare` returns, after those that lined up before; None has no order."""
        self.session.check_open()
        if lane is None:
            return await self.send(*await prepare(), choice, timeout_s)
        async with self.lanes.line_up(lane) as turn:
            whole, parts = await prepare()
            await turn.wait()
            return await self.send(whole, parts, choice, timeout_s)

    async def send_oneway(
        self, lane: Lane | None, prepare: Prepare, choice: MessageQueue | int | None = None
    ) -> None:
        """Send a message without an answer, after those that lined up before."""
        self.session.check_open()
        if lane is None:
            await self._send_oneway((await prepare())[0], choice)
            return
        async with self.lanes.line_up(lane) as turn:
            outgoing, _ = await prepare()
            await turn.wait()
            try:
                async with asyncio.timeout(self._timeout_s):
                    await self._send_oneway(outgoing, choice)
            except TimeoutError:
                raise RequestTimeoutError(
                    RequestCode.SEND_MESSAGE_V2, f"a broker of {outgoing.topic!r}", self._timeout_s
                ) from None

    async def route(self, topic: str) -> TopicRoute:
        """Return a route with writable queues. Raises RouteNotFoundError."""
        self.session.check_open()
        route = self.session.routes.known(topic)
        if route is None or not route.write_queues:
            route = await self.session.routes.route(topic, for_sending=True)
        if not route.write_queues:
            raise RouteNotFoundError(
                f"topic {topic!r} has no writable queue now",
                address=str(self.session.name_services),
                remedy="its brokers are down, slaves only, or its permissions are read-only",
            )
        return route

    async def _send_oneway(
        self, outgoing: OutgoingMessage, choice: MessageQueue | int | None
    ) -> None:
        route = await self.route(outgoing.topic)
        target = _choose_target(route, outgoing, choice) or self._choice.next(route)
        await self.session.send_oneway(
            self._master(route, target),
            RequestCode.SEND_MESSAGE_V2,
            send_fields(self.group, outgoing, target),
            outgoing.body,
        )

    async def _send(
        self,
        outgoing: OutgoingMessage,
        messages: Sequence[OutgoingMessage],
        choice: MessageQueue | int | None,
        allowed_s: float,
        began_s: float | None = None,
    ) -> list[SendReceipt]:
        loop = self.session.pool.loop
        started_s = loop.time() if began_s is None else began_s
        if self._in_flight >= IN_FLIGHT_MAX or self._line:
            # The timeout begins when the message may be sent.
            came_s = loop.time()
            await self._take_turn()
            started_s += loop.time() - came_s
        else:
            self._in_flight += 1
        try:
            deadline_s = started_s + allowed_s
            route = self.session.routes.known(outgoing.topic)
            if route is None or not route.write_queues:
                stalls = StallMeter(loop)
                try:
                    route = await self._route(outgoing.topic)
                finally:
                    deadline_s += stalls.stop()
            tries: Tries | None = None
            failed_on = _NO_BROKERS
            while True:
                is_free = choice is None and outgoing.sharding_key is None
                fixed = None if is_free else _choose_target(route, outgoing, choice)
                target = fixed or self._choice.next(route, failed_on)
                has_others = (
                    fixed is None
                    and len(route.brokers) > 1
                    and not route.masters.keys() <= failed_on | {target.broker_name}
                )
                left_s = deadline_s - loop.time()
                if left_s <= 0:  # finding the route used up the time
                    raise (tries and tries.outcome()) or RequestTimeoutError(
                        send_code(outgoing), self._master(route, target), allowed_s
                    )
                # If another broker is left to try, one that hangs must not use up all the time.
                try_s = left_s / 2 if has_others and len(failed_on) < self._retries else left_s
                try:
                    address = route.master(target.broker_name) or self._master(route, target)
                    answer = await self.session.request_json(
                        address,
                        send_code(outgoing),
                        self._headers.encode_start(outgoing, target),
                        outgoing.body,
                        try_s,
                    )
                    if answer.code not in SENT_CODES:
                        raise self.session.refusal(address, send_code(outgoing), answer)
                    receipts = read_receipts(answer, messages, target, address)
                    if self.on_sent is not None:
                        self.on_sent(messages, receipts, answer, address, started_s)
                    return receipts
                except ClientError as error:
                    tries = tries or Tries(outgoing, self._retries, is_bound=choice is not None)
                    tries.failed(error, target.broker_name)
                    if not isinstance(error, RequestRefusedError):
                        self._choice.avoid(target.broker_name)
                    pause_s = tries.pause_s(has_others=has_others)
                    if pause_s is None:
                        moved = await self._moved(error, route)
                        if moved is None:
                            raise tries.outcome() from None
                        route = moved
                        continue
                    failed_on = tries.failed_on
                    pause_s = min(pause_s, deadline_s - loop.time())
                    route = await self._route_after(error, route, pause_s)
        finally:
            self._leave()

    async def _take_turn(self) -> None:
        turn: asyncio.Future[None] = self.session.pool.loop.create_future()
        self._line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._leave()
            raise

    def _leave(self) -> None:
        """Let the next waiting send start in place of this one."""
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._in_flight -= 1

    async def _route(self, topic: str) -> TopicRoute:
        """Return a route with queues that are writable now, or once their broker has a master."""
        self.session.check_open()
        routes = self.session.routes
        known = routes.known(topic)
        if known is not None and not known.write_queues and not known.masterless_queues:
            await routes.renew(topic)
        route = await routes.route(topic, for_sending=True)
        return route if route.masterless_queues else await self.route(topic)

    async def _moved(self, error: ClientError, route: TopicRoute) -> TopicRoute | None:
        """Return the topic's new route if the broker no longer has the topic."""
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            return None
        renewed = await self.session.routes.renew(route.topic)
        is_new = renewed is not None and renewed != route and bool(renewed.write_queues)
        return renewed if is_new else None

    async def _route_after(
        self, error: ClientError, route: TopicRoute, pause_s: float
    ) -> TopicRoute:
        """Return the route for the next try, after a pause.

        If the broker does not have the topic or the queue, the route is refreshed. If the broker
        may no longer be the leader, a change of the route ends the pause.
        """
        routes = self.session.routes
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            routes.forget(route.topic)
            return await self.route(route.topic)
        if isinstance(error, RequestRefusedError) and error.is_queue_unknown:
            await asyncio.sleep(pause_s)
            await routes.renew(route.topic)
            return await self._route(route.topic)
        if pause_s > 0:
            if may_have_moved(error):
                return await routes.changed(route, pause_s)
            await asyncio.sleep(pause_s)
        return routes.known(route.topic) or route

    def _master(self, route: TopicRoute, queue: MessageQueue) -> str:
        address = route.master(queue.broker_name)
        if address is None:
            raise BrokerUnreachableError(
                f"{queue} cannot be written: the routes of {self.session.name_services} name no "
                f"master of broker {queue.broker_name!r}",
                remedy=(
                    "a replica is about to lead, or all replicas are down, or too few for an "
                    "election"
                ),
            )
        return address


def _choose_target(
    route: TopicRoute, outgoing: OutgoingMessage, choice: MessageQueue | int | None
) -> MessageQueue | None:
    if choice is not None:
        return choose_queue(route, choice)
    if outgoing.sharding_key is not None:
        return choose_queue_for_key(route, outgoing.sharding_key)
    return None
