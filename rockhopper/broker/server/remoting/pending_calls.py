"""PendingCalls: the requests sent over one connection that await a response.

The number of a request (opaque) comes back in its response; responses arrive in any order.
"""

import asyncio

from rockhopper.protocol.command import Command


class PendingCalls:
    """The open requests of one side of a connection. Belongs to the event loop."""

    __slots__ = ("_last_opaque", "_responses")

    def __init__(self) -> None:
        self._last_opaque = 0
        self._responses: dict[int, asyncio.Future[Command]] = {}

    def next_opaque(self) -> int:
        """Return the number of a new request; a oneway request needs one too."""
        self._last_opaque += 1
        return self._last_opaque

    def expect(self, opaque: int) -> asyncio.Future[Command]:
        """Return a future of the response to request *opaque*; ``forget`` it afterwards."""
        response: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self._responses[opaque] = response
        return response

    def forget(self, opaque: int) -> None:
        """Wait no more for the response to request *opaque*."""
        self._responses.pop(opaque, None)

    def resolve(self, response: Command) -> None:
        """Pass on a response; ignore a late one."""
        expected = self._responses.pop(response.opaque, None)
        if expected is not None and not expected.done():
            expected.set_result(response)

    def fail(self, reason: str) -> None:
        """Raise ConnectionResetError with *reason* in all calls: the connection is lost."""
        for expected in self._responses.values():
            if not expected.done():
                expected.set_exception(ConnectionResetError(reason))
        self._responses.clear()
