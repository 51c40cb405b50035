"""Keeps the order of sends: one at a time for each sharding key, in the order of the calls.

If a send finally fails, the waiting sends of its key fail too: none may overtake it, and the
application sends them again in the right order. Example: message 1 of a key is being sent while 2
and 3 wait. If 1 is stored, 2 is sent next; if 1 fails, 2 and 3 raise EarlierSendFailedError. A
cancelled send passes its turn to the next. A turn lasts no longer than its send, whose timeout
begins with the turn.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from rockhopper.client.errors import ClientError, EarlierSendFailedError

Lane = tuple[str, str]
"""A topic and a sharding key."""

# The result for a waiting send: None when its turn begins, or the error if it gets none.
_Turn = asyncio.Future[ClientError | None]


class KeyLanes:
    """The lanes of one producer; a lane exists while it has a send in progress."""

    def __init__(self) -> None:
        self._waiting: dict[Lane, deque[_Turn]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @asynccontextmanager
    async def turn(self, lane: Lane) -> AsyncGenerator[None]:
        """Wait for the turn in a lane and hold it. Raises EarlierSendFailedError."""
        if lane in self._waiting:
            await self._wait(lane)
        else:
            self._waiting[lane] = deque()
        try:
            yield
        except ClientError as error:
            _refuse(lane, self._waiting[lane], error)
            raise
        finally:
            self._pass_on(lane)

    async def _wait(self, lane: Lane) -> None:
        turn: _Turn = asyncio.get_running_loop().create_future()
        self._waiting[lane].append(turn)
        try:
            refusal = await turn
        except asyncio.CancelledError:
            if not turn.cancelled() and turn.result() is None:
                self._pass_on(lane)  # the turn had just begun
            raise
        if refusal is not None:
            raise refusal

    def _pass_on(self, lane: Lane) -> None:
        waiting = self._waiting[lane]
        while waiting:
            turn = waiting.popleft()
            if not turn.done():  # else it was cancelled while waiting
                turn.set_result(None)
                return
        del self._waiting[lane]


def _refuse(lane: Lane, waiting: deque[_Turn], error: ClientError) -> None:
    for turn in waiting:
        if not turn.done():
            turn.set_result(
                EarlierSendFailedError(
                    f"an earlier message with sharding key {lane[1]!r} for {lane[0]!r} failed, "
                    f"and this one must not overtake it ({error})",
                    remedy="send both again, in order",
                )
            )
    waiting.clear()
