"""LeaseGate: hold responses that promise state until no other broker can lead the set.

Responses that depend only on the log need no gate: a send is acknowledged when every in-sync
replica has its message. But offsets, acknowledgements and locks are applied at once, and replicated
a moment later. A master that was cut off, or suspended, would keep promising them while another one
leads:

    a commit arrives, the gate is open   answered at once
    the master is cut off                changes are not confirmed: their responses are held
    they are confirmed after all         the responses are sent
    slaveTimeout passes, or it resigns   they are sent as FLUSH_SLAVE_TIMEOUT: the client retries

The gate is checked when a response is written, not when its request is served: the process may be
suspended in between. A broker outside any set has no gate.
"""

from collections.abc import Callable

from rockhopper.broker.store.files.errors import NotReplicatedError, StoreError
from rockhopper.broker.store.flush import ParkedAnswers, Release


class LeaseGate:
    """Belongs to the event loop."""

    def __init__(self, is_open: Callable[[], bool], timeout_ms: int) -> None:
        """*is_open* returns whether current state survives this master; called per response."""
        self.is_open = is_open
        self._held = ParkedAnswers(timeout_ms, _build_error)
        self._refusal: StoreError | None = None

    def hold(self, release: Release) -> None:
        """Call *release* when the gate is open, or with the reason why it did not open in time."""
        if self._refusal is None:
            self._held.park(0, release)
        else:
            release(self._refusal)

    def look(self) -> None:
        """Release the held responses if the gate is open now."""
        if self._held and self.is_open():
            self._held.release(0)

    def refuse(self, error: StoreError) -> None:
        """Release all held responses with *error*, and new ones too until ``hold_responses``."""
        self._refusal = error
        self._held.fail(error)

    def hold_responses(self) -> None:
        """Hold responses again, because this broker was elected."""
        self._refusal = None

    def close(self) -> None:
        """Cancel the timer."""
        self._held.close()


def _build_error(_end_offset: int) -> StoreError:
    return NotReplicatedError(
        "this broker cannot reach the replicas of its set, and another one may lead by now, so "
        "the request is not acknowledged: ask a name server for the master, and send it there"
    )
