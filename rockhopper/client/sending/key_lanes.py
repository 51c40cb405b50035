"""Turns for sends that must keep their order: one at a time for each sharding key, in call order.

When a send fails for good, those of its key that wait behind it fail too: none of them may
overtake it, and the application sends them again in the order it wants. A send that is cancelled
gives its turn to the next. How long a turn may take is bounded by its send, whose time begins with
the turn.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from rockhopper.client.errors import ClientError, EarlierSendFailedError

Lane = tuple[str, str]
"""A topic and a sharding key."""

# What a waiting send gets: its turn (None), or why there will be none.
_Turn = asyncio.Future[ClientError | None]


class KeyLanes:
    """The lanes of one producer; a lane exists while a send is under way in it."""

    def __init__(self) -> None:
        self._waiting: dict[Lane, deque[_Turn]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @asynccontextmanager
    async def turn(self, lane: Lane) -> AsyncGenerator[None]:
        """Hold the turn of a lane. Raises EarlierSendFailedError."""
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
                self._pass_on(lane)  # the turn had come just before
            raise
        if refusal is not None:
            raise refusal

    def _pass_on(self, lane: Lane) -> None:
        waiting = self._waiting[lane]
        while waiting:
            turn = waiting.popleft()
            if not turn.done():  # else cancelled while it waited
                turn.set_result(None)
                return
        del self._waiting[lane]


def _refuse(lane: Lane, waiting: deque[_Turn], error: ClientError) -> None:
    for turn in waiting:
        if not turn.done():
            turn.set_result(
                EarlierSendFailedError(
                    f"an earlier message of the sharding key {lane[1]!r} for {lane[0]!r} failed, "
                    f"and this one must not overtake it ({error})",
                    remedy="send both again, in order",
                )
            )
    waiting.clear()
