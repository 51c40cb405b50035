"""Sends many messages in batches, with the outcome of each.

Messages of one topic and one sharding key share batches, in their order. A batch is sent like a
message, with the same retries; several are on their way at a time, but those of one key one after
the other. The keys line up when the call is made, so later sends do not overtake it. Example: of
2,500 small messages for `orders` and one delayed, the small ones leave in three batches and the
delayed one alone, without waiting for each other.

A message that no batch may contain is sent alone: one with a delay or a priority, one that is to be
compressed, and one for a retry topic. If a broker refuses a batch as invalid, or a message of it
breaks a rule, its messages are sent one by one, so that only the invalid ones fail.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from rockhopper.client.errors import ClientError, copy_error
from rockhopper.client.queues import MessageQueue
from rockhopper.client.receipts import NotAllSentError, SendReceipt
from rockhopper.client.sending.group_sender import GroupSender
from rockhopper.client.sending.key_lanes import Lane, Turn, find_lane, is_failure, make_refusal
from rockhopper.client.sending.lingering import is_fault
from rockhopper.client.sending.outgoing import OutgoingMessage, OutgoingPolicy
from rockhopper.protocol.message import Message
from rockhopper.protocol.names import is_retry_topic
from rockhopper.tasks import gather_some_at_a_time

COUNT_MAX = 1000
SIZE_BYTES_MAX = 256 * 1024
"""The limits of a batch, as those of Linger."""

_SLICE_COUNT = 4096
# The size of a message in a batch besides its body and own properties, and more.
_OVERHEAD_SIZE_BYTES = 128

_Outcome = SendReceipt | Exception
_Lane = tuple[str, str | None]
_Sent = TypeVar("_Sent")


@dataclass(slots=True)
class _SharedBatch:
    """Messages that are sent together, and their places among all."""

    messages: list[Message] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    size_bytes: int = 0


@dataclass(slots=True)
class _Series:
    """A batch, or all batches of one key, which are sent in their turn."""

    batches: list[_SharedBatch]
    turn: Turn | None

    def fail_from(self, first: int, error: Exception) -> dict[int, _Outcome]:
        """Return this outcome for the messages of batch *first* and of those behind it."""
        places = (place for batch in self.batches[first:] for place in batch.places)
        return {place: copy_error(error) for place in places}


class ManySends:
    """One call of `send_many`."""

    def __init__(
        self,
        policy: OutgoingPolicy,
        sender: GroupSender,
        choice: MessageQueue | int | None,
        timeout_s: float | None,
    ) -> None:
        self._policy = policy
        self._sender = sender
        self._choice = choice
        self._timeout_s = timeout_s
        self._size_bytes_max = min(SIZE_BYTES_MAX, policy.batch_size_bytes_max)

    async def send(self, messages: Sequence[Message]) -> list[SendReceipt]:
        """Return the receipts, in the order of the messages. Raises NotAllSentError."""
        self._sender.session.check_open()
        line_up = self._sender.lanes.line_up
        keyed = [each for each in messages if each.sharding_key is not None]
        turns = {lane: line_up(lane) for lane in dict.fromkeys(map(find_lane, keyed)) if lane}
        try:
            batches = await self._split(messages)
            found = await gather_some_at_a_time(self._send_series, _to_series(batches, turns))
        finally:
            for turn in turns.values():
                turn.leave()
        by_place: dict[int, _Outcome] = {}
        for outcomes in found:
            by_place.update(outcomes)
        in_order = [by_place[place] for place in range(len(messages))]
        receipts = [each for each in in_order if type(each) is SendReceipt]
        if len(receipts) < len(messages):
            raise NotAllSentError(in_order)
        return receipts

    async def _split(self, messages: Sequence[Message]) -> list[_SharedBatch]:
        """Return the batches in the order of their first messages."""
        batches: list[_SharedBatch] = []
        filling: dict[_Lane, _SharedBatch] = {}
        for place, message in enumerate(messages):
            if place % _SLICE_COUNT == _SLICE_COUNT - 1:
                await asyncio.sleep(0)  # a long list must not hold up the event loop
            lane = (message.topic, message.sharding_key)
            size_bytes = _estimate_size(message)
            batch = filling.get(lane)
            goes_alone = self._goes_alone(message, size_bytes)
            if (
                batch is None
                or goes_alone
                or len(batch.places) >= COUNT_MAX
                or batch.size_bytes + size_bytes > self._size_bytes_max
                or batch.messages[0].wait_stored != message.wait_stored
            ):
                batch = _SharedBatch()
                batches.append(batch)
                filling[lane] = batch
            batch.messages.append(message)
            batch.places.append(place)
            batch.size_bytes += size_bytes
            if goes_alone:
                del filling[lane]  # later messages must not join it, nor overtake it
        return batches

    def _goes_alone(self, message: Message, size_bytes: int) -> bool:
        return (
            size_bytes > self._size_bytes_max
            or message.is_delayed
            or message.priority is not None
            or self._policy.may_compress(message.body)
            or is_retry_topic(message.topic)
        )

    async def _send_series(self, series: _Series) -> dict[int, _Outcome]:
        """Return the outcome of each message by its place."""
        if series.turn is None:
            return await self._send_batches(series)
        async with series.turn:
            try:
                await series.turn.wait()
            except ClientError as error:
                return series.fail_from(0, error)
            return await self._send_batches(series)

    async def _send_batches(self, series: _Series) -> dict[int, _Outcome]:
        found: dict[int, _Outcome] = {}
        for number, batch in enumerate(series.batches, 1):
            outcomes = await self._send_batch(batch)
            found.update(zip(batch.places, outcomes, strict=True))
            if series.turn is not None and (error := _find_failure(outcomes)) is not None:
                series.turn.fail(error)
                refusal = make_refusal(series.turn.lane, error)
                return found | series.fail_from(number, refusal)
        return found

    async def _send_batch(self, batch: _SharedBatch) -> Sequence[_Outcome]:
        messages = batch.messages
        if len(messages) == 1:
            return [await self._send_alone(messages[0])]
        try:
            whole, parts = self._policy.prepare_batch(messages)
        except Exception:  # one of the messages breaks a rule
            return await _send_each(self._send_alone, messages, find_lane(messages[0]))
        try:
            return await self._sender.send(whole, parts, self._choice, self._timeout_s)
        except Exception as error:
            if is_fault(error):
                return await _send_each(self._send_part, parts, find_lane(messages[0]))
            return [copy_error(error) for _ in messages]

    async def _send_alone(self, message: Message) -> _Outcome:
        try:
            prepared = await self._policy.prepare_apart(message, self._choice)
        except Exception as error:
            return error
        return await self._send_part(prepared)

    async def _send_part(self, part: OutgoingMessage) -> _Outcome:
        try:
            return (await self._sender.send(part, [part], self._choice, self._timeout_s))[0]
        except Exception as error:
            return error


def _to_series(batches: Iterable[_SharedBatch], turns: Mapping[Lane, Turn]) -> Iterable[_Series]:
    """Join the batches of each key, in the order of their first messages."""
    series: list[_Series] = []
    of_lanes: dict[Lane, _Series] = {}
    for batch in batches:
        lane = find_lane(batch.messages[0])
        if lane in of_lanes:
            of_lanes[lane].batches.append(batch)
            continue
        series.append(_Series([batch], turns[lane] if lane else None))
        if lane:
            of_lanes[lane] = series[-1]
    return series


async def _send_each(
    send: Callable[[_Sent], Awaitable[_Outcome]], items: Sequence[_Sent], lane: Lane | None
) -> list[_Outcome]:
    """Send the messages of a batch by themselves; those of a key in order, up to a failure."""
    if lane is None:
        return list(await asyncio.gather(*map(send, items)))
    outcomes: list[_Outcome] = []
    for each in items:
        outcomes.append(await send(each))
        if (error := _find_failure(outcomes[-1:])) is not None:
            refusal = make_refusal(lane, error)
            return outcomes + [copy_error(refusal) for _ in items[len(outcomes) :]]
    return outcomes


def _find_failure(outcomes: Iterable[_Outcome]) -> ClientError | None:
    return next(filter(is_failure, outcomes), None)


def _estimate_size(message: Message) -> int:
    """Return about how many bytes a message needs in a batch."""
    size_bytes = len(message.body) + _OVERHEAD_SIZE_BYTES
    if not message.is_plain:
        properties = message.wire_properties()
        size_bytes += sum(map(len, properties)) + sum(map(len, properties.values()))
    return size_bytes
