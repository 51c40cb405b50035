"""InFlightRequests: the requests of a connection that have no answer yet.

The answer goes to an AnswerWaiter: most often a future, whose task continues in the next iteration
of the event loop. Another one handles the answer at once.

Times are those of the event loop's clock. The peer is *silent* from the first request after the
last received data. A request that times out shows a broken connection only if nothing was received
since it was sent: otherwise the peer lives, and only this answer is late.
"""

from collections.abc import Callable
from itertools import islice
from typing import Protocol

from rockhopper.client.errors import ClientError, RequestTimeoutError
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.command import Command

SILENCE_NOTED_S = 1.0
# Long polls: a broker may delay their answers for as long as requested.
_HELD_CODES = frozenset({int(RequestCode.PULL_MESSAGE), int(RequestCode.LITE_PULL_MESSAGE)})


class AnswerWaiter(Protocol):
    """Gets an answer or an error, unless it is done: it was cancelled. A future is one."""

    def done(self) -> bool:
        """Return whether it needs no answer any more."""

    def set_result(self, result: Command, /) -> None:
        """Handle the answer. Must not raise."""

    def set_exception(self, exception: BaseException, /) -> None:
        """Handle the error. Must not raise."""


InFlightRequest = tuple[AnswerWaiter, float, int, float]
"""The waiter for the answer, the deadline, the request code and the timeout in seconds."""


class InFlightRequests(dict[int, InFlightRequest]):
    """The requests in flight by opaque, in the order in which they were sent."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address
        self.silent_since_s: float | None = None
        """When a request was sent that nothing was received after; None if there is none."""

    @property
    def next_deadline_s(self) -> float:
        """The earliest deadline of all requests; there must be one."""
        return min(deadline_s for _, deadline_s, _, _ in self.values())

    def has_waited(self, now_s: float) -> bool:
        """Whether a request other than a long poll has waited for its answer for a second."""
        for _, deadline_s, code, timeout_s in self.values():
            if code not in _HELD_CODES:  # these are in the order in which they were sent
                return now_s - (deadline_s - timeout_s) >= SILENCE_NOTED_S
        return False

    def expire(self, now_s: float) -> bool:
        """End the requests that are overdue; return whether nothing came since one was sent."""
        heard_nothing = False
        silent_since_s = self.silent_since_s
        for opaque in [opaque for opaque, entry in self.items() if entry[1] <= now_s]:
            waiter, deadline_s, code, timeout_s = self.pop(opaque)
            if silent_since_s is not None and silent_since_s <= deadline_s - timeout_s:
                is_long = now_s - silent_since_s >= SILENCE_NOTED_S
                heard_nothing |= is_long and code not in _HELD_CODES
            if not waiter.done():
                waiter.set_exception(RequestTimeoutError(code, self._address, timeout_s))
        return heard_nothing

    def extend_newest(self, count: int, waited_s: float, now_s: float) -> None:
        """Extend the newest requests by the time they waited for the event loop."""
        if self.silent_since_s is not None:
            self.silent_since_s = min(self.silent_since_s + waited_s, now_s)
        for opaque in islice(reversed(self), count):
            waiter, deadline_s, code, timeout_s = self[opaque]
            self[opaque] = (waiter, deadline_s + waited_s, code, timeout_s)

    def fail(self, make_error: Callable[[], ClientError]) -> None:
        """End all requests with an error.

        Each waiter gets its own exception: a shared one would collect all their tracebacks.
        """
        waiters = [waiter for waiter, _, _, _ in self.values()]
        self.clear()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(make_error())
