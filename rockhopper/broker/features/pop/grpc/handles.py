"""Receipt handles: the messages in flight, and the renewal of those that a client delegates.

A push consumer may need any time for a message. It requests messages with auto_renew. While its
session lasts, the broker keeps extending their invisible time: first by one minute, later by more,
three hours in total. A client's request for such a message applies to its current handle. When the
client leaves, its messages become visible after one second.

After a restart of the broker, messages that were received before are not renewed: each becomes
visible once more.

    0 s      a consumer receives a message: invisible until 60 s
    50 s     the first renewal extends that to 110 s, by a new handle
    70 s     the consumer acknowledges with the old handle; the broker applies the new one
"""

import heapq
from collections.abc import Callable, Sequence
from itertools import count

import structlog

from rockhopper.broker.features.pop.extra_info import ORDERLY_REVIVE_QUEUE, ExtraInfo, real_topic
from rockhopper.broker.features.pop.lanes import Lane
from rockhopper.broker.features.pop.service import PopService
from rockhopper.broker.gateways.grpc.sessions import ClientSession
from rockhopper.broker.gateways.grpc.statuses import GrpcStatusError
from rockhopper.broker.server.loop.wall_waits import WallTimer
from rockhopper.broker.users.errors import Refusal
from rockhopper.broker.users.peer import Peer
from rockhopper.protocol.grpc_v2.codes import Code
from rockhopper.protocol.grpc_v2.receipt_handle import ReceiptHandle, parse_receipt_handle

log = structlog.get_logger("broker.grpc")

RENEWED_INVISIBLE_MS = 60_000
"""The first invisible time of a message that is renewed."""
RENEWED_BEFORE_MS = 10_000
_STEPS_MS = tuple(minutes * 60_000 for minutes in (1, 3, 5, 10, 30, 60))
RENEWED_FOR_MS_MAX = 3 * 3_600_000
GIVEN_UP_INVISIBLE_MS = 10_000
ABANDONED_INVISIBLE_MS = 1_000
_RENEWALS_PER_TURN = 500

# Group, topic that it was popped from, queue id, queue offset.
_Key = tuple[str, str, int, int]


class HeldMessage:
    """A message that a group has received, with its current handle."""

    __slots__ = ("group", "handle", "topic")

    def __init__(self, group: str, topic: str, handle: ReceiptHandle) -> None:
        self.group = group
        self.topic = topic
        """The topic that it was popped from, which may be a retry topic."""
        self.handle = handle

    @property
    def key(self) -> _Key:
        """Identifies the message, whatever its handle."""
        return self.group, self.topic, self.handle.queue_id, self.handle.queue_offset

    def info(self) -> ExtraInfo:
        """Return the handle's fields for the pop service."""
        return ExtraInfo(*self.handle[:5])


class _Renewed(HeldMessage):
    """A received message that is renewed."""

    __slots__ = ("first_pop_ms", "is_done", "times")

    def __init__(self, received: HeldMessage) -> None:
        super().__init__(received.group, received.topic, received.handle)
        self.first_pop_ms = received.handle.pop_ms
        self.times = 0
        self.is_done = False


