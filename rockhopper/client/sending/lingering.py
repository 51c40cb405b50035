"""Lingering: sends wait briefly for others of their topic and leave together as one batch.

Messages for the same queue, or for any queue of a topic, gather in a lane. The batch leaves when
its time is over, when it is full, or when a message arrives that cannot join it, so a lane keeps
the order of the calls. A batch is sent like a message, with the same retries. If a broker rejects a
batch as invalid, its messages are sent again one by one, so that each has its own outcome: the
fault may be in one message, or in batching itself.

A send cancelled before its batch leaves is not sent. Every lingering message has a waiting caller
and a lane holds one batch, so lingering buffers no more than the callers allow.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from rockhopper.client.errors import RequestRefusedError, copy_error
from rockhopper.client.queues import MessageQueue
from rockhopper.client.receipts import SendReceipt
from rockhopper.client.sending.group_sender import GroupSender
from rockhopper.client.sending.outgoing import OutgoingMessage, OutgoingPolicy, count_utf8_bytes
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.message import Message
from rockhopper.protocol.names import is_retry_topic
from rockhopper.protocol.store.message_codec import BATCHED_SIZE_BYTES, INNER_BATCH_COUNT_MAX
from rockhopper.tasks import run_in_background

# Nothing was stored, and the fault may lie in one message or in batching itself.
_FAULTS = frozenset(
    {int(ResponseCode.MESSAGE_ILLEGAL), int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)}
)

_Choice: TypeAlias = MessageQueue | int | None
_Key: TypeAlias = tuple[str, _Choice]
_Waiting: TypeAlias = list[tuple[OutgoingMessage, asyncio.Future[SendReceipt]]]


@dataclass(frozen=True, slots=True)
class Linger:
    """How long sends wait for others to share a batch, and the size limits of a batch.

    With `wait_s=0` a batch contains the sends of one iteration of the event loop, such as those of
    one asyncio.gather.
    """

    wait_s: float = 0.005
    count_max: int = 1000
    size_bytes_max: int = 256 * 1024

    def __post_init__(self) -> None:
        if self.wait_s < 0:
            raise ValueError(f"wait_s is {self.wait_s}: it must be 0 or above")
        if not 1 <= self.count_max <= INNER_BATCH_COUNT_MAX:
            raise ValueError(
                f"count_max is {self.count_max}: expected 1 to {INNER_BATCH_COUNT_MAX}"
            )
        if self.size_bytes_max < 1:
            raise ValueError(f"size_bytes_max is {self.size_bytes_max}: it must be at least 1")


class _LingeringBatch(msgspec.Struct, eq=False):
    """The messages that linger for one queue, or for any queue of a topic."""

    choice: _Choice
    timeout_s: float
    began_s: float
    timer: asyncio.Handle
    waiting: _Waiting = []
    size_bytes: int = 0

    def accepts(self, timeout_s: float, size_bytes_max: int) -> bool:
        """Whether a message with this timeout may join, if the lane has at most this size."""
        return self.timeout_s == timeout_s and self.size_bytes <= size_bytes_max


class Lingering:
    """The lingering sends of one producer, and their batches in flight."""

    def __init__(
        self, linger: Linger, policy: OutgoingPolicy, sender: GroupSender, timeout_s: float
    ) -> None:
        self._linger = linger
        self._policy = policy
        self._sender = sender
        self._timeout_s = timeout_s
        self._size_bytes_max = min(linger.size_bytes_max, policy.batch_size_bytes_max)
        self._lanes: dict[_Key, _LingeringBatch] = {}
        self._under_way: set[asyncio.Task[None]] = set()

    async def send(
        self, outgoing: OutgoingMessage, choice: _Choice, timeout_s: float | None
    ) -> SendReceipt:
        """Send a message in a batch; if it cannot join one, send it alone after that batch."""
        self._sender.session.check_open()
        topic, allowed_s = outgoing.topic, self._timeout_s if timeout_s is None else timeout_s
        size_bytes = BATCHED_SIZE_BYTES + len(outgoing.body) + count_utf8_bytes(outgoing.properties)
        goes_alone = size_bytes > self._size_bytes_max or outgoing.sys_flag or is_retry_topic(topic)
        key = (topic, choice)
        lane = self._lanes.get(key)
        room_bytes = self._size_bytes_max - size_bytes
        if lane is not None and (goes_alone or not lane.accepts(allowed_s, room_bytes)):
            self._leave(key)
            lane = None
        if goes_alone:
            await asyncio.sleep(0)  # first write the earlier batches
            return (await self._sender.send(outgoing, [outgoing], choice, allowed_s))[0]
        loop = self._sender.session.pool.loop
        if lane is None:
            timer = loop.call_later(self._longest_wait_s(allowed_s), self._leave, key)
            lane = self._lanes[key] = _LingeringBatch(choice, allowed_s, loop.time(), timer)
        outcome: asyncio.Future[SendReceipt] = loop.create_future()
        lane.waiting.append((outgoing, outcome))
        lane.size_bytes += size_bytes
        if len(lane.waiting) >= self._linger.count_max:
            self._leave(key)
        return await outcome

    def _longest_wait_s(self, timeout_s: float) -> float:
        """Return how long a message with this timeout lingers."""
        return min(self._linger.wait_s, timeout_s / 2)

    async def close(self) -> None:
        """Send all batches and wait for their outcomes."""
        for key in list(self._lanes):
            self._leave(key)
        if self._under_way:
            await asyncio.wait(self._under_way)

    def _leave(self, key: _Key) -> None:
        lane = self._lanes.pop(key)
        lane.timer.cancel()
        task = run_in_background(self._deliver(lane, lane.waiting), "sending a batch")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _deliver(self, lane: _LingeringBatch, waiting: _Waiting) -> None:
        waiting = [each for each in waiting if not each[1].done()]  # without cancelled sends
        if not waiting:
            return
        messages = [message for message, _ in waiting]
        try:
            outgoing = messages[0] if len(messages) == 1 else self._policy.join(messages)
            # Time in which the event loop was busy does not count.
            now_s = self._sender.session.pool.loop.time()
            began_s = max(lane.began_s, now_s - self._longest_wait_s(lane.timeout_s))
            receipts = await self._sender.send(
                outgoing, messages, lane.choice, lane.timeout_s, began_s
            )
            _finish(waiting, receipts)
        except Exception as error:
            if is_fault(error) and len(waiting) > 1:
                await asyncio.gather(*(self._deliver(lane, [each]) for each in waiting))
            else:
                _fail(waiting, error)
        finally:
            for _, outcome in waiting:
                outcome.cancel()  # ends the waiting if this task is cancelled


def is_fault(error: Exception) -> bool:
    """Whether a broker refused the content of a message."""
    return isinstance(error, RequestRefusedError) and error.code in _FAULTS


def _finish(waiting: _Waiting, receipts: Sequence[SendReceipt]) -> None:
    for (_, outcome), receipt in zip(waiting, receipts, strict=True):
        if not outcome.done():
            outcome.set_result(receipt)


def _fail(waiting: _Waiting, error: Exception) -> None:
    for _, outcome in waiting:
        if not outcome.done():
            outcome.set_exception(copy_error(error))


def must_go_ahead(message: Message) -> bool:
    """Whether a message must not linger: it has its own queue, delivery time or durability."""
    return (
        message.sharding_key is not None
        or message.priority is not None
        or message.is_delayed
        or not message.wait_stored
    )
