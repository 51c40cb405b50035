"""Keeps the order of sends: one at a time for each sharding key, in the order of the calls.

A send lines up when it is called, and waits for its turn when its message is ready to be sent. If a
send finally fails, the waiting sends of its key fail too: none may overtake it, and the application
sends them again in the right order. Example: message 1 of a key is being sent while 2 and 3 wait.
If 1 is stored, 2 is sent next; if 1 fails, 2 and 3 raise EarlierSendFailedError. A cancelled send
passes its turn to the next. A turn lasts no longer than its send, whose timeout begins with the
turn. Bodies for a chosen queue are compressed in the same way, in lanes of topic and queue.
"""

import asyncio
from collections import deque
from types import TracebackType
from typing import Self, TypeGuard

from rockhopper.client.errors import ClientError, EarlierSendFailedError, MessageRejectedError
from rockhopper.protocol.message import Message

Lane = tuple[str, object]
"""A topic, and a sharding key or a queue."""

# The result for a waiting send: None when its turn begins, or the error if it gets none.
_Place = asyncio.Future[ClientError | None]


class Turn:
    """A place in the line of a lane, until the end of an `async with`, or `leave`."""

    def __init__(self, lanes: "KeyLanes", lane: Lane, place: _Place | None) -> None:
        """Without a *place* nobody is before it."""
        self._lanes = lanes
        self.lane = lane
        self._place = place
        self._has_begun = self._has_left = False

    async def __aenter__(self) -> Self:
        """Do nothing: the place is taken already."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave; after a failure in the turn, refuse those that wait."""
        if self._has_begun and is_failure(error):
            self.fail(error)
        self.leave()

    async def wait(self) -> None:
        """Wait for the turn. Raises EarlierSendFailedError."""
        if self._place is not None and (refusal := await self._place) is not None:
            raise refusal
        self._has_begun = True

    def fail(self, error: ClientError) -> None:
        """Refuse the sends that wait in the lane; the turn must have begun."""
        self._lanes.refuse(self.lane, error)

    def leave(self) -> None:
        """Give the turn to the next send, or leave the line; a second call does nothing."""
        if self._has_left:
            return
        self._has_left = True
        place = self._place
        if place is not None and not place.done():
            place.cancel()
        elif place is None or not (place.cancelled() or place.result()):
            self._lanes.pass_on(self.lane)


class KeyLanes:
    """The lanes of one producer; a lane exists while it has a send in progress."""

    def __init__(self) -> None:
        self._waiting: dict[Lane, deque[_Place]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def line_up(self, lane: Lane) -> Turn:
        """Take the next place in a lane; the caller must leave it."""
        waiting = self._waiting.get(lane)
        if waiting is None:
            self._waiting[lane] = deque()
            return Turn(self, lane, None)
        place: _Place = asyncio.get_running_loop().create_future()
        waiting.append(place)
        return Turn(self, lane, place)

    def pass_on(self, lane: Lane) -> None:
        """Begin the next turn of a lane."""
        waiting = self._waiting[lane]
        while waiting:
            place = waiting.popleft()
            if not place.done():  # else it was cancelled while waiting
                place.set_result(None)
                return
        del self._waiting[lane]

    def refuse(self, lane: Lane, error: ClientError) -> None:
        """Refuse the sends that wait in a lane, because the one before them failed."""
        waiting = self._waiting[lane]
        for place in waiting:
            if not place.done():
                place.set_result(make_refusal(lane, error))
        waiting.clear()


def find_lane(message: Message) -> Lane | None:
    """Return the lane of a message; None without a sharding key."""
    key = message.sharding_key
    return None if key is None else (message.topic, key)


def is_failure(error: object) -> TypeGuard[ClientError]:
    """Whether later sends of a lane must not overtake what ended so.

    A message that breaks a rule was not sent.
    """
    return isinstance(error, ClientError) and not isinstance(error, MessageRejectedError)


def make_refusal(lane: Lane, error: ClientError) -> EarlierSendFailedError:
    """Return the error of a send whose predecessor failed."""
    return EarlierSendFailedError(
        f"an earlier message with sharding key {lane[1]!r} for {lane[0]!r} failed, "
        f"and this one must not overtake it ({error})",
        remedy="send both again, in order",
    )