class Handles:
    """All handles of one broker. Belongs to the event loop."""

    def __init__(self, pop: PopService, broker_name: str, now_ms: Callable[[], int]) -> None:
        self._pop = pop
        self._broker_name = broker_name
        self._now_ms = now_ms
        self._timer = WallTimer(now_ms)
        self._renewed: dict[_Key, _Renewed] = {}
        self._of_session: dict[Peer, dict[_Key, _Renewed]] = {}
        self._due: list[tuple[int, int, _Renewed]] = []
        self._sequence = count()

    def __len__(self) -> int:
        return len(self._renewed)

    def renew(self, session: ClientSession, received: HeldMessage) -> None:
        """Renew *received* until the session ends or the client settles it."""
        mine = self._of_session.get(session)
        if mine is None:
            mine = self._of_session[session] = {}
            session.on_close.append(self._session_closed)
        self._forget(received.key)
        renewed = self._renewed[received.key] = mine[received.key] = _Renewed(received)
        self._schedule(renewed)

    def settle(
        self, text: str, group: str, topic: str, *, may_be_late: bool = False
    ) -> HeldMessage:
        """Return the message that a client's handle means, with its current handle.

        Raises:
            GrpcStatusError: the handle is invalid, or the message is visible again or about to be.
        """
        try:
            handle = parse_receipt_handle(text)
        except ValueError as error:
            raise GrpcStatusError(Code.INVALID_RECEIPT_HANDLE, str(error)) from None
        if handle.broker_name != self._broker_name:
            raise GrpcStatusError(
                Code.BAD_REQUEST,
                f"the handle belongs to broker {handle.broker_name}, and this is "
                f"{self._broker_name}",
            )
        meant = HeldMessage(group, real_topic(group, topic, handle.retry_flag), handle)
        # Most consumers renew nothing.
        renewed = self._renewed.get(meant.key) if self._renewed else None
        if renewed is not None and renewed.first_pop_ms == handle.pop_ms:
            meant = renewed
        if meant.handle.visible_ms <= self._now_ms() and not may_be_late:
            raise GrpcStatusError(
                Code.INVALID_RECEIPT_HANDLE,
                "the handle has expired: the message is redelivered",
            )
        return meant

    def change(
        self, meant: HeldMessage, invisible_ms: int, *, suspend: bool = False
    ) -> ReceiptHandle | None:
        """Make the message visible after *invisible_ms*; return its new handle, None if it is gone.

        It is no longer renewed. PopService.change_invisible explains *suspend*.

        Raises OSError: nothing is changed.
        """
        handle = self._change(meant, invisible_ms, suspend=suspend)
        self._stop_renewing(meant)
        return handle

    def _change(
        self, meant: HeldMessage, invisible_ms: int, *, suspend: bool = False
    ) -> ReceiptHandle | None:
        handle = meant.handle
        changed = self._pop.change_invisible(
            meant.group,
            meant.topic,
            handle.queue_id,
            handle.queue_offset,
            meant.info(),
            invisible_ms,
            suspend=suspend,
        )
        if changed is None:
            return None
        return handle._replace(pop_ms=changed[0], invisible_ms=changed[1])

    def ack(self, meant: Sequence[HeldMessage]) -> list[Exception | None]:
        """Acknowledge messages, with one write; return why each cannot be, or None.

        A Refusal: the group has received nothing, or not this, from the queue. An OSError: nothing
        is acknowledged, and messages that are renewed still are, as the client will try again.
        """
        errors: list[Exception | None] = [None] * len(meant)
        together: list[tuple[Lane, int, ExtraInfo]] = []
        numbers: list[int] = []
        for number, each in enumerate(meant):
            handle = each.handle
            lane = self._pop.lanes.get(each.group, each.topic, handle.queue_id)
            if lane is None:
                errors[number] = GrpcStatusError(
                    Code.INVALID_RECEIPT_HANDLE,
                    f"the group {each.group} has received no message of queue {handle.queue_id} "
                    f"of {each.topic}",
                )
            elif handle.revive_queue_id == ORDERLY_REVIVE_QUEUE:
                errors[number] = self._ack_in_order(each)
            else:
                together.append((lane, handle.queue_offset, each.info()))
                numbers.append(number)
        try:
            self._pop.ack_together(together)
        except Exception as error:
            for number in numbers:
                errors[number] = error
        for each, failure in zip(meant, errors, strict=True):
            if failure is None or isinstance(failure, Refusal | GrpcStatusError):
                self._stop_renewing(each)
        return errors

    def _ack_in_order(self, meant: HeldMessage) -> Exception | None:
        handle = meant.handle
        try:
            self._pop.ack(
                meant.group, meant.topic, handle.queue_id, [handle.queue_offset], meant.info()
            )
        except Exception as error:
            return error
        return None

    def stop(self) -> None:
        """Stop all renewals."""
        self._timer.cancel()
        self._renewed.clear()
        self._of_session.clear()
        self._due.clear()

    def _stop_renewing(self, message: HeldMessage) -> None:
        # Most consumers renew nothing.
        if isinstance(message, _Renewed) and not message.is_done:
            self._forget(message.key)

    def _forget(self, key: _Key) -> None:
        renewed = self._renewed.pop(key, None)
        if renewed is not None:
            renewed.is_done = True
            for mine in self._of_session.values():
                if mine.get(key) is renewed:
                    del mine[key]
                    break

    def _schedule(self, renewed: _Renewed) -> None:
        due_ms = renewed.handle.visible_ms - RENEWED_BEFORE_MS
        if len(self._due) > 2 * len(self._renewed) + 1024:
            self._due = [item for item in self._due if not item[2].is_done]
            heapq.heapify(self._due)
        heapq.heappush(self._due, (due_ms, next(self._sequence), renewed))
        self._timer.arm(due_ms, self.look)

    def look(self) -> None:
        """Renew the messages that are due."""
        now_ms = self._now_ms()
        for _ in range(_RENEWALS_PER_TURN):
            if not self._due or self._due[0][0] > now_ms:
                break
            renewed = heapq.heappop(self._due)[2]
            if not renewed.is_done:
                self._renew(renewed, now_ms)
        if self._due:
            self._timer.arm(self._due[0][0], self.look)

    def _renew(self, renewed: _Renewed, now_ms: int) -> None:
        is_too_long = now_ms - renewed.first_pop_ms >= RENEWED_FOR_MS_MAX
        step_ms = _STEPS_MS[min(renewed.times, len(_STEPS_MS) - 1)]
        try:
            handle = self._change(renewed, GIVEN_UP_INVISIBLE_MS if is_too_long else step_ms)
        except OSError as error:
            log.error(
                "the invisible time of a message cannot be renewed",
                group=renewed.group,
                reason=str(error),
            )
            handle = None
        if handle is None or is_too_long:
            self._forget(renewed.key)
            return
        renewed.handle = handle
        renewed.times += 1
        self._schedule(renewed)

    def _session_closed(self, session: Peer) -> None:
        for renewed in self._of_session.pop(session, {}).values():
            renewed.is_done = True
            self._renewed.pop(renewed.key, None)
            try:
                handle = self._change(renewed, ABANDONED_INVISIBLE_MS)
                # An acknowledgement that came before may still be owed.
                renewed.handle = handle or renewed.handle
            except OSError as error:
                log.error(
                    "a message will be redelivered late", group=renewed.group, reason=str(error)
                )
